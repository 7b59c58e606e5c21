"""`ringmain report`: writes a page about the tables of a pipeline, or checks them against rules."""

from __future__ import annotations

import argparse

import msgspec

from ringmain._cli.arguments import add_storage_option
from ringmain._cli.exit_codes import Exit, needs
from ringmain._cli.topic_summary import dump_json

EXAMPLES = [
    ("one self-contained page", "ringmain report lake -o report.html"),
    ("for alerts: JSON, and exit code 5 if a rule is broken", "ringmain report lake --check rules.toml"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lake", metavar="LAKE", help="where `ringmain pipeline run` put the tables")
    parser.add_argument("-o", "--output", default="report.html", metavar="FILE", help="the page to write (report.html)")
    parser.add_argument("--title", help="of the page (default: the lake's name)")
    parser.add_argument("--check", metavar="FILE", help="write no page: check the lake against rules, print JSON")
    add_storage_option(parser)


def run(args: argparse.Namespace) -> int:
    with needs("lake"):
        from ringmain.lake import Lake, Rules, check, report
    lake = Lake(args.lake, dict(args.storage_option))
    if args.check is None:
        print(report(lake, args.output, title=args.title))
        return Exit.OK
    problems = check(lake, Rules.read(args.check))
    print(dump_json({"ok": not problems, "problems": [msgspec.to_builtins(problem) for problem in problems]}))
    return Exit.PROBLEM_FOUND if problems else Exit.OK
