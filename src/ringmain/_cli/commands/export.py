"""`ringmain export`: writes a recording as one file in another format, or a data set of a lake as files to train on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ringmain._cli.arguments import add_incident, add_storage_option, positive_seconds, rate
from ringmain._cli.exit_codes import Exit, UsageError, needs

if TYPE_CHECKING:
    from ringmain.datasets import Windows
    from ringmain.lake import Lake
    from ringmain.recording import Recording

EXAMPLES = [
    ("for Foxglove and PlotJuggler: drive.mcap", "ringmain export --mcap drive"),
    ("for pandas, DuckDB and others", "ringmain export drive drive.parquet 'camera/*'"),
    ("one topic, with its fields as columns", "ringmain export drive imu.parquet imu --decode"),
    ("decoded messages as lines of JSON", "ringmain export drive - imu | jq .data"),
    (
        "for LeRobot, 30 steps a second",
        "ringmain export drive folded --lerobot --fps 30 --task fold state camera action",
    ),
]
FORMATS = (".mcap", ".parquet", ".jsonl")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the recording's directory; with --table or --lerobot also a lake")
    parser.add_argument(
        "out",
        nargs="?",
        help="the file to write: .mcap, .parquet or .jsonl; - prints JSON lines; of a data set a new directory",
    )
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
    parser.add_argument(
        "--lerobot",
        action="store_true",
        help="a LeRobot v3 dataset: of a data set (--table), or of topics (default: all), NAME or NAME=WAY as a grid "
        "has it (newest)",
    )
    parser.add_argument("--fps", type=rate, metavar="N", help="with --lerobot: steps a second")
    parser.add_argument(
        "--task",
        default="",
        metavar="TEXT",
        help="with --lerobot: what was to be done; {name} is a label of the episode",
    )
    parser.add_argument(
        "--between", nargs=2, metavar=("BEGIN", "END"), help="with --lerobot: episodes between messages of two topics"
    )
    parser.add_argument(
        "--every", type=positive_seconds, metavar="SECONDS", help="with --lerobot: episodes so long (default: one)"
    )
    parser.add_argument(
        "--actions", nargs="*", metavar="TOPIC", help="with --lerobot: the actions, or none (default: action*)"
    )
    parser.add_argument(
        "--codec",
        metavar="NAME",
        help="with --lerobot: of videos, libsvtav1, h264 or hevc; png loses nothing (default: libsvtav1)",
    )
    add_incident(parser)
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    of_lerobot = [
        name
        for name in ("fps", "task", "between", "every", "actions", "codec")
        if getattr(args, name) not in (None, "")
    ]
    if of_lerobot and not args.lerobot:
        raise UsageError(f"--{of_lerobot[0]} is for --lerobot")
    if args.table is not None or args.tar or args.lerobot:
        return _export_steps(args)
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


def _export_steps(args: argparse.Namespace) -> int:
    if args.out is None or (args.table is None and not args.lerobot):
        raise UsageError("a data set needs its name and a directory: ringmain export LAKE DIR --table NAME")
    if args.tar and args.lerobot:
        raise UsageError("--tar and --lerobot are two formats: choose one")
    with needs("lake"):
        windows = _of_table(args) if args.table is not None else _of_topics(args)
    for name, why in windows.left_out.items():
        print(f"left out: {name}: {why}", file=sys.stderr)
    for row in windows.refused.select(["episode", "reason"]).to_pylist():
        print(f"refused: {row['episode']}: {row['reason']}", file=sys.stderr)
    with needs("video"):
        if args.lerobot:
            codec = {} if args.codec is None else {"codec": args.codec}
            done = windows.export(args.out, "lerobot", task=args.task, actions=args.actions, **codec)
        else:
            done = windows.export(args.out, "tar" if args.tar else "parquet")
    print(f"{done.episodes} episodes, {done.steps} steps, {done.files} files: {args.out}")
    return Exit.OK


def _of_table(args: argparse.Namespace) -> Windows:
    from ringmain.datasets import Windows
    from ringmain.lake import Lake

    lake = Lake(args.path, dict(args.storage_option))
    windows = Windows(lake, table=args.table, length=1, topics=args.topic or None)
    if args.fps not in (None, windows.hz):
        raise UsageError(f"--fps {args.fps:g}: {args.table} has {windows.hz:g} steps a second, leave it out")
    return windows


def _of_topics(args: argparse.Namespace) -> Windows:
    from ringmain.datasets import Episodes, Grid, Windows
    from ringmain.datasets._open import open_source
    from ringmain.datasets._sources import span

    if args.fps is None:
        raise UsageError("say how many steps a second has: --fps 30")
    data = _recordings_or_lake(args)
    ways = {name: way or "newest" for name, _, way in (text.partition("=") for text in args.topic or _topics(data))}
    grid = Grid(hz=args.fps, topics={name: way for name, way in ways.items() if name not in (args.between or ())})
    if args.between:
        episodes = Episodes(start=args.between[0], end=args.between[1])
    elif args.every:
        episodes = Episodes(length_s=args.every)
    else:
        source = open_source(data)
        spans = [(host, span(source, host, grid.topics)) for host in source.hosts()]
        episodes = Episodes(table=[{"host": host, "begin": s[0], "end": s[1]} for host, s in spans if s is not None])
    return Windows(data, grid=grid, episodes=episodes, length=1)


def _topics(data: list[Recording | str | Path] | Lake) -> list[str]:
    """All that there are."""
    if not isinstance(data, list):
        from ringmain.lake._names import topic_name

        return [topic_name(table.removeprefix("silver/")) for table in data.tables() if table.startswith("silver/")]
    return sorted({topic for one in data if not isinstance(one, str | Path) for topic in one.topics()})


def _recordings_or_lake(args: argparse.Namespace) -> list[Recording | str | Path] | Lake:
    from ringmain.errors import RecordingNotFound
    from ringmain.recording import Recording
    from ringmain.recording._locations import find_recordings

    options = dict(args.storage_option)
    try:
        stores = find_recordings(args.path, storage=options).values()
    except RecordingNotFound:
        from ringmain.lake import Lake

        return Lake(args.path, options)
    return [Recording(s.directory or s.sealed_uri, storage_options=options) for s in stores]
