"""Topics and streams of frames as the listing commands see them: looked at from outside, as plain data for tables and
for JSON."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from typing import Any

from ringmain import _names, _native
from ringmain._inspect import Participant, TopicInfo, info
from ringmain.errors import RingmainError
from ringmain.frames import FrameStream, frame_stream


@dataclass(frozen=True)
class Unreadable:
    """A file that has a topic's name and is none that we can read."""

    name: str
    why: str


def survey(pattern: str = "*") -> tuple[list[TopicInfo], list[Unreadable]]:
    """All topics whose name matches, and those that cannot be read, each by name."""
    found, unreadable = [], []
    for name in _native.topics(_names.runtime_directory()):
        if not fnmatch.fnmatchcase(name, pattern):
            continue
        try:
            found.append(info(name))
        except FileNotFoundError:
            continue  # gone between the two looks
        except (RingmainError, ValueError) as error:
            unreadable.append(Unreadable(name, str(error)))
    return found, unreadable


def stream_of(name: str) -> FrameStream | None:
    """The frames that a topic's messages describe; None if it is no stream."""
    try:
        return frame_stream(name)
    except (RingmainError, ValueError):
        return None


def participant_dict(member: Participant) -> dict[str, Any]:
    return {slot: getattr(member, slot) for slot in Participant.__slots__}


def topic_dict(topic: TopicInfo, stream: FrameStream | None) -> dict[str, Any]:
    """What JSON says of a topic. The names are those of `rm.info` and `rm.frame_stream`."""
    return {
        "name": topic.name,
        "contract": topic.contract,
        "type": type_name(topic, stream),
        "capacity": topic.capacity,
        "used": topic.used,
        "next_sequence": topic.next_sequence,
        "epoch": topic.epoch,
        "persist": topic.persist,
        "writers": [participant_dict(member) for member in topic.writers],
        "readers": [participant_dict(member) for member in topic.readers],
        "frames": stream_dict(stream) if stream else None,
    }


def stream_dict(stream: FrameStream) -> dict[str, Any]:
    layout = stream.layout
    told = {name: getattr(layout, name) for name in ("format", "size", "width", "height", "stride")}
    told |= {"shape": list(layout.shape), "dtype": layout.array.dtype, "planes": list(layout.planes)}
    counts = ("buffers", "buffer_bytes", "frames", "dropped", "rate", "alive", "held")
    return told | {name: getattr(stream, name) for name in counts}


def type_name(topic: TopicInfo, stream: FrameStream | None = None) -> str:
    """What the topic's messages are: the type's name, or bytes, or what kind of frames."""
    if stream is not None:
        return f"frames {layout_text(stream)}"
    return topic.schema.type_name if topic.schema else "bytes"


def layout_text(stream: FrameStream) -> str:
    """A frame's layout in a word or two: 'rgb 640x480', 'u1[120,160]', '900000 bytes'."""
    layout = stream.layout
    if layout.width:
        return f"{layout.format} {layout.width}x{layout.height}"
    if layout.format == "bytes":
        return f"{layout.size} bytes"
    return f"{layout.array.dtype.lstrip('|<')}[{','.join(map(str, layout.shape))}]"


def used_share(topic: TopicInfo, stream: FrameStream | None) -> float:
    """How full, from 0 to 1: of a ring, what holds messages; of a stream, the buffers that readers hold."""
    if stream is not None:
        return min(1.0, sum(stream.held.values()) / stream.buffers)
    return topic.used / topic.capacity


def capacity_bytes(topic: TopicInfo, stream: FrameStream | None) -> int:
    """Of a stream its buffers', since the ring beside them is nothing."""
    return topic.capacity if stream is None else stream.buffers * stream.buffer_bytes


def dump_json(value: Any) -> str:
    """JSON as every command prints it."""
    return json.dumps(value, indent=2, ensure_ascii=False)
