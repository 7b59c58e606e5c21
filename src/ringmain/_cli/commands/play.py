"""`ringmain play`: publishes a recording again, with its timing."""

from __future__ import annotations

import argparse
import math
import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ringmain._cli.arguments import add_storage_option, natural, rate
from ringmain._cli.exit_codes import Exit, UsageError, missing_part
from ringmain._cli.topic_summary import dump_json

if TYPE_CHECKING:
    from ringmain.recording import Player, Recording

KEYS = "space pauses and resumes, s or the right arrow sends one message, q quits"
EXAMPLES = [
    ("with the timing of the recording", "ringmain play drive"),
    (
        "twice as fast, one topic, under another name",
        "ringmain play drive --topics imu --speed 2 --map imu=replayed/imu",
    ),
    ("from the tenth second to the twentieth", "ringmain play drive --from 10 --to 20"),
    ("as fast as readers read, once there is one", "ringmain play drive --lockstep --wait-readers 1"),
    ("repeatedly", "ringmain play drive --loop"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the recording's directory")
    parser.add_argument("--topics", nargs="+", metavar="TOPIC", help="names or patterns (default: all)")
    parser.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="2 is twice as fast, inf as fast as possible"
    )
    parser.add_argument("--map", nargs="+", default=[], metavar="OLD=NEW", help="publish OLD on the topic NEW")
    parser.add_argument(
        "--from", dest="since", metavar="WHEN", help="seconds after the first message, or a date and time (ISO 8601)"
    )
    parser.add_argument("--to", dest="until", metavar="WHEN", help="the same; messages from then on are left out")
    parser.add_argument("--loop", action="store_true", help="start again at the end, until Ctrl-C")
    parser.add_argument("--lockstep", action="store_true", help="send a message only after all readers read the last")
    parser.add_argument("--original", action="store_true", help="keep sequence numbers and times as recorded")
    parser.add_argument("--paused", action="store_true", help="pause before the first message; space resumes")
    parser.add_argument("--wait-readers", type=natural, default=0, metavar="N", help="wait for N readers on each topic")
    parser.add_argument("--capacity", metavar="BYTES", help="of the rings (default: fits the largest message)")
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    try:
        from ringmain.recording import Player, Recording
    except ImportError as error:
        raise missing_part("record", error) from None
    from ringmain._cli.keyboard import Keyboard

    recording = Recording(args.path, storage_options=dict(args.storage_option))
    with Player(
        recording,
        topics=args.topics,
        rename=_renames(args.map),
        since=_when("--from", args.since, recording),
        until=_when("--to", args.until, recording),
        speed=args.speed,
        loop=args.loop,
        lockstep=args.lockstep,
        original=args.original,
        readers=args.wait_readers,
        capacity=args.capacity,
        paused=args.paused,
    ) as player:
        code = Exit.OK
        try:
            with Keyboard(lambda key: _press(player, key)) as keyboard:
                if keyboard.active:
                    print(f"ringmain play: {KEYS}", file=sys.stderr, flush=True)
                player.run()
        except KeyboardInterrupt:
            code = Exit.OK if args.loop else Exit.INTERRUPTED
        status = player.status()
    if args.json:
        print(dump_json({name: getattr(status, name) for name in ("messages", "bytes", "loops", "late_max_s")}))
    else:
        late = f", at most {status.late_max_s * 1000:.1f} ms late" if math.isfinite(args.speed) else ""
        print(f"ringmain play: {status.messages} messages{late}", file=sys.stderr)
    return code


def _press(player: Player, key: str) -> None:
    if key == " ":
        said = "resumed" if player.paused else "paused"
        (player.resume if player.paused else player.pause)()
    elif key in ("s", "right"):
        player.step()
        said = "one message"
    elif key == "q":
        player.stop()
        said = "quits"
    else:
        said = KEYS
    print(f"ringmain play: {said} ({player.status().messages} messages so far)", file=sys.stderr, flush=True)


def _speed(text: str) -> float:
    return math.inf if text == "inf" else rate(text)


def _when(option: str, text: str | None, recording: Recording) -> int | datetime | None:
    """A publish time: seconds after the recording's first message, or a date."""
    if text is None:
        return None
    try:
        after_s = float(text)
    except ValueError:
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            raise UsageError(
                f"{option} is seconds after the first message, or a date and time (ISO 8601), not {text!r}"
            ) from None
        return at.astimezone() if at.tzinfo is None else at
    if not math.isfinite(after_s) or abs(after_s) > timedelta.max.total_seconds():
        raise UsageError(f"{option}: {text} seconds is out of range")
    times = recording.time_range_ns
    return times[0] + round(after_s * 1e9) if times is not None else 0


def _renames(pairs: list[str]) -> dict[str, str]:
    renames = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UsageError(f"--map is written OLD=NEW, not {pair!r}")
        renames[old] = new
    return renames
