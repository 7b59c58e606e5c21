"""`ringmain report`: writes a page about the tables of a pipeline."""

from __future__ import annotations

import argparse

from ringmain._cli.commands.pipeline import add_storage_option, storage_options
from ringmain._cli.exit_codes import Exit, missing_part

EXAMPLES = [("one self-contained page", "ringmain report lake -o report.html")]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="where `ringmain pipeline run` put the tables")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the page to write (report.html)")
    parser.add_argument("--title", help="of the page (default: the lake's name)")
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    try:
        from ringmain.pipeline import Lake, report
    except ImportError as error:
        raise missing_part("spark", error) from None
    print(report(Lake(args.lake, storage_options(args)), args.output, title=args.title))
    return Exit.OK
