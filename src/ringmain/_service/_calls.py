"""`Calls`: the requests of a client that have no reply yet, and who waits for each.

Owns this invariant: a reply is given to the call that it is for, whichever thread or task receives it. A number is
known only when its request was sent, and its reply may be received by another thread before that: so a reply with a
number above all that are known waits for its call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ringmain._service._topics import Outcome, answer_of
from ringmain.errors import RequestFailed, RingmainError, ServerGone


class Call:
    """A request that was sent. `done` is called with the result or the error, once."""

    __slots__ = ("deadline_s", "decode", "done", "error", "finished", "number", "payload", "retry", "timeout")

    def __init__(self, timeout: float | None, deadline_s: float | None, retry: bool) -> None:
        self.number = -1
        self.timeout = timeout
        self.deadline_s = deadline_s
        self.retry = retry
        self.finished = False
        self.payload = b""
        self.decode: Callable[[bytes], Any] = bytes
        self.error: BaseException | None = None
        self.done: Callable[[Call], None] | None = None

    def finish(self, payload: bytes, error: BaseException | None) -> None:
        self.payload, self.error, self.finished = payload, error, True
        if self.done is not None:
            self.done(self)

    def outcome(self) -> Any:
        """Decodes the reply: that is done by who waits for it, and not by who received it and may be interrupted."""
        if self.error is not None:
            raise self.error
        return self.decode(self.payload)


class Calls:
    """By number."""

    def __init__(self, service: str, decode: Callable[[bytes], Any]) -> None:
        self._service, self._decode = service, decode
        self._waiting: dict[int, Call] = {}
        self._early: dict[int, tuple[Outcome, bytes]] = {}
        self._newest = -1
        self.sending = threading.Lock()
        """Held while a request is sent, so that their numbers become known in order."""

    def __len__(self) -> int:
        return len(self._waiting)

    def all(self) -> list[Call]:
        return list(self._waiting.values())

    def add(self, call: Call, number: int) -> None:
        """Inside `sending`."""
        call.number, call.decode = number, self._decode
        self._waiting[number] = call
        self._newest = number
        if self._early:
            early = self._early.get(number)
            self._early.clear()  # what else is there was sent by no server of ours
            if early is not None and self._waiting.pop(number, None) is not None:
                self._finish(call, *early)

    def drop(self, call: Call) -> None:
        """No one waits for it any more: its reply, if one comes, is ignored."""
        self._waiting.pop(call.number, None)

    def give(self, kind: str, payload: bytes) -> None:
        """A reply has come."""
        answer = answer_of(kind)
        if answer is None:
            return
        if answer.number > self._newest:
            self._early[answer.number] = answer.outcome, payload
        call = self._waiting.pop(answer.number, None)  # also if it became known just now
        if call is not None:
            self._finish(call, answer.outcome, payload)

    def _finish(self, call: Call, outcome: Outcome, payload: bytes) -> None:
        if outcome:
            text = payload.decode(errors="replace")
            kind: type[RingmainError] = RequestFailed if outcome == "failed" else ServerGone
            text = f"service '{self._service}': {text}" if outcome == "gone" else text
            call.finish(b"", kind(text, service=self._service))
        else:
            call.finish(payload, None)

    def fail(self, call: Call, error: BaseException) -> None:
        if self._waiting.pop(call.number, None) is not None:
            call.finish(b"", error)

    def fail_all(self, error: Callable[[], BaseException]) -> None:
        for call in self.all():
            self.fail(call, error())
