"""`ringmain pipeline run`: recordings to a lake of tables, with Spark."""

from __future__ import annotations

import argparse

from ringmain.cli.exits import missing_part
from ringmain.cli.pipelining import add_run_arguments, run_command

EXAMPLES = [
    (
        "everything recorded so far, then what was recorded since the last run",
        "ringmain pipeline run drive --lake lake",
    ),
    ("as long as it is recorded", "ringmain pipeline run drive --lake lake --follow"),
    ("with topics joined in time", "ringmain pipeline run drive --lake lake --align camera:imu,gps@0.1"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("run",), help="what to do")
    add_run_arguments(parser)


def run(args: argparse.Namespace) -> int:
    try:
        return run_command(args)
    except ImportError as error:
        raise missing_part("spark", error) from None
