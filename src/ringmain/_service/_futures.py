"""Requests as futures. A module of its own, since `concurrent.futures` takes long to import."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

from ringmain._service._calls import Call

__all__ = ["DrivenFuture", "Future", "map_requests", "settles"]

R = TypeVar("R")
_SHORTEST_S = 1e-6
"""What is sent after the time is up is late at once."""


def settles(future: Future[Any]) -> Callable[[Call], None]:
    """For `Call.done`: the future gets the outcome, unless it was cancelled."""

    def done(call: Call) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            result = call.outcome()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    return done


class DrivenFuture(Future[R]):
    """A future of the fake backend, which has no threads of its own: `result` receives the reply."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client
        self.call: Call | None = None

    def result(self, timeout: float | None = None) -> R:
        if self.call is not None and not self.done():
            try:
                self._client._outcome(self.call)
            except Exception as error:  # what its reply says is this future's own already; that it is late is not
                if not self.done():
                    self.set_exception(error)
        return super().result(0)


def map_requests(
    client: Any, requests: Iterable[Any], deadline_s: float | None, buffersize: int | None, retry: bool
) -> Iterator[Any]:
    """`Client.map`. Requests are sent now, and further ones as results are asked for, not only once the first is."""
    source, sent = iter(requests), deque[Future[Any]]()

    def send_more() -> None:
        for request in islice(source, None if buffersize is None else buffersize - len(sent)):
            left_s = None if deadline_s is None else max(deadline_s - client._sender.clock_s(), _SHORTEST_S)
            sent.append(client.submit(request, left_s, retry=retry))

    def results() -> Iterator[Any]:
        try:
            while sent:
                result = sent.popleft().result()
                send_more()
                yield result
        finally:
            for future in sent:
                future.cancel()

    send_more()
    return results()
