"""`fake()`: opens a fake world, so that a program under test runs in it without a change.

Owns this invariant: what is replaced while the world is open (the starting and joining of threads, `time.sleep`, new
event loops) is back in place when it closes, and threads that are not of the world notice nothing.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ringmain import backends
from ringmain.testing import world as worlds
from ringmain.testing.loop import VirtualLoop
from ringmain.testing.world import World

LAST_WORDS_S = 10.0
"""How long threads that were told the end of the world may take to end."""


@contextmanager
def fake(seed: int = 0, *, patience_s: float = 60.0) -> Iterator[World]:
    """A world of topics in this process alone: publishers and subscribers made inside of it are the fake's.

    The same seed gives the same run. Threads take turns, time is virtual: see `World` for the clock and the faults.
    patience_s: real seconds that a thread may keep the turn without calling ringmain, before that is an error.
    """
    world = World(seed, patience_s)
    worlds.push(world)
    backends.default.append("fake")
    undo = _replace(world)
    try:
        yield world
    finally:
        undo()
        backends.default.remove("fake")
        left = world.end()
        worlds.pop(world)
        _wait_for_the_last(left)


def _wait_for_the_last(threads: list[threading.Thread]) -> None:
    deadline = time.monotonic() + LAST_WORDS_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = [thread.name for thread in threads if thread.is_alive()]
    if late:
        raise RuntimeError(f"threads {late} still run although their fake world has ended; join them before it does")


def _replace(world: World) -> Any:
    real_start, real_join, real_sleep = threading.Thread.start, threading.Thread.join, time.sleep
    real_new_loop = asyncio.events.new_event_loop

    def of_this_world() -> bool:
        return world.knows(threading.current_thread())

    def start(thread: threading.Thread) -> None:
        if of_this_world():
            world.enter()
            world.adopt(thread)
            run = thread.run

            def run_in_turn() -> None:
                try:
                    world.enter()
                    run()
                finally:
                    world.leave()

            thread.run = run_in_turn  # type: ignore[method-assign]
        real_start(thread)

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        if of_this_world() and world.knows(thread):
            timeout_ns = None if timeout is None else max(0, int(timeout * 1e9))
            if not world.wait(lambda: not world.knows(thread), timeout_ns, f"thread {thread.name!r} to end"):
                return
        real_join(thread, timeout)

    def sleep(seconds: float) -> None:
        if of_this_world():
            world.sleep(seconds)
        else:
            real_sleep(seconds)

    def new_event_loop() -> asyncio.AbstractEventLoop:
        return VirtualLoop(world) if of_this_world() else real_new_loop()

    def put(start: Any, join: Any, sleep: Any, new_loop: Any) -> None:
        threading.Thread.start, threading.Thread.join = start, join  # type: ignore[method-assign]
        time.sleep = sleep
        asyncio.events.new_event_loop = asyncio.new_event_loop = new_loop

    put(start, join, sleep, new_event_loop)
    return lambda: put(real_start, real_join, real_sleep, real_new_loop)
