"""`ringmain pub`: send messages to a topic."""

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

EXAMPLES = [
    ("one message, once somebody reads", "ringmain pub chat hello"),
    ("JSON, where the topic is typed", 'ringmain pub imu \'{"time_ns": 1, "acceleration": [0, 0, 9.8]}\''),
    ("the same ten times a second, until Ctrl-C", "ringmain pub chat ping --rate 10"),
    ("every line of a program's output", "journalctl -f | ringmain pub log -"),
    ("files, each one message, into a pipe that waits", "ringmain pub images --file *.png --contract pipe"),
    ("a typed topic that is not there yet", "ringmain pub imu --type robot.messages:Imu '{...}'"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser)
    parser.add_argument(
        "data", nargs="?", help="the message: text, or JSON if the topic is typed; - for lines of stdin"
    )
    parser.add_argument("--file", nargs="+", type=Path, metavar="PATH", help="send each file as one message, as it is")
    parser.add_argument("--hex", action="store_true", help="the data is the payload in hex")
    parser.add_argument(
        "--rate", type=rate, metavar="HZ", help="messages a second; repeats DATA until --count or Ctrl-C"
    )
    parser.add_argument("--count", type=positive, metavar="N", help="how many messages")
    parser.add_argument("--sender", default="", help="written on every message")
    parser.add_argument("--kind", default="", help="written on every message")
    parser.add_argument("--wait-readers", type=natural, metavar="N", help="wait for so many readers first (default: 1)")
    add_timeout(parser, "give up (exit code 4) when nobody reads, or makes room, for S seconds")
    new = parser.add_argument_group("if the topic is not there yet")
    new.add_argument("--contract", choices=("broadcast", "pipe", "bus", "reliable"), help="default: broadcast")
    new.add_argument("--capacity", metavar="BYTES", help="of the ring, like 64MiB (default: 1MiB)")
    new.add_argument("--type", metavar="MODULE:CLASS", help="what its messages are")
    new.add_argument("--persist", action="store_true", help="keep the topic when nobody is left")


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
            raise UsageError(f"topic '{args.topic}' is typed {schema.type_name} and not quite {wanted.type_name}")
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
    payload = encoder.encode(args.data)  # at once: a mistake shows before anything is sent
    return itertools.repeat(payload) if args.rate or args.count else [payload]


def _wait_for_readers(pub: rm.Publisher, args: argparse.Namespace) -> None:
    """What nobody reads is gone with us, unless the topic keeps it."""
    keeps = args.persist or pub.contract == "pipe"
    wanted = args.wait_readers if args.wait_readers is not None else int(not keeps)
    start = time.monotonic()
    told = wanted == 0
    # By the roster, not by wait_for_readers: `ringmain echo` looks on, and is somebody to send to all the same.
    while len(rm.info(pub.topic).readers) < wanted:
        waited = time.monotonic() - start
        who = "a reader" if wanted == 1 else f"{wanted} readers"
        if args.timeout is not None and waited >= args.timeout:
            raise CommandError(
                f"no sign of {who} of '{pub.topic}' in {args.timeout:g} s; nothing was sent", Exit.TIMEOUT
            )
        if not told and waited >= 0.2:
            told = True
            print(f"ringmain pub: waiting for {who} of '{pub.topic}' (--wait-readers 0 sends anyway)", file=sys.stderr)
        time.sleep(0.01)


def _send(pub: rm.Publisher, payloads: Iterable[bytes], args: argparse.Namespace) -> None:
    for payload in _paced(itertools.islice(payloads, args.count), args.rate):
        pub.send(payload, args.kind, args.timeout)


def _paced(payloads: Iterable[bytes], rate_hz: float | None) -> Iterator[bytes]:
    """One every 1/rate seconds, by the clock: being late once does not slow the rest."""
    start = time.monotonic()
    for number, payload in enumerate(payloads):
        if rate_hz is not None and (early := start + number / rate_hz - time.monotonic()) > 0:
            time.sleep(early)
        yield payload
