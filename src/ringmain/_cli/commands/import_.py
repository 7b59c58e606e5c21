"""`ringmain import`: makes a recording of an MCAP file, a ROS bag or a data set."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from ringmain._cli.arguments import natural
from ringmain._cli.exit_codes import needs
from ringmain._cli.text_format import Right, bytes_text, count_text, table
from ringmain._cli.topic_summary import dump_json

if TYPE_CHECKING:
    from ringmain.recording import ImportStatus

EXAMPLES = [
    ("an MCAP file", "ringmain import drive.mcap drive"),
    ("a ROS 1 bag", "ringmain import old.bag drive"),
    ("a ROS 2 bag, which is a directory", "ringmain import rosbag2_2026_01_02 drive"),
    ("one episode of a LeRobot dataset", "ringmain import folded drive --episode 1"),
]
_HEADS = ("TOPIC", "TYPE", "MESSAGES", "BYTES", "NOTE")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "bag", help="an .mcap file, a ROS 1 .bag, or the directory of a ROS 2 bag or a data set (LeRobot, Parquet)"
    )
    parser.add_argument("directory", help="the recording to make; must not exist")
    parser.add_argument("--episode", type=natural, metavar="N", help="of a data set: only this episode")
    parser.add_argument("--quiet", action="store_true", help="show no progress")
    parser.add_argument("--json", action="store_true", help="print what was imported as a JSON object")


def run(args: argparse.Namespace) -> None:
    with needs("import"):
        from ringmain.recording import import_bag

        progress = _Progress(shown=not args.quiet and not args.json and sys.stderr.isatty())
        try:
            status = import_bag(args.bag, args.directory, episode=args.episode, progress=progress.show)
        finally:
            progress.end()
    print(dump_json(asdict(status)) if args.json else _summary(status, progress.elapsed_s))
    if status.ends_early:
        print(f"ringmain import: {args.bag}: {status.ends_early}", file=sys.stderr)


class _Progress:
    """One line on a terminal, redrawn a few times a second."""

    def __init__(self, *, shown: bool) -> None:
        self._shown, self._drawn = shown, False
        self._began_s = time.monotonic()
        self._next_s = self._began_s

    @property
    def elapsed_s(self) -> float:
        return max(time.monotonic() - self._began_s, 1e-9)

    def show(self, status: ImportStatus) -> None:
        if not self._shown or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + 0.2
        self._drawn = True
        rate = bytes_text(status.bytes / self.elapsed_s)
        line = (
            f"{100 * status.share:3.0f} %  {count_text(status.messages)} messages, {bytes_text(status.bytes)}, {rate}/s"
        )
        print(f"\r{line}\033[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _summary(status: ImportStatus, elapsed_s: float) -> str:
    rows = []
    for topic in status.topics:
        notes = [topic.why_raw and f"as bytes: {topic.why_raw}"]
        notes.append(f"{topic.unconverted} do not match the schema" if topic.unconverted else "")
        notes.append(f"was {topic.source}" if topic.source.lstrip("/") != topic.topic else "")
        note = "; ".join(filter(None, notes))
        rows.append([topic.topic, topic.type, topic.messages, Right(bytes_text(topic.bytes)), note])
    rate = bytes_text(status.bytes / elapsed_s)
    total = f"{status.messages} messages, {bytes_text(status.bytes)} ({rate}/s): {status.path}"
    return f"{table(_HEADS, rows)}\n{total}" if rows else f"no messages: {status.path}"
