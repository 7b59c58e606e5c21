"""`ringmain info`: all that is known of a topic."""

from __future__ import annotations

import argparse
import time
from typing import Any

import ringmain as rm
from ringmain._cli.text_format import Right, bold, bytes_text, count_text, duration_text, printable, rate_text, table
from ringmain._cli.topic_summary import dump_json, layout_text, stream_of, topic_dict, type_name
from ringmain._cli.topic_text import schema_dict, schema_lines

EXAMPLES = [
    ("one topic: its contract, who takes part, its schema", "ringmain info imu"),
    ("how far behind is each reader?", "ringmain info imu --json | jq '.readers[] | {name, lag_messages}'"),
]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", help="the topic's name")
    parser.add_argument("--json", action="store_true", help="print a JSON object")


def run(args: argparse.Namespace) -> None:
    topic, stream = rm.info(args.topic), stream_of(args.topic)
    if args.json:
        shown: dict[str, Any] = topic_dict(topic, stream)
        print(dump_json({**shown, "schema": schema_dict(topic.schema) if topic.schema else None}))
    else:
        print(describe(topic, time.time_ns(), stream))


def describe(topic: rm.TopicInfo, now_ns: int, stream: rm.FrameStream | None = None) -> str:
    """The topic in a few lines and a table."""
    age = duration_text(now_ns - topic.epoch)
    full = 100 * topic.used / topic.capacity
    lines = [
        f"{bold(topic.name)}: {topic.contract}, {type_name(topic, stream)}",
        f"  created   {age} ago{', stays when nobody is left' if topic.persist else ''}",
        f"  messages  {topic.next_sequence}",
        f"  ring      {bytes_text(topic.used)} of {bytes_text(topic.capacity)} used ({full:.0f}%)",
        *(_stream_lines(stream) if stream else ()),
    ]
    members = [*topic.writers, *topic.readers]
    if members:
        lines += ["", table(("WHO", "ROLE", "PID", "STATE", "MESSAGES", "BYTES", "BEHIND", "LOST"), map(_row, members))]
    else:
        lines += ["", "nobody takes part"]
    if topic.schema:
        lines += ["", *schema_lines(topic.schema)]
    return "\n".join(lines)


def _stream_lines(stream: rm.FrameStream) -> list[str]:
    held = ", ".join(f"{printable(who)} {count}" for who, count in stream.held.items())
    lines = [
        f"  frames    {layout_text(stream)}, {bytes_text(stream.layout.size)} each",
        f"  published {count_text(stream.frames)}, at {rate_text(stream.rate)} Hz, {stream.dropped} dropped",
        f"  buffers   {stream.buffers} of {bytes_text(stream.buffer_bytes)}, held by {held or 'nobody'}",
    ]
    return lines if stream.alive else [*lines, "  publisher gone"]


def _row(member: rm.Participant) -> list[object]:
    reader = member.role != "writer"
    return [
        member.name,
        member.role,
        member.pid,
        state_text(member),
        Right(count_text(member.messages)),
        Right(bytes_text(member.bytes)),
        Right(f"{member.lag_messages} ({bytes_text(member.lag_bytes)})" if reader else ""),
        Right(count_text(member.lost) if reader else ""),
    ]


def state_text(member: rm.Participant) -> str:
    """How a participant is, in a few words."""
    if not member.alive:
        return "dead"
    if member.waits_for:
        return f"waits for {member.waits_for}"
    return "holds" if member.holding else "ok"
