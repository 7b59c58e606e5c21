"""Requests as futures. A module of its own, since `concurrent.futures` takes long to import."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from ringmain._service._calls import Call

__all__ = ["DrivenFuture", "Future", "settles"]

R = TypeVar("R")


def settles(future: Future[Any]) -> Callable[[Call], None]:
    """For `Call.done`: the future gets the outcome, unless it was cancelled."""

    def done(call: Call) -> None:
        if not future.set_running_or_notify_cancel():
            return
        if call.error is not None:
            future.set_exception(call.error)
        else:
            future.set_result(call.result)

    return done


class DrivenFuture(Future[R]):
    """A future of the fake backend, which has no threads of its own: `result` receives the reply."""

    def __init__(self, client: Any) -> None:
        super().__init__()
        self._client = client
        self.call: Call | None = None

    def result(self, timeout: float | None = None) -> R:
        if self.call is not None and not self.done():
            with suppress(Exception):  # it becomes this future's own
                self._client._outcome(self.call)
        return super().result(0)
