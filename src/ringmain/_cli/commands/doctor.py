"""`ringmain doctor`: checks this machine, or finds out why a topic is stuck."""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict

import ringmain as rm
from ringmain._cli.arguments import add_interval
from ringmain._cli.exit_codes import Exit
from ringmain._cli.machine_checks import Finding, examine
from ringmain._cli.missing_topic import ask
from ringmain._cli.service_text import check_service, service_named
from ringmain._cli.text_format import coloured, printable
from ringmain._cli.topic_checks import diagnose
from ringmain._cli.topic_summary import dump_json, frames_of

EXAMPLES = [
    ("kernel, memory, limits, leftovers, Java, optional parts", "ringmain doctor"),
    ("is a topic stuck, and which process blocks it?", "ringmain doctor jobs"),
    ("for scripts: exit code 5 if there is a problem", "ringmain doctor --json"),
]
MARKS = {"ok": ("ok  ", "green"), "note": ("note", "yellow"), "bad": ("BAD ", "red")}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", nargs="?", help="check this topic instead of the machine")
    add_interval(parser, 0.5, "seconds between two observations of a topic")
    parser.add_argument("--json", action="store_true", help="print a JSON array of findings")


def run(args: argparse.Namespace) -> int:
    if args.topic:
        before = ask(rm.info, args.topic)
        time.sleep(args.interval)
        findings = list(diagnose(before, ask(rm.info, args.topic), args.interval, frames_of(args.topic)))
        if known := service_named(args.topic):
            findings += check_service(known)
    else:
        findings = list(examine())
    if args.json:
        print(dump_json([asdict(finding) for finding in findings]))
    else:
        print("\n".join(map(show, findings)))
    return Exit.PROBLEM_FOUND if any(finding.state == "bad" for finding in findings) else Exit.OK


def show(finding: Finding) -> str:
    """A finding in one line, and what to do about it in another."""
    mark, colour = MARKS[finding.state]
    line = f"{coloured(mark, colour)}  {finding.what + ':':<15} {printable(finding.text)}"
    return f"{line}\n      {'':<15} -> {finding.remedy}" if finding.remedy else line
