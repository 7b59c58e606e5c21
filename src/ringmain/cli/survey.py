"""Topics as the listing commands see them: looked at from outside, as plain data for tables and for JSON."""

from __future__ import annotations

import fnmatch
import json
from dataclasses import dataclass
from typing import Any

from ringmain import _native, names
from ringmain.errors import RingmainError
from ringmain.inspect import Participant, TopicInfo, info


@dataclass(frozen=True)
class Unreadable:
    """A file that has a topic's name and is none that we can read."""

    name: str
    why: str


def survey(pattern: str = "*") -> tuple[list[TopicInfo], list[Unreadable]]:
    """All topics whose name matches, and those that cannot be read, each by name."""
    found, unreadable = [], []
    for name in _native.topics(names.runtime_directory()):
        if not fnmatch.fnmatchcase(name, pattern):
            continue
        try:
            found.append(info(name))
        except FileNotFoundError:
            continue  # gone between the two looks
        except (RingmainError, ValueError) as error:
            unreadable.append(Unreadable(name, str(error)))
    return found, unreadable


def participant_dict(member: Participant) -> dict[str, Any]:
    return {slot: getattr(member, slot) for slot in Participant.__slots__}


def topic_dict(topic: TopicInfo) -> dict[str, Any]:
    """What JSON says of a topic. The names are those of `rm.info`."""
    return {
        "name": topic.name,
        "contract": topic.contract,
        "type": type_name(topic),
        "capacity": topic.capacity,
        "used": topic.used,
        "next_sequence": topic.next_sequence,
        "epoch": topic.epoch,
        "persist": topic.persist,
        "writers": [participant_dict(member) for member in topic.writers],
        "readers": [participant_dict(member) for member in topic.readers],
    }


def type_name(topic: TopicInfo) -> str:
    """What the topic's messages are: the type's name, or bytes."""
    return topic.schema.type_name if topic.schema else "bytes"


def dump_json(value: Any) -> str:
    """JSON as every command prints it."""
    return json.dumps(value, indent=2, ensure_ascii=False)
