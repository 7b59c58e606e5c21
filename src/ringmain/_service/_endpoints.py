"""What a service needs of publishers and subscribers beside their public methods, on every backend that has `work`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _inspect, _native
from ringmain._aio import _LoopBell
from ringmain._subscriber import wait
from ringmain.errors import Full, RingmainError, Timeout

if TYPE_CHECKING:
    from ringmain._ring import TaskState

_POLL_S = 0.001
"""How often asyncio looks for room on a backend without bells."""


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


async def ready(subscribers: Sequence[Any], timeout: float) -> None:
    """For asyncio: until one of them may have a message, or the time is up."""
    if not isinstance(subscribers[0], _native.Subscriber):
        from ringmain.backends.fake import _virtual_loop

        await _virtual_loop.wait_for_message(subscribers[0], int(timeout * 1e9))
        return
    if wait(subscribers, 0):
        return
    bell = _LoopBell.of_running_loop()
    tasks = [asyncio.ensure_future(bell.until_rung(each._arm)) for each in subscribers]
    try:
        await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def room(publisher: Any, full: Full) -> None:
    """For asyncio: until there may be room."""
    if isinstance(publisher, _native.Publisher):
        await _LoopBell.of_running_loop().until_rung(publisher._arm)
    else:
        await asyncio.sleep(_POLL_S)
