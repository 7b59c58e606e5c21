"""An asyncio event loop on the clock of a fake world.

Owns this invariant: the loop never sleeps in real time. When it is idle it waits in the world like any thread, so
`asyncio.sleep`, `wait_for` and timeouts take no time, and other threads of the program get their turn.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from typing import TYPE_CHECKING

from ringmain.backends.fake._world import World

if TYPE_CHECKING:
    from ringmain.backends.fake._subscriber import FakeSubscriber


class VirtualLoop(asyncio.SelectorEventLoop):
    """Made by `asyncio.run` inside of `ringmain.testing.fake()`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[tuple[FakeSubscriber, asyncio.Future[None]]] = []
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.world.monotonic_ns / 1e9

    def has_message(self) -> bool:
        return any(subscriber.has_message() for subscriber, _ in self.waiting)

    def wake(self) -> bool:
        """Wake the coroutines whose subscriber has something to read. Were there any?"""
        able = [(subscriber, future) for subscriber, future in self.waiting if subscriber.has_message()]
        for subscriber, future in able:
            self.waiting.remove((subscriber, future))
            _wake(future)
        return bool(able)


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if self._loop.wake() or ready or (timeout is not None and timeout <= 0):
            self._loop.world.pause()
            return ready
        timeout_ns = None if timeout is None else math.ceil(timeout * 1e9) + 1
        self._loop.world.wait(self._is_due, timeout_ns, "something to do in its event loop")
        self._loop.wake()
        return super().select(0)

    def _is_due(self) -> bool:
        return self._loop.has_message() or bool(super().select(0))


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def wait_for_message(subscriber: FakeSubscriber, timeout_ns: int | None) -> None:
    """Until the subscriber has something to read, or the time is up."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualLoop):
        raise RuntimeError(
            "this event loop runs on the real clock, and the fake's topics on a virtual one: start it with "
            "asyncio.run() inside of `with ringmain.testing.fake()`"
        )
    future: asyncio.Future[None] = loop.create_future()
    entry = (subscriber, future)
    loop.waiting.append(entry)
    alarm = None if timeout_ns is None else loop.call_later(timeout_ns / 1e9, _wake, future)
    try:
        await future
    finally:
        if alarm is not None:
            alarm.cancel()
        if entry in loop.waiting:
            loop.waiting.remove(entry)
