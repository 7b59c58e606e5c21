"""Requests in an event loop. A module of its own, since `asyncio` takes long to import."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ringmain import _native
from ringmain._aio import _LoopBell
from ringmain._service._calls import Call
from ringmain._subscriber import wait
from ringmain.errors import Closed, Full

_SLICE_S = 0.1
"""How long a client waits for replies before it looks whether its requests are still to be answered."""
_POLL_S = 0.01
"""How often a task looks for its reply while a thread receives for all."""
_ROOM_S = 0.001
"""How often it looks for room on a backend without bells."""


async def call(client: Any, request: Any, timeout: float | None, retry: bool) -> Any:
    """`Client.acall`."""
    client._check_open()
    client._go_slow()
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    start_s = loop.time()
    while True:
        try:
            done = settles_in_loop(future, loop)
            call = client._send(request, timeout, retry, done, if_idle=True, waits=False)
            break
        except Full as full:
            if timeout is not None and loop.time() - start_s >= timeout:
                raise
            await _room(client._publisher, full)
    if loop not in client._pumps or client._pumps[loop].done():
        client._pumps[loop] = loop.create_task(_pump(client))
    try:
        async with asyncio.timeout(timeout or None):
            await future
    except TimeoutError:
        if not call.finished:
            raise client._timed_out(call) from None
    finally:
        client._calls.drop(call)
    return call.outcome()


async def _pump(client: Any) -> None:
    """Receives for the tasks of one loop, while any wait."""
    with suppress(Closed):
        while len(client._calls):
            if client._reading or client._thread is not None:  # a thread receives, for all
                await asyncio.sleep(_POLL_S)
            elif not client._receive(0):
                await ready([client._replies], _SLICE_S)
                if not client._receive(0):
                    client._give_up_lost(client._calls.all())


def settles_in_loop(future: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> Callable[[Call], None]:
    """For `Call.done`: wakes the task, also from another thread."""
    owner = threading.get_ident()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def done(call: Call) -> None:
        if threading.get_ident() == owner:
            wake()
        else:
            loop.call_soon_threadsafe(wake)

    return done


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


async def _room(publisher: Any, full: Full) -> None:
    """For asyncio: until there may be room."""
    if isinstance(publisher, _native.Publisher):
        await _LoopBell.of_running_loop().until_rung(publisher._arm)
    else:
        await asyncio.sleep(_ROOM_S)
