"""`ringmain clean`: take away what the dead left behind."""

from __future__ import annotations

import argparse
import sys

import ringmain as rm
from ringmain._cli.arguments import add_topic
from ringmain._cli.exit_codes import Exit, UsageError
from ringmain._cli.topic_summary import dump_json, survey

EXAMPLES = [
    ("topics in which everybody is dead", "ringmain clean"),
    ("one topic, if nobody takes part in it (also one that persists)", "ringmain clean old/topic"),
    ("one topic, whoever is in it", "ringmain clean stuck --force"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser, many=True)
    parser.add_argument("--force", action="store_true", help="take the named topics away even from the living")
    parser.add_argument("--json", action="store_true", help="print a JSON array of the names")


def run(args: argparse.Namespace) -> int:
    if args.force and not args.topic:
        raise UsageError("--force needs the topic's name: it takes a topic away from the living")
    if args.topic:
        for name in args.topic:
            rm.unlink(name, force=args.force)
        gone = list(args.topic)
    else:
        gone = rm.clean()
    if args.json:
        print(dump_json(gone))
    else:
        for name in gone:
            print(f"removed {name}")
        if not gone:
            print("nothing to clean", file=sys.stderr)
    if not args.topic:
        for broken in survey()[1]:
            print(f"ringmain clean: left alone: {broken.why}", file=sys.stderr)
    return Exit.OK
