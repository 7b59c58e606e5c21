"""Requests in an event loop. A module of its own, since `asyncio` takes long to import."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ringmain import _native
from ringmain._aio import _LoopBell, with_room
from ringmain._service import _sending
from ringmain._service._calls import Call
from ringmain._service._receiving import SLICE_S
from ringmain._subscriber import wait
from ringmain.errors import Closed

_POLL_S = 0.01
"""How often a task looks for its reply while a thread receives for all."""
_ROOM_S = 0.001
"""How often it looks for room on a backend without bells."""


async def call(
    client: Any, request: Any, timeout: float | None, retry: bool, room_timeout: float | None, if_idle: bool
) -> Any:
    """`Client.acall`."""
    client._check_open()
    client._allow_fast_path(False)
    sender, receiver = client._sender, client._receiver
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    done = settles_in_loop(future, loop)
    call = sender.new_call(timeout, retry, done)
    room_s = _sending.room_s(call, room_timeout)
    await with_room(
        lambda: sender.send(request, call, room_s, if_idle, waits=False), lambda: _room(sender.publisher), room_s
    )
    _start_pump(client, loop)
    receiver.notify()  # a thread that receives for all may not know of this call yet
    try:
        async with asyncio.timeout(None if call.deadline_s is None else call.deadline_s - sender.clock_s()):
            await future
    except TimeoutError:
        if not call.finished:
            raise sender.timed_out(call) from None
    except asyncio.CancelledError:
        sender.withdraw(call)
        raise
    finally:
        client._calls.drop(call)
    return call.outcome()


def _start_pump(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    pumps = client._pumps
    for other in [each for each in pumps if each.is_closed()]:
        del pumps[other]
    if loop not in pumps or pumps[loop].done():
        pumps[loop] = loop.create_task(_pump(client))
        pumps[loop].add_done_callback(lambda task: pumps.get(loop) is task and pumps.pop(loop))


async def _pump(client: Any) -> None:
    """Receives for the tasks of one loop, while any wait."""
    receiver = client._receiver
    with suppress(Closed):
        while len(client._calls):
            if receiver.has_thread:
                await asyncio.sleep(_POLL_S)
            elif not receiver.receive(0):
                await ready([receiver.replies], SLICE_S)
                if not receiver.receive(0):
                    receiver.give_up_lost(client._calls.all())


def settles_in_loop(future: asyncio.Future[None], loop: asyncio.AbstractEventLoop) -> Callable[[Call], None]:
    """For `Call.done`: wakes the task, also from another thread."""
    owner = threading.get_ident()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    def done(call: Call) -> None:
        try:
            if threading.get_ident() == owner:
                wake()
            else:
                loop.call_soon_threadsafe(wake)
        except RuntimeError:
            if not loop.is_closed():  # otherwise no task waits there any more
                raise

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


async def _room(publisher: Any) -> None:
    """For asyncio: until there may be room."""
    if isinstance(publisher, _native.Publisher):
        await _LoopBell.of_running_loop().until_rung(publisher._arm)
    else:
        await asyncio.sleep(_ROOM_S)
