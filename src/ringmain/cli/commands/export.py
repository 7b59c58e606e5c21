"""`ringmain export`: a recording as one file of another format."""

from __future__ import annotations

import argparse
from pathlib import Path

from ringmain.cli.exits import Exit, UsageError, missing_part

EXAMPLES = [
    ("for Foxglove and other robot tools", "ringmain export drive drive.mcap"),
    ("for pandas, DuckDB and the rest", "ringmain export drive drive.parquet 'camera/*'"),
    ("a line of JSON a message, decoded", "ringmain export drive - imu | jq .data"),
]
FORMATS = (".mcap", ".parquet", ".jsonl")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the recording's directory")
    parser.add_argument("out", help="the file to write: .mcap, .parquet or .jsonl; - prints JSON lines")
    parser.add_argument("topic", nargs="*", help="names or patterns (default: all)")


def run(args: argparse.Namespace) -> int:
    suffix = Path(args.out).suffix if args.out != "-" else ".jsonl"
    if suffix not in FORMATS:
        raise UsageError(f"{args.out!r}: the format is known by its ending, one of {', '.join(FORMATS)}")
    try:
        from ringmain.cli import exporting
        from ringmain.recording import Recording

        recording = Recording(args.path)
        count = exporting.export(recording, args.out, suffix, args.topic or None)
    except ImportError as error:
        raise missing_part("mcap" if suffix == ".mcap" else "record", error) from None
    if args.out != "-":
        print(f"{count} messages: {args.out}")
    return Exit.OK
