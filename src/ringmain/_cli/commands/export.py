"""`ringmain export`: writes a recording as one file in another format, or a data set of a lake as files to train on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ringmain._cli.arguments import add_incident, add_storage_option
from ringmain._cli.exit_codes import Exit, UsageError, needs

EXAMPLES = [
    ("for Foxglove and PlotJuggler: drive.mcap", "ringmain export --mcap drive"),
    ("for pandas, DuckDB and others", "ringmain export drive drive.parquet 'camera/*'"),
    ("one topic, with its fields as columns", "ringmain export drive imu.parquet imu --decode"),
    ("decoded messages as lines of JSON", "ringmain export drive - imu | jq .data"),
]
FORMATS = (".mcap", ".parquet", ".jsonl")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the recording's directory")
    parser.add_argument("out", nargs="?", help="the file to write: .mcap, .parquet or .jsonl; - prints JSON lines")
    parser.add_argument("topic", nargs="*", help="names or patterns (default: all)")
    parser.add_argument("--mcap", action="store_true", help="write MCAP, whatever the file's name (default: PATH.mcap)")
    parser.add_argument("--raw", action="store_true", help="MCAP: unchanged payloads, instead of JSON for viewers")
    parser.add_argument(
        "--decode", action="store_true", help="Parquet: the fields of one topic's messages as columns (JSON always is)"
    )
    parser.add_argument(
        "--table", metavar="NAME", help="PATH is a lake: write its data set train/NAME, as Parquet into a new directory"
    )
    parser.add_argument("--tar", action="store_true", help="with --table: tar files, a group of files for each step")
    add_incident(parser)
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    if args.table is not None or args.tar:
        return _export_table(args)
    if args.out is None and not args.mcap:
        raise UsageError("name the file to write (.mcap, .parquet, .jsonl, or - for JSON lines), or use --mcap")
    args.out = args.out or str(Path(args.path)) + ".mcap"
    suffix = ".mcap" if args.mcap else ".jsonl" if args.out == "-" else Path(args.out).suffix
    if suffix not in FORMATS or (args.mcap and args.out == "-"):
        raise UsageError(f"{args.out!r}: the format comes from the file's suffix, one of {', '.join(FORMATS)}")
    if args.decode and suffix != ".parquet":
        raise UsageError("--decode is for .parquet; .jsonl is always decoded, and .mcap unless --raw")
    with needs("mcap" if suffix == ".mcap" else "record"):
        from ringmain._cli import export_file
        from ringmain.recording import Recording

        recording = Recording(args.path, storage_options=dict(args.storage_option), incident=args.incident)
        if args.decode and len(args.topic or recording.topics()) != 1:
            raise UsageError(
                f"--decode writes one topic: name it after the file, one of {', '.join(recording.topics())}"
            )
        count = export_file.export(recording, args.out, suffix, args.topic or None, raw=args.raw, decode=args.decode)
    if args.out != "-":
        print(f"{count} messages: {args.out}")
    return Exit.OK


def _export_table(args: argparse.Namespace) -> int:
    if args.table is None or args.out is None:
        raise UsageError("a data set needs its name and a directory: ringmain export LAKE DIR --table NAME")
    with needs("lake"):
        from ringmain.datasets import Windows
        from ringmain.lake import Lake

        lake = Lake(args.path, dict(args.storage_option))
        windows = Windows(lake, table=args.table, length=1, topics=args.topic or None)
        done = windows.export(args.out, "tar" if args.tar else "parquet")
    for name, why in windows.left_out.items():
        print(f"left out: {name}: {why}", file=sys.stderr)
    print(f"{done.episodes} episodes, {done.steps} steps, {done.files} files: {args.out}")
    return Exit.OK
