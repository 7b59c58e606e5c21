"""`ringmain record`: record topics until Ctrl-C or a limit."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import asdict
from types import FrameType
from typing import TYPE_CHECKING

from ringmain.cli.arguments import positive, positive_seconds
from ringmain.cli.exits import Exit, missing_part
from ringmain.cli.survey import dump_json
from ringmain.cli.tables import Right, bytes_text, count_text, rate_text, table
from ringmain.names import parse_capacity

if TYPE_CHECKING:
    from ringmain.recording import RecorderStatus

EXAMPLES = [
    ("everything, until Ctrl-C", "ringmain record drive"),
    ("some topics, for a minute", "ringmain record drive imu 'camera/*' --duration 60"),
    ("without ever making a writer wait", "ringmain record drive --observe"),
    ("a black box: the last 10 GB", "ringmain record drive --keep-bytes 10GB"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the directory to record into, new or continued")
    parser.add_argument("topic", nargs="*", help="names or patterns, like 'camera/*' (default: all)")
    parser.add_argument("--exclude", nargs="+", default=[], metavar="TOPIC", help="names or patterns to leave out")
    parser.add_argument("--observe", action="store_true", help="never make a writer wait; what is lost is counted")
    parser.add_argument("--oldest", action="store_true", help="begin with the oldest message that is still there")
    parser.add_argument("--duration", type=positive_seconds, metavar="S", help="stop after S seconds")
    parser.add_argument("--count", type=positive, metavar="N", help="stop after N messages")
    parser.add_argument("--max-bytes", metavar="BYTES", help="stop with so many bytes, like 1GB")
    parser.add_argument("--keep-bytes", metavar="BYTES", help="remove the oldest segments beyond this")
    parser.add_argument("--name", default="recorder", help="what the rosters call it")
    parser.add_argument("--quiet", action="store_true", help="print nothing while recording")
    parser.add_argument("--json", action="store_true", help="print how it went as a JSON object")


def run(args: argparse.Namespace) -> int:
    try:
        from ringmain.recording import Recorder
    except ImportError as error:
        raise missing_part("record", error) from None
    recorder = Recorder(
        args.path,
        args.topic or "*",
        exclude=args.exclude,
        observe=args.observe,
        start="oldest" if args.oldest else "latest",
        duration_s=args.duration,
        messages=args.count,
        max_bytes=parse_capacity(args.max_bytes),
        name=args.name,
        keep_bytes=parse_capacity(args.keep_bytes),
    )

    def end(number: int, frame: FrameType | None) -> None:
        recorder.stop()  # what was published before the signal is still recorded

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with recorder:
        _say(args, f"recording into {args.path}; Ctrl-C ends it")
        while (status := recorder.status()).state == "recording":
            if not args.quiet and sys.stderr.isatty():
                print(f"\r{_line(status)}\033[K", end="", file=sys.stderr, flush=True)
            time.sleep(0.1)
        if not args.quiet and sys.stderr.isatty():
            print(file=sys.stderr)
    status = recorder.status()
    print(dump_json(asdict(status)) if args.json else summary(status))
    return Exit.OK


def _say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(f"ringmain record: {text}", file=sys.stderr, flush=True)


def _line(status: RecorderStatus) -> str:
    rates = f"{rate_text(status.rate_hz)} Hz, {bytes_text(status.bytes_per_s)}/s"
    return f"{count_text(status.messages)} messages, {bytes_text(status.bytes)}, {rates}, {status.lost} lost"


def summary(status: RecorderStatus) -> str:
    """What was recorded, topic by topic."""
    rows = [
        [t.topic, t.contract, Right(count_text(t.messages)), Right(bytes_text(t.bytes)), t.lost, t.problem]
        for t in status.topics
    ]
    heads = ("TOPIC", "CONTRACT", "MESSAGES", "BYTES", "LOST", "PROBLEM")
    total = f"{status.messages} messages, {bytes_text(status.bytes)} in {status.elapsed_s:.1f} s, {status.lost} lost"
    return f"{table(heads, rows)}\n{total}: {status.path}" if rows else f"no topics, nothing recorded: {status.path}"
