"""`ringmain pipeline run` and `ringmain report`, also as `python -m ringmain.pipeline`: from arguments to calls.

Not part of ringmain.pipeline, whose import brings Spark: `--help` and completion must not need it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringmain.errors import RingmainError

if TYPE_CHECKING:
    from ringmain.pipeline.batch import Align

_ALIGN = re.compile(r"(?P<lead>[^:@]+):(?P<others>[^@]+)(?:@(?P<tolerance>[0-9.]+)s?)?")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `pipeline run`."""
    parser.add_argument("recordings", nargs="+", metavar="RECORDING", help="recordings, directories of them, patterns")
    parser.add_argument("--lake", required=True, metavar="DIR", help="where the tables go; made if need be")
    parser.add_argument("--follow", action="store_true", help="go on as long as it is recorded, until Ctrl-C")
    parser.add_argument("--interval", type=float, default=10.0, metavar="S", help="with --follow: seconds a batch (10)")
    parser.add_argument("--window", type=float, default=10.0, metavar="S", help="of topic_health, in seconds (10)")
    parser.add_argument(
        "--align", action="append", default=[], metavar="LEAD:TOPIC,...@S", help="an as-of joined table"
    )
    parser.add_argument("--format", choices=("parquet", "delta"), default="parquet", help="delta: keep Delta logs too")
    parser.add_argument("--master", metavar="URL", help="of a Spark cluster; by default all cores of this machine")
    parser.add_argument("--batch-bytes", default="1GiB", metavar="SIZE", help="how much a batch reads at most (1GiB)")


def run_command(args: argparse.Namespace) -> int:
    from ringmain.pipeline.run import Pipeline

    pipeline = Pipeline(window_s=args.window, aligns=[parse_align(text) for text in args.align], format=args.format)
    summary = pipeline.run(
        args.recordings,
        args.lake,
        master=args.master,
        follow=args.follow,
        interval_s=args.interval,
        max_bytes_per_batch=args.batch_bytes,
    )
    print(summary)
    return 0


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `report`."""
    parser.add_argument("lake", metavar="LAKE", help="what `pipeline run` made")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the page to write (report.html)")
    parser.add_argument("--title", help="of the page; by default the lake's name")


def report_command(args: argparse.Namespace) -> int:
    from ringmain.pipeline.report import report

    print(report(args.lake, args.output, title=args.title))
    return 0


def parse_align(text: str) -> Align:
    """`camera/front:imu,gps@0.5` -> an Align."""
    from ringmain.pipeline.batch import Align

    match = _ALIGN.fullmatch(text)
    if match is None:
        raise SystemExit(f"--align {text!r}: say LEAD:TOPIC,...@SECONDS, such as camera/front:imu,gps@0.5")
    others = tuple(part.strip() for part in match["others"].split(","))
    return Align(match["lead"], others, float(match["tolerance"] or 1.0))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ringmain.pipeline", description="recordings to a lake, to a page")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="recordings to a lake of Parquet tables")
    add_run_arguments(run)
    run.set_defaults(command=run_command)
    page = commands.add_parser("report", help="a lake to one HTML page")
    add_report_arguments(page)
    page.set_defaults(command=report_command)
    args = parser.parse_args(arguments)
    try:
        return int(args.command(args))
    except (RingmainError, ValueError) as error:
        parser.exit(1, f"ringmain: {error}\n")
