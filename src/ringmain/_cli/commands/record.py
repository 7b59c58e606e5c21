"""`ringmain record`: records topics until Ctrl-C or a limit."""

from __future__ import annotations

import argparse
import fnmatch
import signal
import sys
import time
from dataclasses import asdict
from glob import has_magic
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from ringmain._cli.arguments import SPANS_S, add_storage_option, positive, positive_seconds, seconds, size, span
from ringmain._cli.exit_codes import CommandError, Exit, UsageError, needs
from ringmain._cli.missing_topic import say_not_there_yet, similar_topic
from ringmain._cli.progress import Redrawn, progress, summary
from ringmain._cli.topic_summary import dump_json

if TYPE_CHECKING:
    from ringmain.recording import Recorder, RecorderStatus, Trigger

EXAMPLES = [
    ("everything, until Ctrl-C", "ringmain record -o drive"),
    ("some topics, for a minute", "ringmain record imu 'camera/*' -o drive --duration 60"),
    ("without frames, and without making a writer wait", "ringmain record -o drive --no-frames --observe"),
    ("only the last day, and at most 10 GiB", "ringmain record -o drive --keep 24h --keep 10GiB"),
    (
        "the last ten minutes, and beyond them what was around each hard braking",
        "ringmain record -o flight --keep 10min --trigger 'imu: ax > 9' --before 30s",
    ),
    ("have such a recorder keep what is now", "ringmain record trigger flight 'operator pressed'"),
    ("sealed segments into a lake", "ringmain record -o drive --sealed-uri s3://lake/drive"),
    (
        "incidents alone into a lake, and the last ten minutes here",
        "ringmain record -o flight --keep 10min --sealed-uri s3://lake/robot --upload incidents",
    ),
    ("what could not be uploaded while recording", "ringmain record --upload drive"),
]


_INCIDENTS = "incidents"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "topic", nargs="*",
        help="names or patterns, like 'camera/*' (default: all); or, without -o, the words `trigger DIR TEXT`: have "
        "the recorder of DIR keep an incident, of now; or `forget DIR INCIDENT`: remove one",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="the directory, new or to be continued (default: recording-DATE-TIME)"
    )
    parser.add_argument("--exclude", nargs="+", default=[], metavar="TOPIC", help="names or patterns to leave out")
    parser.add_argument("--no-frames", action="store_true", help="leave out frame topics")
    parser.add_argument("--observe", action="store_true", help="never make a writer wait; lost messages are counted")
    parser.add_argument(
        "--readers", action="store_true", help="also record what each reader received and lost: topic ringmain/readers"
    )
    parser.add_argument("--oldest", action="store_true", help="start with the oldest message in the ring")
    parser.add_argument("--duration", type=span, metavar="TIME", help="stop after this time: 90, 30m, 24h")
    parser.add_argument("--messages", type=positive, metavar="N", help="stop after N messages")
    parser.add_argument("--max-size", type=size, metavar="SIZE", help="stop at this size, like 1GB")
    parser.add_argument(
        "--keep", action="append", default=[], metavar="SIZE|TIME",
        help="remove the oldest sealed segments beyond this size or age, like 10GiB or 24h; give one or both",
    )  # fmt: skip
    parser.add_argument(
        "--keep-force", action="store_true", help="also remove segments that a registered consumer has not read"
    )
    for what, wanted, fires in (
        ("", "'TOPIC: EXPR'", "when EXPR is true of a message's fields, as `echo --filter` has them"),
        ("kind", "'TOPIC: KIND'", "at a message of this kind"),
        ("loss", "TOPIC", "when this recorder or a reader has lost messages"),
        ("silence", "'TOPIC: S'", "when a topic that was alive has had no message for S seconds"),
        ("death", "TOPIC", "when a writer or reader has died"),
    ):
        parser.add_argument(
            f"--trigger{what and '-'}{what}",
            action="append",
            default=[],
            metavar=wanted,
            help=f"keep an incident {fires}",
        )
    parser.add_argument("--before", type=span, metavar="TIME", help="of an incident: default 30s")
    parser.add_argument("--after", type=span, default=10.0, metavar="TIME", help="of an incident: default 10s")
    parser.add_argument(
        "--cooldown", type=seconds, metavar="S", help="a trigger fires again after S seconds (default: as --after)"
    )
    parser.add_argument("--fsync", choices=("never", "interval", "seal"), default="seal", help="default: seal")
    parser.add_argument("--flush-interval", type=positive_seconds, default=0.1, metavar="S", help="default: 0.1")
    parser.add_argument("--segment-size", type=size, default="256MiB", metavar="SIZE", help="default: 256MiB")
    parser.add_argument(
        "--segment-age", type=span, metavar="TIME", help="default: 1h; with triggers a tenth of what is kept"
    )
    parser.add_argument(
        "--sealed-uri", default="", metavar="URI", help="where sealed segments go, like s3://lake/drive"
    )
    parser.add_argument(
        "--upload", metavar="DIR|incidents",
        help="with a DIR: record nothing, and upload what is left in it for its --sealed-uri; with the word "
        "`incidents`: record, and upload what incidents keep and nothing else",
    )  # fmt: skip
    parser.add_argument("--name", default="recorder", help="its name as a participant (default: recorder)")
    parser.add_argument("--quiet", action="store_true", help="print nothing while recording")
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    with needs("record"):
        import ringmain.recording  # noqa: F401
    if args.upload not in (None, _INCIDENTS):
        return _upload(args)
    if len(args.topic) > 1 and args.topic[0] in ("trigger", "forget") and args.output is None:
        return _incident(*args.topic)
    path = args.output or time.strftime("recording-%Y%m%d-%H%M%S")
    recorder = _recorder(args, path)

    def end(number: int, frame: FrameType | None) -> None:
        recorder.stop()  # messages published before the signal are still recorded

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with recorder:
        if not args.quiet:
            print(f"ringmain record: recording into {path}; Ctrl-C ends it", file=sys.stderr, flush=True)
            for name in _never_came(args.topic, recorder.status()):
                say_not_there_yet("record", name)
        redrawn = Redrawn(sys.stderr, shown=not args.quiet)
        while (status := recorder.status()).state == "recording":
            redrawn.show(progress(status, most_topics=max(1, redrawn.rows - 4)))
            time.sleep(0.1)
        redrawn.end()
    status = recorder.status()
    print(dump_json(asdict(status)) if args.json else summary(status))
    if missing := _never_came(args.topic, status):
        similar = "".join(map(similar_topic, missing))
        names = " and no topic ".join(f"'{name}'" for name in missing)
        raise CommandError(f"while this recorded, there was no topic {names}{similar}", Exit.TIMEOUT)
    return Exit.OK


