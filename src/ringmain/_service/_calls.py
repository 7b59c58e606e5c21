"""`Calls`: the requests of a client that have no reply yet, and who waits for each.

Owns this invariant: a reply is given to the call that it is for, whichever thread or task receives it. A number is
known only when its request was sent, and its reply may be received by another thread before that: so a reply with an
unknown number waits for the lock that is held while a request is sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ringmain._service._topics import Outcome, answer_of
from ringmain.errors import RequestFailed, RingmainError, ServerGone


class Call:
    """A request that was sent. `done` is called with the result or the error, once."""

    __slots__ = ("deadline_s", "done", "error", "finished", "number", "result", "retry", "timeout")

    def __init__(self, timeout: float | None, deadline_s: float | None, retry: bool) -> None:
        self.number = -1
        self.timeout = timeout
        self.deadline_s = deadline_s
        self.retry = retry
        self.finished = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.done: Callable[[Call], None] | None = None

    def finish(self, result: Any, error: BaseException | None) -> None:
        self.result, self.error, self.finished = result, error, True
        if self.done is not None:
            self.done(self)

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class Calls:
    """By number."""

    def __init__(self, service: str, decode: Callable[[bytes], Any]) -> None:
        self._service, self._decode = service, decode
        self._waiting: dict[int, Call] = {}
        self.sending = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def all(self) -> list[Call]:
        return list(self._waiting.values())

    def add(self, call: Call, number: int) -> None:
        """Inside `sending`."""
        call.number = number
        self._waiting[number] = call

    def drop(self, call: Call) -> None:
        """No one waits for it any more: its reply, if one comes, is ignored."""
        self._waiting.pop(call.number, None)

    def give(self, kind: str, payload: bytes) -> None:
        """A reply has come."""
        answer = answer_of(kind)
        if answer is None:
            return
        call = self._waiting.pop(answer.number, None)
        if call is None:
            with self.sending:
                call = self._waiting.pop(answer.number, None)
        if call is not None:
            self._finish(call, answer.outcome, payload)

    def _finish(self, call: Call, outcome: Outcome, payload: bytes) -> None:
        if outcome:
            text = payload.decode(errors="replace")
            kind: type[RingmainError] = RequestFailed if outcome == "failed" else ServerGone
            call.finish(None, kind(f"service '{self._service}': {text}" if outcome == "gone" else text))
            return
        try:
            result = self._decode(payload)
        except Exception as error:
            call.finish(None, error)
        else:
            call.finish(result, None)

    def fail(self, call: Call, error: BaseException) -> None:
        if self._waiting.pop(call.number, None) is not None:
            call.finish(None, error)

    def fail_all(self, error: Callable[[], BaseException]) -> None:
        for call in self.all():
            self.fail(call, error())
