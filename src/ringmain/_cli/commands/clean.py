"""`ringmain clean`: remove topics left by processes that died."""

from __future__ import annotations

import argparse
import functools
import sys

import ringmain as rm
from ringmain._cli.arguments import add_topic
from ringmain._cli.exit_codes import Exit, UsageError
from ringmain._cli.missing_topic import ask
from ringmain._cli.topic_summary import dump_json, survey

EXAMPLES = [
    ("all topics whose participants have died", "ringmain clean"),
    ("one topic, if it has no live participant (also one that persists)", "ringmain clean old/topic"),
    ("one topic, even if it is in use", "ringmain clean stuck --force"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser, many=True)
    parser.add_argument("--force", action="store_true", help="remove the named topics even if they are in use")
    parser.add_argument("--json", action="store_true", help="print the names as a JSON array")


def run(args: argparse.Namespace) -> int:
    if args.force and not args.topic:
        raise UsageError("--force needs the topic's name: it removes a topic that is in use")
    if args.topic:
        for name in args.topic:
            ask(functools.partial(rm.unlink, force=args.force), name)
        removed = args.topic
    else:
        removed = rm.clean()
    if args.json:
        print(dump_json(removed))
    else:
        for name in removed:
            print(f"removed {name}")
        if not removed:
            print("nothing to clean", file=sys.stderr)
    if not args.topic:
        for broken in survey()[1]:
            print(f"ringmain clean: not removed: {broken.why}", file=sys.stderr)
    return Exit.OK
