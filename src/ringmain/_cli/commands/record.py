"""`ringmain record`: records topics until Ctrl-C or a limit."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from dataclasses import asdict
from types import FrameType

from ringmain._cli.arguments import add_storage_option, positive, positive_seconds, size, span
from ringmain._cli.exit_codes import Exit, UsageError, missing_part
from ringmain._cli.progress import Progress, summary
from ringmain._cli.topic_summary import dump_json

EXAMPLES = [
    ("everything, until Ctrl-C", "ringmain record -o drive"),
    ("some topics, for a minute", "ringmain record imu 'camera/*' -o drive --duration 60"),
    ("without frames, and without making a writer wait", "ringmain record -o drive --no-frames --observe"),
    ("only the last day, and at most 10 GiB", "ringmain record -o drive --keep 24h --keep 10GiB"),
    ("sealed segments into a lake", "ringmain record -o drive --sealed-uri s3://lake/drive"),
    ("what could not be uploaded while recording", "ringmain record upload drive"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="*", help="names or patterns, like 'camera/*' (default: all), or `upload DIR`")
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
    parser.add_argument("--fsync", choices=("never", "interval", "seal"), default="seal", help="default: seal")
    parser.add_argument("--flush-interval", type=positive_seconds, default=0.1, metavar="S", help="default: 0.1")
    parser.add_argument("--segment-size", type=size, default="256MiB", metavar="SIZE", help="default: 256MiB")
    parser.add_argument("--segment-age", type=span, default="1h", metavar="TIME", help="default: 1h")
    parser.add_argument(
        "--sealed-uri", default="", metavar="URI", help="where sealed segments go, like s3://lake/drive"
    )
    parser.add_argument("--name", default="recorder", help="its name as a participant (default: recorder)")
    parser.add_argument("--quiet", action="store_true", help="print nothing while recording")
    parser.add_argument("--json", action="store_true", help="print the totals as a JSON object")
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    try:
        from ringmain.recording import Recorder
    except ImportError as error:
        raise missing_part("record", error) from None
    if args.topic[:1] == ["upload"]:
        return _upload(args.topic[1:], dict(args.storage_option), as_json=args.json)
    keep_bytes, keep_age_s = _keep(args.keep)
    path = args.output or time.strftime("recording-%Y%m%d-%H%M%S")
    recorder = Recorder(
        path,
        args.topic or "*",
        exclude=args.exclude,
        frames=not args.no_frames,
        observe=args.observe,
        readers=args.readers,
        start="oldest" if args.oldest else "latest",
        duration_s=args.duration,
        messages=args.messages,
        max_bytes=args.max_size,
        name=args.name,
        fsync=args.fsync,
        flush_interval_s=args.flush_interval,
        segment_bytes=args.segment_size,
        segment_age_s=args.segment_age,
        keep_bytes=keep_bytes,
        keep_age_s=keep_age_s,
        keep_force=args.keep_force,
        sealed_uri=args.sealed_uri,
        storage_options=dict(args.storage_option),
    )

    def end(number: int, frame: FrameType | None) -> None:
        recorder.stop()  # messages published before the signal are still recorded

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    with recorder:
        if not args.quiet:
            print(f"ringmain record: recording into {path}; Ctrl-C ends it", file=sys.stderr, flush=True)
        progress = Progress(sys.stderr, shown=not args.quiet)
        while (status := recorder.status()).state == "recording":
            progress.show(status)
            time.sleep(0.1)
        progress.end()
    status = recorder.status()
    print(dump_json(asdict(status)) if args.json else summary(status))
    return Exit.OK


def _upload(directories: list[str], storage_options: dict[str, str], *, as_json: bool) -> int:
    """`ringmain record upload DIR`. A topic that is named like this is recorded by a pattern, `[u]pload`."""
    from ringmain.recording import upload

    if len(directories) != 1:
        raise UsageError("`ringmain record upload` takes the directory of one recording")
    done = upload(directories[0], storage_options)
    print(dump_json({"uploaded": done}) if as_json else f"{done} segments uploaded")
    return Exit.OK


def _keep(given: list[str]) -> tuple[int | None, float | None]:
    """(bytes, seconds) from the values of `--keep`."""
    keep_bytes: int | None = None
    keep_age_s: float | None = None
    for text in given:
        try:
            if text[-1:] in "smhd":
                keep_age_s = span(text)
            else:
                keep_bytes = size(text)
        except argparse.ArgumentTypeError:
            raise UsageError(f"--keep is a size like 10GiB or a time like 24h, not {text!r}") from None
    return keep_bytes, keep_age_s
