"""What a service needs of publishers and subscribers beside their public methods, on every backend that has `work`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _inspect, _names, _native, backends
from ringmain._service._topics import lane_number
from ringmain.errors import RingmainError, Timeout

if TYPE_CHECKING:
    from ringmain._inspect import TopicInfo
    from ringmain._ring import MessageState


def borrow_many(subscriber: Any, max_messages: int, timeout: float | None) -> list[Any]:
    """Leases of the messages that are there. Waits, if at all, only for the first."""
    if isinstance(subscriber, _native.Subscriber):
        return list(_native.borrow_many(subscriber, max_messages, timeout))
    found: list[Any] = []
    with suppress(Timeout):
        while len(found) < max_messages:
            found.append(subscriber.borrow(timeout=0 if found else timeout))
    return found


def message_state(publisher: Any, seq: int) -> MessageState:
    """What has become of a message on `work`."""
    if isinstance(publisher, _native.Publisher):
        return _native.message_state(publisher, seq)
    state: MessageState = publisher._message_state(seq)
    return state


def withdraw(publisher: Any, seqs: list[int]) -> None:
    """Take messages on `work` back that no worker has taken: their room is free again."""
    with suppress(RingmainError):  # of a topic that was removed or is full of participants: then they stay
        if isinstance(publisher, _native.Publisher):
            _native.withdraw(publisher, seqs)
        else:
            publisher._withdraw(seqs)


def wall_ns(endpoint: Any) -> int:
    """By the clock that its messages' times are of: for people."""
    world = getattr(endpoint, "_world", None)
    return time.time_ns() if world is None else int(world.now_ns)


def monotonic_ns(endpoint: Any) -> int:
    """For intervals and deadlines: a clock that runs as its waits do, and that no one sets."""
    world = getattr(endpoint, "_world", None)
    return time.monotonic_ns() if world is None else int(world.monotonic_ns)


def has_readers(publisher: Any) -> bool:
    """Does a living reader take part?"""
    try:
        publisher.wait_for_readers(1, timeout=0)
    except RingmainError:
        return False
    return True


def lanes_of(service: str) -> list[TopicInfo]:
    """The topics that its clients send to, the first lane first. Lanes in between may be missing: the clients of each
    come and go."""
    # By name first: of thousands of topics, most are of replies.
    names = (
        _native.topics(_names.runtime_directory())
        if backends.choose() == "shm"
        else [topic.name for topic in _inspect.topics()]
    )
    numbers = {lane: name for name in names if (lane := lane_number(service, name)) is not None}
    found: list[TopicInfo] = []
    for lane in sorted(numbers):
        with suppress(RingmainError, ValueError):  # removed meanwhile, or not a topic that can be read
            found.append(_inspect.info(numbers[lane]))
    return [topic for topic in found if topic.contract == "work"]


def remove_if_left(topic: str, backend: backends.BackendProtocol) -> None:
    """Requests of clients that are all gone are for no process: if none takes part any more, remove the topic.

    The caller keeps its backend from when it was opened: at the end of the interpreter, none can be imported.
    """
    with suppress(RingmainError, OSError):
        there = backend.info(topic)
        if not any(each.alive for each in (*there.writers, *there.readers)):
            backend.unlink(topic, force=False)
