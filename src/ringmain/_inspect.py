"""Looking at topics from outside, and taking them away. Looking takes no place in a topic and slows nobody."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ringmain import _names, _native, backends
from ringmain.errors import RingmainError, TopicNotFound

if TYPE_CHECKING:
    from ringmain._ring import Inspection, ParticipantRecord
    from ringmain.typed import Schema


@dataclass(frozen=True, slots=True)
class Participant:
    """One of those who take part in a topic."""

    pid: int
    name: str
    role: Literal["writer", "reader", "observer"]
    user: int
    position: int
    """Reader: of the next message to read, in bytes since the topic began."""
    lag_messages: int
    lag_bytes: int
    messages: int
    """Moved since it joined."""
    bytes: int
    lost: int
    holding: bool
    """Does it keep the writers from going on beyond a ring's length?"""
    alive: bool
    waits_for: str | None
    """Writer: the name of whoever is in its way, if it is waiting."""
    joined_ns: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What is known of a topic."""

    name: str
    contract: str
    capacity: int
    used: int
    """Bytes of the ring that hold messages."""
    next_sequence: int
    epoch: int
    """Which life of the topic this is: when it was created, in nanoseconds."""
    persist: bool
    schema: Schema | None
    writers: list[Participant]
    readers: list[Participant]
    backend: backends.Backend = "shm"


def topics() -> list[TopicInfo]:
    """All topics, by name. One that cannot be read (garbage, another version) is left out; `info` says why."""
    from ringmain.backends import _elsewhere

    if backends.choose() == "fake":
        return _elsewhere.fake_topics()
    found = _elsewhere.zmq_topics()
    for name in _native.topics(_names.runtime_directory()):
        try:
            found.append(info(name))
        except (RingmainError, ValueError):
            continue
    return sorted(found, key=lambda topic: topic.name)


def info(name: str) -> TopicInfo:
    """What is known of a topic. Raises `TopicNotFound` if there is none."""
    from ringmain.backends import _elsewhere

    _names.check_topic(name)
    if backends.choose() == "fake":
        return _elsewhere.fake_info(name)
    try:
        seen = _native.inspect(_names.runtime_directory(), name)
    except TopicNotFound:
        if (found := _elsewhere.zmq_info(name)) is not None:
            return found
        raise
    names = {each["slot"]: each["name"] for each in seen["participants"]}
    participants = [_participant(each, seen, names) for each in seen["participants"]]
    schema = None
    if seen["schema"]:
        from ringmain.typed import Schema

        schema = Schema.from_bytes(seen["schema"])
    return TopicInfo(
        name=name,
        contract=seen["contract"],
        capacity=seen["capacity_bytes"],
        used=seen["used_bytes"],
        next_sequence=seen["next_sequence"],
        epoch=seen["epoch"],
        persist=seen["persist"],
        schema=schema,
        writers=[p for p in participants if p.role == "writer"],
        readers=[p for p in participants if p.role != "writer"],
    )


def _participant(record: ParticipantRecord, seen: Inspection, names: dict[int, str]) -> Participant:
    reader = record["role"] != "writer"
    blocker = record["waits_for"]  # 1 + its slot
    return Participant(
        pid=record["pid"],
        name=record["name"],
        role=record["role"],
        user=record["uid"],
        position=record["position"],
        lag_messages=max(0, seen["next_sequence"] - record["sequence"]) if reader else 0,
        lag_bytes=max(0, seen["position"] - record["position"]) if reader else 0,
        messages=record["messages"],
        bytes=record["bytes"],
        lost=record["lost"],
        holding=record["holding"],
        alive=record["alive"],
        waits_for=names.get(blocker - 1, "a reader that has not come") if blocker else None,
        joined_ns=record["joined_ns"],
    )


def unlink(name: str, *, force: bool = False) -> None:
    """Take a topic away, with whatever is in it. While somebody takes part in it, `TopicBusy`, unless forced: then its
    publishers cannot send any more, and its subscribers wait for the next topic of that name."""
    from ringmain.backends import _elsewhere

    _names.check_topic(name)
    if backends.choose() == "fake":
        _elsewhere.fake_unlink(name, force)
        return
    there = _native.unlink(_names.runtime_directory(), name, force)
    # A stream's buffers go with its topic; those that a reader still holds stay until it lets go.
    there |= _native.unlink_pool(_names.runtime_directory(), name, force)
    if not there:
        raise TopicNotFound(f"there is no topic '{name}' in {_names.runtime_directory()}")


def clean() -> list[str]:
    """Take away the topics whose participants are all dead, and only those; returns their names. Topics that persist,
    and pipes with unread messages, stay."""
    from ringmain.backends import _elsewhere

    if backends.choose() == "fake":
        return _elsewhere.fake_clean()
    directory = _names.runtime_directory()
    gone = _elsewhere.zmq_clean()
    for name in _native.topics(directory):
        try:
            if _native.unlink_if_dead(directory, name):
                gone.append(name)
        except (RingmainError, ValueError):
            continue  # not a topic we can read or may touch, or a file that only looks like one
    for name in _native.pools(directory):  # after the topics, since a stream's buffers stay as long as its topic
        with suppress(RingmainError):
            if _native.unlink_pool(directory, name, False) and name not in gone:
                gone.append(name)
    return sorted(gone)
