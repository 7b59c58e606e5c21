"""`ringmain info`: everything about one topic."""

from __future__ import annotations

import argparse
import json
import time

import ringmain as rm
from ringmain._cli.arguments import add_topic
from ringmain._cli.topic_summary import dump_json, stream_of, topic_dict
from ringmain._cli.topic_text import describe

EXAMPLES = [
    ("one topic: its contract, its participants, its schema", "ringmain info imu"),
    ("how far behind is each reader?", "ringmain info imu --json | jq '.readers[] | {name, lag_messages}'"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    add_topic(parser)
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> None:
    topic, stream = rm.info(args.topic), stream_of(args.topic)
    if args.json:
        schema = json.loads(topic.schema.to_bytes()) if topic.schema else None
        print(dump_json({**topic_dict(topic, stream), "schema": schema}))
    else:
        print(describe(topic, time.time_ns(), stream))
