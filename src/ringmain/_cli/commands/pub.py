"""`ringmain pub`: sends messages to a topic."""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import ringmain as rm
from ringmain._cli.arguments import add_timeout, add_topic, natural, positive, rate
from ringmain._cli.exit_codes import CommandError, Exit, UsageError
from ringmain._cli.message_input import Encoder, schema_of_type
from ringmain._contracts import CONTRACTS, DEFAULT_CONTRACT

EXAMPLES = [
    ("one message, once there is a reader", "ringmain pub chat hello"),
    ("JSON, if the topic is typed", 'ringmain pub imu \'{"time_ns": 1, "acceleration": [0, 0, 9.8]}\''),
    ("the same ten times a second, until Ctrl-C", "ringmain pub chat ping --rate 10"),
    ("every line of a program's output", "journalctl -f | ringmain pub log -"),
    ("files, each as one message, into a pipe that keeps them", "ringmain pub images --file *.png --contract pipe"),
    (
        "a typed topic that does not exist yet",
        'ringmain pub imu --type robot.messages:Imu \'{"time_ns": 1, "acceleration": [0, 0, 9.8]}\'',
    ),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser)
    parser.add_argument(
        "data", nargs="?", help="the message: text, or JSON if the topic is typed; - for lines of stdin"
    )
    parser.add_argument("--file", nargs="+", type=Path, metavar="PATH", help="send each file as one message, unchanged")
    parser.add_argument("--hex", action="store_true", help="the data is the payload in hex")
    parser.add_argument(
        "--rate", type=rate, metavar="HZ", help="messages per second; repeats DATA until --count or Ctrl-C"
    )
    parser.add_argument("--count", type=positive, metavar="N", help="how many messages")
    parser.add_argument("--sender", default="", help="written on every message")
    parser.add_argument("--kind", default="", help="written on every message")
    parser.add_argument("--wait-readers", type=natural, metavar="N", help="wait for N readers first (default: 1)")
    add_timeout(parser, "give up (exit code 4) when there is no reader, or no space, for S seconds")
    new = parser.add_argument_group("if the topic does not exist yet")
    new.add_argument("--contract", choices=tuple(CONTRACTS), help=f"default: {DEFAULT_CONTRACT}")
    new.add_argument("--capacity", metavar="BYTES", help="of the ring, like 64MiB (default: 1MiB)")
    new.add_argument("--type", metavar="MODULE:CLASS", help="the type of its messages")
    new.add_argument("--persist", action="store_true", help="keep the topic when the last participant leaves")


def run(args: argparse.Namespace) -> int:
    if (args.data is None) == (args.file is None):
        raise UsageError("give the message, or - for lines of stdin, or --file")
    wanted = schema_of_type(args.type) if args.type else None
    with rm.Publisher(
        args.topic,
        contract=args.contract,
        capacity=args.capacity,
        sender=args.sender,
        name=args.sender or "ringmain pub",
        persist=args.persist,
    ) as pub:
        schema = pub.schema or wanted
        if wanted and schema and wanted.to_bytes() != schema.to_bytes():
            raise UsageError(f"topic '{args.topic}' carries {schema.type_name}, not the {wanted.type_name} of --type")
        if wanted and pub.schema is None:
            pub._set_schema(wanted.to_bytes())
        encoder = Encoder(schema, as_hex=args.hex)
        payloads = _payloads(args, encoder)
        with suppress(KeyboardInterrupt):
            _wait_for_readers(pub, args)
            _send(pub, payloads, args)
            return Exit.OK
    return Exit.OK if args.rate and not args.count else Exit.INTERRUPTED


def _payloads(args: argparse.Namespace, encoder: Encoder) -> Iterable[bytes]:
    if args.file:
        return (path.read_bytes() for path in args.file)
    if args.data == "-":
        return (encoder.encode(line.rstrip("\n")) for line in sys.stdin)
    payload = encoder.encode(args.data)  # now: a mistake is reported before anything is sent
    return itertools.repeat(payload) if args.rate or args.count else [payload]


def _wait_for_readers(pub: rm.Publisher, args: argparse.Namespace) -> None:
    """Without a reader, messages are lost when we leave, unless the topic keeps them."""
    keeps = args.persist or CONTRACTS[pub.contract].keeps_unread
    wanted = args.wait_readers if args.wait_readers is not None else int(not keeps)
    start = time.monotonic()
    printed = wanted == 0
    # Not by Publisher.wait_for_readers, which does not count observers, and `ringmain echo` is one.
    while len(rm.info(pub.topic).readers) < wanted:
        waited = time.monotonic() - start
        who = "a reader" if wanted == 1 else f"{wanted} readers"
        if args.timeout is not None and waited >= args.timeout:
            raise CommandError(f"'{pub.topic}' did not get {who} in {args.timeout:g} s; nothing was sent", Exit.TIMEOUT)
        if not printed and waited >= 0.2:
            printed = True
            print(f"ringmain pub: waiting for {who} of '{pub.topic}' (--wait-readers 0 sends anyway)", file=sys.stderr)
        time.sleep(0.01)


def _send(pub: rm.Publisher, payloads: Iterable[bytes], args: argparse.Namespace) -> None:
    for payload in _paced(itertools.islice(payloads, args.count), args.rate):
        pub.send(payload, args.kind, args.timeout)


def _paced(payloads: Iterable[bytes], rate_hz: float | None) -> Iterator[bytes]:
    """One every 1/rate seconds of the clock. One late message does not delay the others."""
    start = time.monotonic()
    for number, payload in enumerate(payloads):
        if rate_hz is not None and (early := start + number / rate_hz - time.monotonic()) > 0:
            time.sleep(early)
        yield payload
