"""`ringmain info`: everything about one topic, or about a recording."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import ringmain as rm
from ringmain._cli.arguments import add_incident, add_storage_option
from ringmain._cli.exit_codes import needs
from ringmain._cli.missing_topic import ask
from ringmain._cli.service_text import describe_service, service_dict, service_named
from ringmain._cli.topic_summary import dump_json, frames_of, topic_dict
from ringmain._cli.topic_text import describe

EXAMPLES = [
    ("one topic: its contract, its participants, its schema", "ringmain info imu"),
    ("how far behind is each reader?", "ringmain info imu --json | jq '.readers[] | {name, lag_messages}'"),
    ("a recording: duration, size, topics, rates; ./ if a topic has the same name", "ringmain info ./drive"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="topic|recording", help="the topic's name, or a recording's directory or URI")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_incident(parser)
    add_storage_option(parser)


def run(args: argparse.Namespace) -> None:
    if _is_recording(args.topic):
        _show_recording(args.topic, dict(args.storage_option), args.incident, as_json=args.json)
        return
    topic, frames, known = ask(rm.info, args.topic), frames_of(args.topic), service_named(args.topic)
    if args.json:
        schema = json.loads(topic.schema.to_bytes()) if topic.schema else None
        served = service_dict(known) if known else None
        print(dump_json({**topic_dict(topic, frames), "schema": schema, "service": served}))
    else:
        print(describe(topic, time.time_ns(), frames))
        if known:
            print(f"\n{describe_service(known)}")


def _is_recording(name: str) -> bool:
    """A location, unless there is a topic of that name."""
    if "://" in name:
        return True
    if not Path(name).is_dir():
        return False
    try:
        rm.info(name)
    except (ValueError, rm.TopicNotFound):  # ./drive is no topic's name
        return True
    return False


def _show_recording(location: str, storage_options: dict[str, str], incident: str | None, *, as_json: bool) -> None:
    with needs("record"):
        from ringmain._cli.recording_text import describe_recording, recording_dict
        from ringmain.recording import Recording
    known = recording_dict(Recording(location, storage_options=storage_options, incident=incident), location)
    print(dump_json(known) if as_json else describe_recording(known))