def _recorder(args: argparse.Namespace, path: str) -> Recorder:
    from ringmain.recording import Recorder

    keep_bytes, keep_age_s = _keep(args.keep)
    try:
        return Recorder(
            path,
            args.topic or "*",
            exclude=args.exclude,
            frames=not args.no_frames,
            observe=args.observe,
            readers=args.readers,
            start="oldest" if args.oldest else "next",
            duration_s=args.duration,
            messages=args.messages,
            max_bytes=args.max_size,
            name=args.name,
            triggers=_triggers(args),
            before_s=args.before,
            after_s=args.after,
            fsync=args.fsync,
            flush_interval_s=args.flush_interval,
            segment_bytes=args.segment_size,
            keep_bytes=keep_bytes,
            keep_age_s=keep_age_s,
            keep_force=args.keep_force,
            sealed_uri=args.sealed_uri,
            upload="incidents" if args.upload == _INCIDENTS else None,
            storage_options=dict(args.storage_option),
            **({} if args.segment_age is None else {"segment_age_s": args.segment_age}),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _triggers(args: argparse.Namespace) -> list[Trigger]:
    from ringmain.recording import Trigger

    options = {"after_s": args.after, "cooldown_s": args.cooldown}
    options |= {} if args.before is None else {"before_s": args.before}
    given = {"when": args.trigger} | {
        what: getattr(args, f"trigger_{what}") for what in ("kind", "loss", "silence", "death")
    }
    try:
        return [Trigger(**{what: text}, **options) for what, texts in given.items() for text in texts]
    except ValueError as error:
        raise UsageError(f"--trigger: {error}") from None


def _incident(what: str, directory: str, *text: str) -> int:
    """Words and not options, as one says them. A directory that is not there, or a text without quotes, is a mistake,
    and must not begin a recording of topics of these names: that takes -o."""
    from ringmain.errors import RecordingNotFound
    from ringmain.recording import forget, trigger

    if len(text) != 1:
        wanted = "text, in quotes" if what == "trigger" else "incident"
        raise UsageError(f"{what} takes a directory and a {wanted}; to record topics of these names, give -o")
    if not Path(directory).is_dir():
        raise RecordingNotFound(f"there is no directory {directory!r} of a recorder")
    print(trigger(directory, text[0]) if what == "trigger" else f"removed {forget(directory, text[0])}")
    return Exit.OK


def _upload(args: argparse.Namespace) -> int:
    """An option and not a word before the directory: a topic may have any name. A directory called `incidents` is given
    as ./incidents."""
    from ringmain.recording import upload

    if args.topic:
        raise UsageError("--upload records no topics: give it alone")
    done = upload(args.upload, dict(args.storage_option))
    print(dump_json({"uploaded": done}) if args.json else f"{done} segments uploaded")
    return Exit.OK


def _never_came(wanted: list[str], status: RecorderStatus) -> list[str]:
    """The names of which there was no topic all the time, and where nothing at all came, also the patterns."""
    there = [topic.topic for topic in status.topics if topic.contract or topic.messages or topic.problem]
    missing = [name for name in wanted if not any(fnmatch.fnmatchcase(topic, name) for topic in there)]
    return missing if len(missing) == len(wanted) else [name for name in missing if not has_magic(name)]


def _keep(given: list[str]) -> tuple[int | None, float | None]:
    """(bytes, seconds) from the values of `--keep`."""
    keep_bytes: int | None = None
    keep_age_s: float | None = None
    for text in given:
        try:
            if text.lstrip("0123456789.") in SPANS_S:
                keep_age_s = span(text)
            else:
                keep_bytes = size(text)
        except argparse.ArgumentTypeError:
            raise UsageError(f"--keep is a size like 10GiB or a time like 24h, not {text!r}") from None
    return keep_bytes, keep_age_s
