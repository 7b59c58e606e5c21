"""Topics and frame topics as plain data, for tables and JSON. Reads the topic files without joining."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from typing import Any

from ringmain import _names, _native
from ringmain._inspect import Participant, TopicInfo, info
from ringmain.errors import RingmainError
from ringmain.frames import FrameTopic, frame_topic


@dataclass(frozen=True)
class Unreadable:
    """A file with a topic's name that cannot be read as a topic."""

    name: str
    why: str


def survey(pattern: str = "*") -> tuple[list[TopicInfo], list[Unreadable]]:
    """All topics whose name matches, and those that cannot be read, sorted by name."""
    found, unreadable = [], []
    for name in _native.topics(_names.runtime_directory()):
        if not fnmatch.fnmatchcase(name, pattern):
            continue
        try:
            found.append(info(name))
        except FileNotFoundError:
            continue  # removed since it was listed
        except (RingmainError, ValueError) as error:
            unreadable.append(Unreadable(name, str(error)))
    return found, unreadable


def frames_of(name: str) -> FrameTopic | None:
    """The frames of a frame topic. None if it is another topic."""
    try:
        return frame_topic(name)
    except (RingmainError, ValueError):
        return None


def participant_dict(participant: Participant) -> dict[str, Any]:
    return {slot: getattr(participant, slot) for slot in Participant.__slots__}


def topic_dict(topic: TopicInfo, frames: FrameTopic | None) -> dict[str, Any]:
    """A topic as JSON. The names are those of `rm.info` and `rm.frame_topic`."""
    return {
        "name": topic.name,
        "contract": topic.contract,
        "type": type_name(topic, frames),
        "capacity": topic.capacity,
        "max_participants": topic.max_participants,
        "kept_kinds": topic.kept_kinds,
        "max_kept_kinds": topic.max_kept_kinds,
        "not_kept": topic.not_kept,
        "used": topic.used,
        "next_sequence": topic.next_sequence,
        "epoch": topic.epoch,
        "persist": topic.persist,
        "waiting": topic.waiting,
        "writers": [participant_dict(writer) for writer in topic.writers],
        "readers": [participant_dict(reader) for reader in topic.readers],
        "frames": frames_dict(frames) if frames else None,
    }


def frames_dict(frames: FrameTopic) -> dict[str, Any]:
    layout = frames.layout
    known = {name: getattr(layout, name) for name in ("format", "size", "width", "height", "stride")}
    known |= {"shape": list(layout.shape), "dtype": layout.array.dtype, "planes": list(layout.planes)}
    counts = ("buffers", "buffer_bytes", "frames", "dropped", "rate", "alive", "held")
    return known | {name: getattr(frames, name) for name in counts}


def type_name(topic: TopicInfo, frames: FrameTopic | None = None) -> str:
    """The type of the topic's messages: a type's name, bytes, or the layout of its frames."""
    if frames is not None:
        return f"frames {layout_text(frames)}"
    return topic.schema.type_name if topic.schema else "bytes"


def layout_text(frames: FrameTopic) -> str:
    """A frame's layout in a word or two: 'rgb 640x480', 'u1[120,160]', '900000 bytes'."""
    layout = frames.layout
    if layout.width:
        return f"{layout.format} {layout.width}x{layout.height}"
    if layout.format == "bytes":
        return f"{layout.size} bytes"
    return f"{layout.array.dtype.lstrip('|<')}[{','.join(map(str, layout.shape))}]"


def used_share(topic: TopicInfo, frames: FrameTopic | None) -> float:
    """How full it is, from 0 to 1: the used part of the ring, or of a frame topic the buffers that readers hold."""
    if frames is not None:
        return min(1.0, sum(frames.held.values()) / frames.buffers)
    return topic.used / topic.capacity


def oldest_task(topic: TopicInfo) -> Participant | None:
    """Of a work topic: the living worker that has had a message for longest. The ring keeps all that came after it."""
    busy = [reader for reader in topic.readers if reader.alive and reader.taken and reader.taken_ns]
    return min(busy, key=lambda worker: worker.taken_ns, default=None)


def capacity_bytes(topic: TopicInfo, frames: FrameTopic | None) -> int:
    """Of the ring, or of a frame topic all its buffers: the ring beside them is small."""
    return topic.capacity if frames is None else frames.buffers * frames.buffer_bytes


def dump_json(value: Any) -> str:
    """JSON as every command prints it."""
    return json.dumps(value, indent=2, ensure_ascii=False)
