"""`fake()`: opens a fake world, in which a program under test runs without a change.

Owns this invariant: what is replaced while the world is open (the starting and joining of threads, the clocks and
`sleep` of the module `time`, new event loops) is restored when it closes, and threads outside the world still get the
originals. What a program imported before under another name (`from time import sleep`) is not replaced.
"""

from __future__ import annotations

import asyncio
import asyncio.events
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ringmain import backends
from ringmain.backends.fake import _world as worlds
from ringmain.backends.fake._virtual_loop import VirtualLoop
from ringmain.backends.fake._world import World

JOIN_LIMIT_S = 10.0
"""How long threads may take to end after their world has ended."""


@contextmanager
def fake(seed: int = 0, *, patience_s: float = 60.0) -> Iterator[World]:
    """A world of topics in this process alone: publishers and subscribers made inside the block belong to it.

    The same seed gives the same run. Threads take turns, time is virtual: see `World` for the clock and the faults.
    patience_s: real seconds that a thread may run without calling ringmain; then it is an error.
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
        _join_all(left)


def _join_all(threads: list[threading.Thread]) -> None:
    deadline = time.monotonic() + JOIN_LIMIT_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = [thread.name for thread in threads if thread.is_alive()]
    if late:
        raise RuntimeError(f"threads {late} still run although their fake world has ended; join them before it does")


def _replace(world: World) -> Callable[[], None]:
    """Replace the functions that a program waits with and reads the time from; returns what restores them."""
    real_start, real_join, real_new_loop = threading.Thread.start, threading.Thread.join, asyncio.events.new_event_loop

    def of_this_world() -> bool:
        return world.knows(threading.current_thread())

    def start(thread: threading.Thread) -> None:
        if of_this_world():
            world.enter()
            world.adopt(thread)
            thread.run = _in_turn(world, thread.run)  # type: ignore[method-assign]
        real_start(thread)

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        if of_this_world() and world.knows(thread):
            timeout_ns = None if timeout is None else max(0, int(timeout * 1e9))
            if not world.wait(lambda: not world.knows(thread), timeout_ns, f"thread {thread.name!r} to end"):
                return
        real_join(thread, timeout)

    def here(virtual: Callable[..., Any], real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: virtual(*args) if of_this_world() else real(*args)

    new_loop = here(lambda: VirtualLoop(world), real_new_loop)
    clock: dict[str, Callable[..., Any]] = {
        "sleep": world.sleep,
        "time": lambda: world.now_ns / 1e9,
        "time_ns": lambda: world.now_ns,
        "monotonic": lambda: world.monotonic_ns / 1e9,
        "monotonic_ns": lambda: world.monotonic_ns,
    }
    replacements: list[tuple[Any, str, Any]] = [
        (threading.Thread, "start", start),
        (threading.Thread, "join", join),
        (asyncio.events, "new_event_loop", new_loop),
        (asyncio, "new_event_loop", new_loop),
        *((time, name, here(virtual, getattr(time, name))) for name, virtual in clock.items()),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in replacements]
    for owner, name, replacement in replacements:
        setattr(owner, name, replacement)

    def undo() -> None:
        for owner, name, original in originals:
            setattr(owner, name, original)

    return undo


def _in_turn(world: World, run: Callable[[], None]) -> Callable[[], None]:
    def run_in_turn() -> None:
        try:
            world.enter()
            run()
        finally:
            world.leave()

    return run_in_turn
