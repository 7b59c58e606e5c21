"""`ringmain bridge`: forward a topic to another, on this machine or another."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import suppress
from typing import get_args

from ringmain._bridge import bridge
from ringmain._bridge_ends import parse_end
from ringmain._cli.arguments import positive_seconds
from ringmain._cli.exit_codes import Exit, UsageError, needs
from ringmain._cli.text_format import bytes_text, count_text
from ringmain._cli.topic_summary import dump_json
from ringmain._cli.warning_text import show_warnings
from ringmain._subscriber import Start

EXAMPLES = [
    (
        "from shared memory to a port, encrypted (zmq.auth.create_certificates makes the keys)",
        "ringmain bridge imu 'zmq:imu@tcp://*:5555' --keys robot.key_secret",
    ),
    (
        "on the other machine, from the port into shared memory",
        "ringmain bridge zmq:imu@tcp://robot:5555 imu --server-key robot.key",
    ),
    ("without keys, open to every machine on the network", "ringmain bridge imu 'zmq:imu@tcp://*:5555' --insecure"),
    ("a copy under another name, with what is still in the ring", "ringmain bridge imu imu/copy --start oldest"),
]
SECURITY = ("keys", "server_key", "clients", "insecure")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", help="a topic, zmq:topic or zmq:topic@tcp://host:port")
    parser.add_argument("target", help="the same")
    parser.add_argument(
        "--start",
        choices=get_args(Start),
        default="next",
        help="begin with what comes from now on (default), with the oldest message in the ring, or with the newest",
    )
    parser.add_argument("--keys", metavar="FILE", help="this side's own CURVE keys, the file that ends in _secret")
    parser.add_argument(
        "--server-key",
        metavar="FILE",
        help="the publisher's public key (or the key itself), to connect to one with keys",
    )
    parser.add_argument(
        "--clients",
        metavar="DIR",
        help="the public keys of those that may connect (default: all that have the server key)",
    )
    parser.add_argument("--insecure", action="store_true", help="listen to the whole network without keys")
    parser.add_argument(
        "--duration", type=positive_seconds, metavar="S", help="stop after S seconds (default: at Ctrl-C)"
    )
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")


def run(args: argparse.Namespace) -> int:
    try:
        ends = [parse_end(end) for end in (args.source, args.target)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    security = {name: getattr(args, name) for name in SECURITY}
    if any(security.values()) and not any("address" in end for end in ends):
        raise UsageError("keys are for an end with an address: zmq:topic@tcp://host:port")
    show_warnings("bridge")
    with needs("zmq"):
        carrying = bridge(args.source, args.target, start=args.start, **security, thread=False)
    show_warnings("bridge", unless=lambda: carrying.error)  # which ends the command, and is told then
    end_s = time.monotonic() + args.duration if args.duration else float("inf")
    with carrying:
        with suppress(KeyboardInterrupt):  # before anything is carried: Ctrl-C ends it well from the first message on
            carrying.start()
            print(f"ringmain bridge: {carrying.describe()}; Ctrl-C ends it", file=sys.stderr, flush=True)
            while carrying.error is None and time.monotonic() < end_s:
                time.sleep(min(0.1, max(0.0, end_s - time.monotonic())))
    traffic = carrying.traffic
    if args.json:
        print(dump_json({slot: getattr(traffic, slot) for slot in traffic.__slots__}))
    else:
        print(f"{count_text(traffic.carried)} messages, {bytes_text(traffic.carried_bytes)}, {traffic.dropped} dropped")
    return Exit.OK
