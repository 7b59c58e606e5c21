"""`ringmain play`: publish a recording again, with its timing."""

from __future__ import annotations

import argparse
import math
import sys

from ringmain.cli.arguments import natural, rate
from ringmain.cli.exits import Exit, UsageError, missing_part
from ringmain.cli.survey import dump_json

EXAMPLES = [
    ("as it was", "ringmain play drive"),
    ("twice as fast, one topic, under another name", "ringmain play drive imu --speed 2 --rename imu=replayed/imu"),
    ("as fast as readers take it, once there is one", "ringmain play drive --lockstep --wait-readers 1"),
    ("over and over", "ringmain play drive --loop"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the recording's directory")
    parser.add_argument("topic", nargs="*", help="names or patterns (default: all)")
    parser.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="2 is twice as fast, inf as fast as it goes"
    )
    parser.add_argument("--rename", nargs="+", default=[], metavar="OLD=NEW", help="publish OLD on the topic NEW")
    parser.add_argument("--loop", action="store_true", help="begin again at the end, until Ctrl-C")
    parser.add_argument("--lockstep", action="store_true", help="each message waits until all readers took the last")
    parser.add_argument("--original", action="store_true", help="keep sequence numbers and times as recorded")
    parser.add_argument("--wait-readers", type=natural, default=0, metavar="N", help="wait for N readers on each topic")
    parser.add_argument("--capacity", metavar="BYTES", help="of the rings (default: fits the largest message)")
    parser.add_argument("--json", action="store_true", help="print how it went as a JSON object")


def run(args: argparse.Namespace) -> int:
    try:
        from ringmain.recording import Player
    except ImportError as error:
        raise missing_part("record", error) from None
    with Player(
        args.path,
        topics=args.topic or None,
        rename=_renames(args.rename),
        speed=args.speed,
        loop=args.loop,
        lockstep=args.lockstep,
        original=args.original,
        readers=args.wait_readers,
        capacity=args.capacity,
    ) as player:
        code = Exit.OK
        try:
            player.run()
        except KeyboardInterrupt:
            code = Exit.OK if args.loop else Exit.INTERRUPTED
        status = player.status()
    if args.json:
        told = {
            "messages": status.messages,
            "bytes": status.bytes,
            "loops": status.loops,
            "late_max_s": status.late_max_s,
        }
        print(dump_json(told))
    else:
        late = f", at most {status.late_max_s * 1000:.1f} ms late" if math.isfinite(args.speed) else ""
        print(f"ringmain play: {status.messages} messages{late}", file=sys.stderr)
    return code


def _speed(text: str) -> float:
    return math.inf if text == "inf" else rate(text)


def _renames(pairs: list[str]) -> dict[str, str]:
    renames = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UsageError(f"--rename is written OLD=NEW, not {pair!r}")
        renames[old] = new
    return renames
