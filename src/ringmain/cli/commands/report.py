"""`ringmain report`: a lake to one HTML page."""

from __future__ import annotations

import argparse

from ringmain.cli.exits import missing_part
from ringmain.cli.pipelining import add_report_arguments, report_command

EXAMPLES = [
    ("of what the pipeline made", "ringmain report lake"),
    ("under another name, with a title", "ringmain report lake -o monday.html --title 'Monday'"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_report_arguments(parser)


def run(args: argparse.Namespace) -> int:
    try:
        return report_command(args)
    except ImportError as error:
        raise missing_part("spark", error) from None
