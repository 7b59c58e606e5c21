"""A recording as plain data and as text: how long, how large, which topics. `ringmain info RECORDING` shows it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ringmain._cli.text_format import Right, bold, bytes_text, count_of, count_text, duration_text, rate_text, table
from ringmain.errors import SchemaError
from ringmain.recording import Incident, Recording
from ringmain.recording._format import FRAMES, LATCHED
from ringmain.recording._meta import TopicMeta
from ringmain.typed import Schema

_HEADS = ("TOPIC", "TYPE", "CONTRACT", "MESSAGES", "HZ", "BYTES", "LOST")


def recording_dict(recording: Recording, location: str) -> dict[str, Any]:
    """What is in a recording, as JSON."""
    segments = [segment for segment in recording.segments() if segment.number != LATCHED]
    schemas = recording.schemas()
    known: dict[str, list[TopicMeta]] = {}
    for (name, _), meta in schemas.items():
        known.setdefault(name, []).append(meta)
    topics: list[dict[str, Any]] = [
        {
            "name": stats.topic,
            "type": " | ".join(dict.fromkeys(map(_type_name, known.get(stats.topic, [])))) or "bytes",
            "contract": next((meta.contract for meta in reversed(known.get(stats.topic, []))), ""),
            "messages": stats.rows,
            "rate_hz": _rate_hz(stats.rows, stats.max_ns - stats.min_ns),
            "bytes": stats.bytes,
            "lost": stats.lost,
            "start_ns": stats.min_ns,
            "end_ns": stats.max_ns,
        }
        for stats in recording.topics().values()
    ]
    return {
        "path": location,
        "recorder": recording.meta.recorder if recording.meta is not None else "",
        "start_ns": min((topic["start_ns"] for topic in topics), default=None),
        "end_ns": max((topic["end_ns"] for topic in topics), default=None),
        "size_bytes": sum(segment.size_bytes for segment in segments),
        "segments": len(segments),
        "unsealed": sum(not segment.sealed for segment in segments),
        "messages": sum(topic["messages"] for topic in topics),
        "lost": sum(topic["lost"] for topic in topics),
        "latched": recording.latched,
        "topics": topics,
        "incidents": [_incident_dict(one) for one in recording.incidents()],
    }


def _incident_dict(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "name": incident.name,
        "why": incident.why,
        "trigger_ns": incident.trigger_ns,
        "start_ns": incident.start_ns,
        "end_ns": incident.end_ns,
        "open": incident.is_open,
        "whole_from_ns": incident.whole_from_ns,
    }


def describe_recording(known: dict[str, Any]) -> str:
    """The same in a few lines and a table."""
    unsealed = f", {known['unsealed']} not sealed" if known["unsealed"] else ""
    latched = f", {known['latched']} latched before the window" if known["latched"] else ""
    lines = [f"{bold(known['path'])}: recording of {known['recorder'] or 'an unknown recorder'}"]
    if known["start_ns"] is not None:
        lines += [
            f"  duration  {duration_text(known['end_ns'] - known['start_ns'])}",
            f"  start     {_time_text(known['start_ns'])}",
            f"  end       {_time_text(known['end_ns'])}",
        ]
    lines += [
        f"  size      {bytes_text(known['size_bytes'])} in {count_of(known['segments'], 'segment')}{unsealed}",
        f"  messages  {known['messages']}, {known['lost']} lost{latched}",
        "",
    ]
    rows = [
        [
            topic["name"], topic["type"], topic["contract"], topic["messages"], Right(rate_text(topic["rate_hz"])),
            Right(bytes_text(topic["bytes"])), Right(count_text(topic["lost"])),
        ]
        for topic in known["topics"]
    ]  # fmt: skip
    kept = [
        [one["id"], one["why"], duration_text(one["end_ns"] - one["start_ns"]), _state_text(one)]
        for one in known["incidents"]
    ]
    incidents = ["", table(("INCIDENT", "WHY", "WINDOW", ""), kept)] if kept else []
    return "\n".join([*lines, table(_HEADS, rows) if rows else "no topics", *incidents])


def _state_text(incident: dict[str, Any]) -> str:
    """What is not as it should be, or not yet."""
    missing_ns = incident["whole_from_ns"] - incident["start_ns"]
    states = ["not over"] if incident["open"] else []
    if missing_ns > 0:
        states.append(f"the first {duration_text(missing_ns)} had been deleted")
    return ", ".join(states)


def _type_name(meta: TopicMeta) -> str:
    if meta.contract == FRAMES:
        return "frames"
    try:
        return Schema.from_bytes(meta.schema).type_name if meta.schema else "bytes"
    except SchemaError:
        return "a schema that this version cannot read"


def _rate_hz(messages: int, span_ns: int) -> float:
    """Messages a second between the first and the last; 0 where there is only one moment."""
    return (messages - 1) / (span_ns / 1e9) if span_ns > 0 else 0.0


def _time_text(time_ns: int) -> str:
    """In UTC, with all nine digits of the second."""
    whole = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    return f"{whole:%Y-%m-%d %H:%M:%S}.{time_ns % 1_000_000_000:09d} UTC"
