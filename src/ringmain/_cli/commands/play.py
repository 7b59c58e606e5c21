"""`ringmain play`: publishes a recording again, or an episode of a data set, with its timing."""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ringmain._cli.arguments import add_incident, add_moments, add_storage_option, moment, natural, rate
from ringmain._cli.exit_codes import Exit, UsageError, needs
from ringmain._cli.progress import Redrawn, Replaying
from ringmain._cli.topic_summary import dump_json
from ringmain._cli.warning_text import show_warnings

if TYPE_CHECKING:
    from datetime import datetime

    from ringmain.recording import Player, Recording

KEYS = "space pauses and resumes, s or the right arrow sends one message, up and down change the speed, q quits"
EXAMPLES = [
    ("with the timing of the recording", "ringmain play drive"),
    (
        "twice as fast, one topic, under another name",
        "ringmain play drive --topics imu --speed 2 --map imu=replayed/imu",
    ),
    ("from the tenth second to the twentieth", "ringmain play drive --from 10 --to 20"),
    ("as fast as readers read, once there is one", "ringmain play drive --lockstep --wait-readers 1"),
    ("repeatedly", "ringmain play drive --loop"),
    ("what a flight recorder kept", "ringmain play flight --incident braking"),
    ("an episode of a LeRobot dataset, for a policy", "ringmain play --lerobot folded --episode 1 --lockstep"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="the recording's directory")
    parser.add_argument(
        "--lerobot",
        action="store_true",
        help="PATH is a LeRobot v3 dataset, or Parquet files as Hugging Face has them: play an episode of it",
    )
    parser.add_argument("--episode", type=natural, metavar="N", help="with --lerobot: which one (default: 0)")
    parser.add_argument("--topics", nargs="+", metavar="TOPIC", help="names or patterns (default: all)")
    parser.add_argument(
        "--speed", type=_speed, default=1.0, metavar="X", help="2 is twice as fast, inf as fast as possible"
    )
    parser.add_argument("--map", nargs="+", default=[], metavar="OLD=NEW", help="publish OLD on the topic NEW")
    add_moments(parser)
    parser.add_argument("--loop", action="store_true", help="start again at the end, until Ctrl-C")
    parser.add_argument("--lockstep", action="store_true", help="send a message only after all readers read the last")
    parser.add_argument("--original", action="store_true", help="keep sequence numbers and times as recorded")
    parser.add_argument("--paused", action="store_true", help="pause before the first message; space resumes")
    parser.add_argument("--wait-readers", type=natural, default=0, metavar="N", help="wait for N readers on each topic")
    parser.add_argument("--capacity", metavar="BYTES", help="of the rings (default: as recorded)")
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")
    add_incident(parser)
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    with needs("record"):
        import ringmain.recording  # noqa: F401

    show_warnings("play")
    with _opened(args) as recording:
        return _play(args, recording)


@contextmanager
def _opened(args: argparse.Namespace) -> Iterator[Recording]:
    from ringmain.recording import Recording, import_bag

    if not args.lerobot:
        if args.episode is not None:
            raise UsageError("--episode is of a data set: use --lerobot, too")
        yield Recording(args.path, storage_options=dict(args.storage_option), incident=args.incident)
        return
    if args.incident is not None or args.storage_option:
        raise UsageError("--incident and --storage-option are of a recording, and not of a data set (--lerobot)")
    with tempfile.TemporaryDirectory(prefix="ringmain-play-") as directory:
        with needs("video"):
            import_bag(args.path, f"{directory}/episode", episode=args.episode or 0)
        yield Recording(f"{directory}/episode")


def _play(args: argparse.Namespace, recording: Recording) -> int:
    from ringmain._cli.keyboard import Keyboard
    from ringmain.recording import Player

    until = moment("--to", args.until, recording)
    with Player(
        recording,
        topics=args.topics,
        rename=_renames(args.map),
        since=moment("--from", args.since, recording),
        until=until,
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
                with Replaying(player, _end_ns(recording, until), Redrawn(sys.stderr)):
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
    elif key in ("up", "down"):
        speed = player.status().speed * (1.1 if key == "up" else 1 / 1.1)
        player.set_speed(speed)
        said = f"{speed:.3g} times as fast as recorded"
    elif key == "q":
        player.stop()
        said = "quits"
    else:
        said = KEYS
    print(f"\rringmain play: {said} ({player.status().messages} messages so far)\033[K", file=sys.stderr, flush=True)


def _end_ns(recording: Recording, until: int | datetime | None) -> int | None:
    """The recorded time of the last message, for the progress."""
    from ringmain.recording._filters import as_ns

    times, limit = recording.time_range_ns, as_ns(until)
    return None if times is None else min(times[1], times[1] if limit is None else limit)


def _speed(text: str) -> float:
    return math.inf if text == "inf" else rate(text)


def _renames(pairs: list[str]) -> dict[str, str]:
    renames = {}
    for pair in pairs:
        old, equals, new = pair.partition("=")
        if not (old and equals and new):
            raise UsageError(f"--map is written OLD=NEW, not {pair!r}")
        renames[old] = new
    return renames
