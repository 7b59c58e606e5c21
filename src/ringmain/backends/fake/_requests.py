"""Requests in a fake world: the client's end in Python.

There is no thread of futures, which a world of virtual time cannot have: a future receives its reply when it is asked
for its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _extension
from ringmain._service import _topics
from ringmain.backends import get
from ringmain.backends.fake import _virtual_loop
from ringmain.errors import RingmainError, Timeout

if TYPE_CHECKING:
    from ringmain._ring import MessageState
    from ringmain.backends._requests import Done, RequestsProtocol
    from ringmain.backends.fake._publisher import FakePublisher
    from ringmain.backends.fake._subscriber import FakeSubscriber

_SLICE_S = 0.1
"""Of virtual time: how long a call waits before it looks whether its server lives."""
_ROOM_S = 0.001
"""How often a task looks for room."""
Waiter = list["FakeCall"]
"""Calls that have an answer, and are yet to be taken."""


class FakeCall:
    def __init__(
        self, timeout: float | None, deadline_ns: int | None, retry: bool, done: Done | None, waiter: Waiter | None
    ) -> None:
        self.number, self.sent, self.answer = -1, False, ""
        self.payload: bytes | None = None
        self.timeout, self.deadline_ns, self.retry = timeout, deadline_ns, retry
        self.done, self.waiter = done, waiter

    def finish(self, answer: str, payload: bytes | None = None) -> None:
        self.answer, self.payload = answer, payload
        if self.waiter is not None:
            self.waiter.append(self)
        elif self.done is not None:
            self.done(self, None)


class FakeClientEnd:
    def __init__(self, publisher: FakePublisher, replies: FakeSubscriber) -> None:
        self._publisher, self._replies = publisher, replies
        self._calls: dict[int, FakeCall] = {}
        self._early: dict[int, tuple[str, bytes]] = {}  # another thread may receive before a number is known

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    def _now_ns(self) -> int:
        return self._publisher._world.monotonic_ns

    def new_call(
        self, timeout: float | None, retry: bool, done: Done | None = None, waiter: Waiter | None = None, /
    ) -> FakeCall:
        limited = timeout is not None and timeout < _topics.FOREVER_S
        deadline_ns = self._now_ns() + int(timeout * 1e9) if timeout is not None and limited else None
        return FakeCall(timeout, deadline_ns, retry, done, waiter)

    def send(self, request: Any, call: FakeCall, room_s: float | None, /) -> int:
        says: Any = _extension.of_request(call.deadline_ns, call.retry)
        return self._add(call, self._publisher.send(request, says, room_s))

    def commit(self, reservation: Any, call: FakeCall, /) -> int:
        return self._add(call, reservation.commit())

    def _add(self, call: FakeCall, number: int) -> int:
        call.number, call.sent = number, True
        if early := self._early.pop(number, None):
            call.finish(*early)
        else:
            self._calls[number] = call
        self._early.clear()
        return number

    def wait(self, call: FakeCall, /) -> None:
        while not call.answer:
            left_s = _SLICE_S if call.deadline_ns is None else (call.deadline_ns - self._now_ns()) / 1e9
            if left_s <= 0:
                return
            if not self._receive(min(left_s, _SLICE_S)):
                self._give_up_lost()

    def _receive(self, timeout: float) -> bool:
        """Give a reply to its call. False: there was none."""
        try:
            lease = self._replies.borrow(timeout=timeout)
        except Timeout:
            return False
        extension, payload = lease.extension, bytes(memoryview(lease))
        lease.release()
        if answer := _extension.answer_of(extension):
            found = answer.outcome or "result", payload
            if call := self._calls.pop(answer.number, None):
                call.finish(*found)
            else:
                self._early[answer.number] = found
        return True

    def _give_up_lost(self) -> None:
        for number, call in list(self._calls.items()):
            if not call.retry and self.request_state(number) in ("returned", "orphaned"):
                while self._receive(0):  # it may have replied before it died
                    pass
                if self._calls.pop(number, None):
                    call.finish("lost")

    def drop(self, call: FakeCall, /) -> None:
        self._calls.pop(call.number, None)

    def request_state(self, number: int, /) -> MessageState:
        return self._publisher._message_state(number)

    def withdraw(self, number: int, /) -> None:
        with suppress(RingmainError):
            self._publisher._withdraw([number])

    def new_waiter(self) -> Waiter:
        return []

    def receive_now(self, waiter: Waiter, looks: bool, /) -> list[FakeCall]:
        while self._receive(0):
            pass
        if looks:
            self._give_up_lost()
        found = waiter.copy()
        waiter.clear()
        return found

    def forget(self, waiter: Waiter, /) -> list[FakeCall]:
        in_flight = [call for call in self._calls.values() if call.waiter is waiter]
        for call in in_flight:
            self.drop(call)
        found = waiter.copy()
        waiter.clear()
        return in_flight + found

    def close(self) -> None:
        for call in self._calls.values():
            call.finish("closed")
        self._calls.clear()


class DrivenFuture(Future[Any]):
    """`result` receives the reply."""

    call: FakeCall
    drive: Callable[[], None]

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self.drive()
        return super().result(0)


class Futures:
    def __init__(self, end: FakeClientEnd) -> None:
        self._end = end

    def submit(self, start: Callable[[Any, Done], Any], result: Callable[[Any], Any]) -> DrivenFuture:
        future = DrivenFuture()

        def done(call: FakeCall, error: BaseException | None) -> None:
            if future.set_running_or_notify_cancel():
                try:
                    value = result(call)
                except Exception as raised:
                    future.set_exception(raised)
                else:
                    future.set_result(value)

        def drive() -> None:
            self._end.wait(call)
            if not future.done():  # it is late
                self._end.drop(call)
                done(call, None)

        call = start(None, done)
        future.drive = drive
        return future

    def join(self) -> None:
        pass


class FakeRequests:
    def client_end(self, publisher: FakePublisher, replies: FakeSubscriber) -> FakeClientEnd:
        return FakeClientEnd(publisher, replies)

    def futures(self, service: str, end: FakeClientEnd) -> Futures:
        return Futures(end)

    def wall_ns(self, endpoint: Any) -> int:
        return int(endpoint._world.now_ns)

    def monotonic_ns(self, endpoint: Any) -> int:
        return int(endpoint._world.monotonic_ns)

    def borrow_many(self, subscriber: FakeSubscriber, max_messages: int, timeout: float | None) -> list[Any]:
        found: list[Any] = []
        with suppress(Timeout):
            while len(found) < max_messages:
                found.append(subscriber.borrow(timeout=0 if found else timeout))
        return found

    def topic_names(self) -> list[str]:
        return [topic.name for topic in get("fake").topics()]

    def changes(self, subscriber: FakeSubscriber) -> int | None:
        return None

    def unlink_if_dead(self, topic: str) -> None:
        pass

    async def wait_for_tasks(self, end: FakeClientEnd, replies: FakeSubscriber, waiter: Waiter, timeout: float) -> None:
        await _virtual_loop.wait_for_message(replies, int(timeout * 1e9))

    async def wait_for_requests(self, subscribers: list[FakeSubscriber], timeout: float) -> None:
        await _virtual_loop.wait_for_message(subscribers[0], int(timeout * 1e9))

    async def wait_for_room(self, publisher: FakePublisher) -> None:
        await asyncio.sleep(_ROOM_S)


REQUESTS: RequestsProtocol = FakeRequests()
