"""What a service needs of publishers and subscribers beside their public methods, on every backend that has `work`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _inspect, _native
from ringmain.errors import RingmainError, Timeout

if TYPE_CHECKING:
    from ringmain._ring import TaskState


def borrow_many(subscriber: Any, max_messages: int, timeout: float | None) -> list[Any]:
    """Leases of the messages that are there. Waits, if at all, only for the first."""
    if isinstance(subscriber, _native.Subscriber):
        return list(_native.borrow_many(subscriber, max_messages, timeout))
    found: list[Any] = []
    with suppress(Timeout):
        while len(found) < max_messages:
            found.append(subscriber.borrow(timeout=0 if found else timeout))
    return found


def task_state(publisher: Any, seq: int) -> TaskState:
    """What has become of a message on `work`."""
    if isinstance(publisher, _native.Publisher):
        return _native.task_state(publisher, seq)
    state: TaskState = publisher._task_state(seq)
    return state


def now_ns(endpoint: Any) -> int:
    """By the clock that its messages' times are of."""
    world = getattr(endpoint, "_world", None)
    return time.time_ns() if world is None else int(world.now_ns)


def clock_s(endpoint: Any) -> float:
    """For deadlines: a clock that runs as its waits do."""
    world = getattr(endpoint, "_world", None)
    return time.monotonic() if world is None else world.now_ns / 1e9


def has_readers(publisher: Any) -> bool:
    """Does a living reader take part?"""
    try:
        publisher.wait_for_readers(1, timeout=0)
    except RingmainError:
        return False
    return True


def remove_if_left(topic: str) -> None:
    """Requests of clients that are all gone are for no process: if none takes part any more, remove the topic."""
    with suppress(RingmainError, OSError):
        there = _inspect.info(topic)
        if not any(each.alive for each in (*there.writers, *there.readers)):
            _inspect.unlink(topic)
