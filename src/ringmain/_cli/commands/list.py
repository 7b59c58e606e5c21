"""`ringmain list`: lists the topics."""

from __future__ import annotations

import argparse
import fnmatch
import sys

from ringmain._cli.exit_codes import Exit
from ringmain._cli.service_text import service_dict, services_table, without_parts
from ringmain._cli.text_format import Right, bytes_text, count_text, table
from ringmain._cli.topic_summary import capacity_bytes, dump_json, frames_of, survey, topic_dict, type_name, used_share
from ringmain._inspect import Participant, TopicInfo
from ringmain._service import ServiceInfo
from ringmain._service import services as all_services

EXAMPLES = [
    ("all topics", "ringmain list"),
    ("topics below camera/, as JSON", "ringmain list 'camera/*' --json"),
    ("only services, with their rates and times", "ringmain list --services"),
    ("only names, one in each line, for scripts", "ringmain list --names"),
]
HEADS = ("TOPIC", "CONTRACT", "TYPE", "WRITERS", "READERS", "MESSAGES", "USED", "CAPACITY", "LOST")
WORK_HEADS = ("WAITING", "TAKEN")
"""Only if there is a work topic."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", default="*", help="which topics, like 'camera/*' (default: all)")
    parser.add_argument("--names", action="store_true", help="print the names only")
    parser.add_argument("--services", action="store_true", help="print the services only")
    parser.add_argument("--all", action="store_true", help="print also the topics that services are made of")
    parser.add_argument("--json", action="store_true", help="print a JSON array")


def run(args: argparse.Namespace) -> int:
    services = [each for each in all_services() if fnmatch.fnmatchcase(each.name, args.pattern)]
    if args.services:
        return _list_services(services, args)
    found, unreadable = survey(args.pattern)
    if not args.all:
        found = without_parts(found, services)
    if args.json:
        print(dump_json([topic_dict(topic, frames_of(topic.name)) for topic in found]))
    elif args.names:
        print("".join(f"{topic.name}\n" for topic in found), end="")
    elif found:
        work = any(topic.waiting is not None for topic in found)
        heads = (*HEADS, *WORK_HEADS) if work else HEADS
        print(table(heads, ([*_row(topic), *(_work_cells(topic) if work else ())] for topic in found)))
        if services:
            print(f"\n{services_table(services)}")
    else:
        print("no topics", file=sys.stderr)
    for broken in unreadable:
        print(f"ringmain list: {broken.why}", file=sys.stderr)
    return Exit.OK


def _list_services(services: list[ServiceInfo], args: argparse.Namespace) -> int:
    if args.json:
        print(dump_json([service_dict(each) for each in services]))
    elif args.names:
        print("".join(f"{each.name}\n" for each in services), end="")
    elif services:
        print(services_table(services))
    else:
        print("no services", file=sys.stderr)
    return Exit.OK


def _row(topic: TopicInfo) -> list[object]:
    frames = frames_of(topic.name)
    return [
        topic.name,
        topic.contract,
        type_name(topic, frames),
        _alive(topic.writers),
        _alive(topic.readers),
        Right(count_text(topic.next_sequence)),
        Right(f"{100 * used_share(topic, frames):.0f}%"),
        Right(bytes_text(capacity_bytes(topic, frames))),
        Right(count_text(sum(reader.lost for reader in topic.readers))),
    ]


def _work_cells(topic: TopicInfo) -> list[object]:
    if topic.waiting is None:
        return ["", ""]
    return [Right(count_text(topic.waiting)), Right(count_text(sum(reader.taken for reader in topic.readers)))]


def _alive(participants: list[Participant]) -> Right:
    dead = sum(not each.alive for each in participants)
    return Right(f"{len(participants) - dead} (+{dead} dead)" if dead else str(len(participants)))
