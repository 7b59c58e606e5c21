"""Requests in an event loop. A module of its own, since `asyncio` takes long to import."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ringmain._aio import with_room
from ringmain._service import _sending
from ringmain.errors import Closed

_SLICE_S = 0.1
"""So often the tasks of a loop look for servers that died."""


async def call(
    client: Any, request: Any, timeout: float | None, retry: bool, room_timeout: float | None, if_idle: bool
) -> Any:
    """`Client.acall`."""
    client._check_open()
    sender, end, requests = client._sender, client._end, client._requests
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(_: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(None) if error is None else future.set_exception(error)

    pump = _pump_of(client)
    call = sender.new_call(timeout, retry, done, pump.waiter)
    room_s = _sending.room_s(timeout, room_timeout)
    await with_room(
        lambda: sender.send(request, call, room_s, if_idle, waits=False),
        lambda: requests.wait_for_room(sender.publisher),
        room_s,
    )
    pump.add_task()
    try:
        left_ns = None if call.deadline_ns is None else call.deadline_ns - requests.monotonic_ns(client._replies)
        async with asyncio.timeout(None if left_ns is None else left_ns / 1e9):
            await future
    except TimeoutError:
        if not call.answer:
            raise sender.failure("late", b"", call.number, timeout) from None
    except asyncio.CancelledError:
        sender.withdraw(call.number)
        raise
    finally:
        end.drop(call)
        pump.waiting -= 1
    return client._result(call)


def _pump_of(client: Any) -> Pump:
    """Of the running loop."""
    loop = asyncio.get_running_loop()
    pumps = client._pumps
    for other in [each for each in pumps if each.is_closed()]:
        client._end.forget(pumps.pop(other).waiter)
    if loop not in pumps:
        pumps[loop] = Pump(client)
    found: Pump = pumps[loop]
    return found


class Pump:
    """Receives for the tasks of one loop, while any wait and no thread receives for all."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.waiter = client._end.new_waiter()
        self.waiting = 0
        self._task: asyncio.Task[None] | None = None

    def add_task(self) -> None:
        self.waiting += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        end, requests, loop = self._client._end, self._client._requests, asyncio.get_running_loop()
        looked_s = loop.time()
        try:
            while self.waiting:
                if looks := loop.time() - looked_s > _SLICE_S:
                    looked_s = loop.time()
                found = end.receive_now(self.waiter, looks)
                for call in found:
                    call.done(call, None)
                if not found:
                    await requests.wait_for_tasks(end, self._client._replies, self.waiter, _SLICE_S)
                elif self.waiting:
                    await asyncio.sleep(0)  # those that have their replies go on
            end.forget(self.waiter)  # replies that a thread received for tasks that were cancelled or late
        except BaseException as error:
            with suppress(Closed):
                for call in end.forget(self.waiter):
                    call.done(call, error)
            if not isinstance(error, Closed):
                raise
        finally:
            self._client._pumps.pop(loop, None)
