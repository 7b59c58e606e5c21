"""Requests on shared memory: the native ends, and the bells of event loops."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _names, _native
from ringmain._subscriber import Subscriber, wait
from ringmain.errors import RingmainError

if TYPE_CHECKING:
    from ringmain._aio import _LoopBell
    from ringmain._publisher import Publisher
    from ringmain.backends._requests import RequestsProtocol
    from ringmain.backends.shm._futures import Futures


def _bell() -> _LoopBell:
    from ringmain._aio import _LoopBell  # asyncio takes long to import

    return _LoopBell.of_running_loop()


class ShmRequests:
    def client_end(self, publisher: Publisher, replies: Subscriber) -> _native.ClientEnd:
        return _native.ClientEnd(publisher, replies)

    def futures(self, service: str, end: _native.ClientEnd) -> Futures:
        from ringmain.backends.shm._futures import Futures  # so does concurrent.futures

        return Futures(service, end)

    def wall_ns(self, endpoint: Any) -> int:
        return time.time_ns()

    def monotonic_ns(self, endpoint: Any) -> int:
        return time.monotonic_ns()

    def borrow_many(self, subscriber: Subscriber, max_messages: int, timeout: float | None) -> list[Any]:
        return list(_native.borrow_many(subscriber, max_messages, timeout))

    def topic_names(self) -> list[str]:
        return _native.topics(_names.runtime_directory())

    def changes(self, subscriber: Subscriber) -> int | None:
        return subscriber._directory_count()

    def unlink_if_dead(self, topic: str) -> None:
        with suppress(RingmainError, ValueError):
            _native.unlink_if_dead(_names.runtime_directory(), topic)

    async def wait_for_tasks(self, end: _native.ClientEnd, replies: Subscriber, waiter: Any, timeout: float) -> None:
        await _bell().until_any_rung(lambda event: end.arm(waiter, event), timeout)

    async def wait_for_requests(self, subscribers: list[Subscriber], timeout: float) -> None:
        if wait(subscribers, 0):
            return

        def arm_all(event: _native.Event) -> list[int]:
            tokens: list[int] = []
            for subscriber in subscribers:
                if (token := subscriber._arm(event)) == 0:
                    for armed in tokens:
                        event.forget(armed)
                    return []
                tokens.append(token)
            return tokens

        try:
            await _bell().until_any_rung(arm_all, timeout)
        except BaseException:  # cancelled
            for subscriber in subscribers:
                subscriber._pass_on()
            raise

    async def wait_for_room(self, publisher: Publisher) -> None:
        await _bell().until_rung(publisher._arm)


REQUESTS: RequestsProtocol = ShmRequests()
