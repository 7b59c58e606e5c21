"""`ringmain echo`: print a topic's messages as they come."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress

from ringmain._cli.arguments import add_timeout, add_topic, positive
from ringmain._cli.exit_codes import Exit, UsageError
from ringmain._cli.expression import Filter, FilterError
from ringmain._cli.message_text import block, fields_of, json_line
from ringmain._cli.observe import messages, watch
from ringmain._message import Message
from ringmain.typed import Schema
from ringmain.typed._struct_layout import layout_of

EXAMPLES = [
    ("every message, until Ctrl-C", "ringmain echo imu"),
    ("the next one, or exit code 4 after five seconds", "ringmain echo imu --once --timeout 5"),
    ("messages that match", "ringmain echo imu --filter 'abs(acceleration[2]) > 12 and message.sender == \"left\"'"),
    (
        "everything still in the ring, as lines of JSON, then exit code 4",
        "ringmain echo imu --oldest --json --timeout 0",
    ),
    ("the payload, unchanged", "ringmain echo blobs --once --raw > blob.bin"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser)
    parser.add_argument("--once", action="store_true", help="print one message and exit")
    parser.add_argument("--count", type=positive, metavar="N", help="print N messages and exit")
    parser.add_argument("--filter", metavar="EXPR", help="print only messages that match; names are fields")
    parser.add_argument("--oldest", action="store_true", help="start with the oldest message in the ring")
    add_timeout(parser, "give up (exit code 4) when no message arrives for S seconds")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object for each line")
    form.add_argument("--raw", action="store_true", help="only the payloads, unchanged, with nothing between them")
    parser.add_argument("--full", action="store_true", help="do not shorten long values")
    parser.add_argument("--no-envelope", action="store_true", help="omit sequence number, time and sender")


def run(args: argparse.Namespace) -> int:
    wanted = _filter(args.filter)
    left = 1 if args.once else args.count or -1
    lost = unclear = 0
    why = ""
    try:
        start = "oldest" if args.oldest else "next"
        with suppress(KeyboardInterrupt), watch(args.topic, "echo", timeout=args.timeout, start=start) as sub:
            if wanted and sub.schema:
                _check_names(wanted, sub.schema)
            for message in messages(sub, args.timeout, decode=not args.raw):
                lost += message.lost
                try:
                    if wanted and not wanted.matches(fields_of(message)):
                        continue
                except FilterError as error:
                    unclear, why = unclear + 1, str(error)
                    continue
                _print(message, args)
                left -= 1
                if left == 0:
                    break
    finally:
        if lost:
            print(f"ringmain echo: {lost} messages were overwritten before they were read", file=sys.stderr)
        if unclear:
            print(f"ringmain echo: the filter could not be applied to {unclear} messages ({why})", file=sys.stderr)
    return Exit.OK


def _print(message: Message, args: argparse.Namespace) -> None:
    if args.raw:
        sys.stdout.buffer.write(message.data)
        sys.stdout.buffer.flush()
    elif args.json:
        print(json_line(message), flush=True)
    else:
        print(block(message, full=args.full, envelope=not args.no_envelope), flush=True)


def _filter(text: str | None) -> Filter | None:
    try:
        return Filter(text) if text is not None else None
    except FilterError as error:
        raise UsageError(f"--filter: {error}") from None


def _check_names(wanted: Filter, schema: Schema) -> None:
    """Without this check, a mistyped field would silently match nothing."""
    own = {field.key for field in schema.fields}
    if schema.codec == "struct":
        own = {field.name for field in layout_of(schema).fields}
    unknown = sorted(wanted.names - own - {"data", "message"})
    if own and unknown:
        fields = ", ".join(sorted(own))
        raise UsageError(f"--filter: {schema.type_name} has no field '{unknown[0]}'; it has {fields}")
