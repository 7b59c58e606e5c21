"""Waiting in an asyncio loop: no polling, no thread for each call, one descriptor for all waiting tasks of a loop.

A loop has one `_LoopBell`: an eventfd that the loop watches. A task that must wait arms a watch on the word in shared
memory whose change it awaits (`Subscriber._arm`, `Publisher._arm`). A native thread sleeps on all watched words, and
the eventfd returns the tokens of those that changed. This only wakes the task: it takes the message itself, in one
step. So a cancelled task has taken no message, and none is lost.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ringmain import _native
from ringmain.errors import Full, Timeout

if TYPE_CHECKING:
    from ringmain._message import Message
    from ringmain._publisher import Publisher
    from ringmain._subscriber import Subscriber

T = TypeVar("T")
R = TypeVar("R")

_bells: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopBell] = weakref.WeakKeyDictionary()

_FAIR_SHARE = 64
"""Messages a task may take without waiting before it lets other tasks run."""


class _LoopBell:
    """The event that a loop waits on, and the future of each token."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._event = _native.Event()
        self._futures: dict[int, asyncio.Future[None]] = {}
        self._loop = weakref.ref(loop)
        loop.add_reader(self._event.fileno(), self._rang)

    @classmethod
    def of_running_loop(cls) -> _LoopBell:
        loop = asyncio.get_running_loop()
        bell = _bells.get(loop)
        if bell is None:
            bell = _bells[loop] = cls(loop)
        return bell

    def _rang(self) -> None:
        for token in self._event.take():
            future = self._futures.pop(token, None)
            if future is not None and not future.done():
                future.set_result(None)

    async def until_rung(self, arm: Callable[[_native.Event], int]) -> None:
        """Wait for one change of what `arm` arms; return at once if it has changed already (token 0)."""
        token = arm(self._event)
        if token == 0:
            return
        future = asyncio.get_running_loop().create_future()
        self._futures[token] = future
        try:
            await future
        finally:
            if self._futures.pop(token, None) is not None:
                self._event.forget(token)

    async def until_any_rung(self, arm: Callable[[_native.Event], list[int]], timeout: float) -> None:
        """The same of several changes, and no longer than for the timeout. No tokens: there was one already."""
        tokens = arm(self._event)
        if not tokens:
            return
        future = asyncio.get_running_loop().create_future()
        self._futures.update(dict.fromkeys(tokens, future))
        try:
            await asyncio.wait([future], timeout=timeout)
        finally:
            for token in tokens:
                if self._futures.pop(token, None) is not None:
                    self._event.forget(token)


def _has_had_its_share(end: Subscriber[Any] | Publisher) -> bool:
    """After so many messages without a wait other tasks are to run."""
    end._in_a_row = (end._in_a_row + 1) % _FAIR_SHARE
    return end._in_a_row == 0


async def receive(sub: Subscriber[T], timeout: float | None) -> Message[T]:
    """The next message; `Timeout` if there is none in time."""
    if _has_had_its_share(sub):
        # Before taking, not after: a task that is cancelled here has taken no message.
        await asyncio.sleep(0)
    message = sub.try_recv_message()
    if message is not None:
        return message
    bell = _LoopBell.of_running_loop()
    try:
        async with asyncio.timeout(timeout):
            while message is None:
                await bell.until_rung(sub._arm)
                message = sub.try_recv_message()
    except TimeoutError:
        # A message may have come just when the time was up.
        message = sub.try_recv_message()
        if message is None:
            sub._raise_timeout(timeout)
    except asyncio.CancelledError:
        sub._pass_on()
        raise
    return message


async def until_changed(sub: Subscriber[Any], timeout: float | None) -> None:
    """Until there may be a message, or the time is up. It takes none."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            await _LoopBell.of_running_loop().until_rung(sub._arm)


async def send(pub: Publisher, data: Any, kind: str, timeout: float | None) -> int:
    """Send, waiting for room without blocking the loop."""

    async def until_changed() -> None:
        await _LoopBell.of_running_loop().until_rung(pub._arm)

    if _has_had_its_share(pub):
        await asyncio.sleep(0)
    return await with_room(lambda: pub.send(data, kind, 0), until_changed, timeout)


async def with_room(send: Callable[[], R], until_changed: Callable[[], Awaitable[None]], timeout: float | None) -> R:
    """What `send` returns once it does not raise `Full`. It is tried whenever there may be room."""
    full: Full | None = None
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return send()
                except Full as error:
                    full = error
                await until_changed()
    except TimeoutError as error:
        if full is None or isinstance(error, Timeout):
            raise
        full.timeout = timeout
        try:
            raise full from None
        finally:
            del full  # its traceback has this frame: a cycle would keep the sender alive
