"""`Request`: what a server has taken, until it is answered."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ringmain import _native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringmain._native import Reservation
    from ringmain._service._server import Server

Q = TypeVar("Q")
R = TypeVar("R")
REPLIED, FAILED, GONE, EXPIRED = range(4)
"""Outcomes, as the native module counts them."""


class Request(_native.NativeRequest, Generic[Q, R]):
    """One request. Answer it with `reply` or `fail`, at any time and in any order; one that is dropped fails.

    The native type has what is hot: `data` (what the client sent, as a copy), `reply(value)`, `number` (its sequence
    number in the topic of requests), `client`, `sent_ns` and `taken_ns` (wall clock), `deadline_ns` (as
    `time.monotonic_ns()`; None: no limit), `retry`, `answered`, and `redelivered` (how many servers had it before:
    above 0 only with `retry=True`).
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def data(self) -> Q: ...
        def reply(self, value: R, /) -> None: ...

    @classmethod
    def of_lease(cls, server: Server[Q, R], lease: Any, taken_ns: int, begun_ns: int) -> Request[Q, R]:
        """Where requests come from several lanes, or from a backend in Python. When it was taken, by the wall clock
        and by the monotonic one."""
        request: Request[Q, R] = cls.__new__(cls)
        request._bind(
            server,
            lease,
            lease.seq,
            lease.sender,
            lease.extension,
            lease.time_ns,
            lease.redelivered,
            taken_ns,
            begun_ns,
        )
        return request

    def _read(self) -> Any:
        return self._server._decode(bytes(memoryview(self._view())))

    @contextmanager
    def borrow(self) -> Iterator[Q]:
        """What the client sent, where it lies: `with request.borrow() as array: ...`. Untyped: a read-only memoryview.
        An exception in the block fails the request."""
        try:
            if self._lease is not None:
                yield self._lease.data
            else:
                with self._view() as lease:
                    yield lease.data
        except BaseException as error:
            if not self.answered:
                self.fail(describe(error))
            raise

    @property
    def expired(self) -> bool:
        """Has its client given up? Then no reply is awaited. Requests that expire before they are taken are skipped."""
        return self.deadline_ns is not None and self._server._now_ns() > self.deadline_ns

    def _left_s(self) -> float | None:
        """For so long its client still waits; None: without a limit."""
        return None if self.deadline_ns is None else (self.deadline_ns - self._server._now_ns()) / 1e9

    def _reply_slow_path(self, value: R) -> None:
        """The native `reply` found no publisher, or no room."""
        self._server._replies.send(self.client, self.number, value, self._left_s())
        self._end(REPLIED)

    @contextmanager
    def reserve(self, size: int) -> Iterator[Reservation]:
        """A reply of `size` bytes, written in place: sent when the block is left. An exception in it fails the
        request."""
        self._check_open()
        try:
            with self._server._replies.reserve(self.client, self.number, size, self._left_s()) as buffer:
                yield buffer
        except BaseException as error:
            if not self.answered:
                self.fail(describe(error))
            raise
        self._end(REPLIED)

    def fail(self, reason: str) -> None:
        """The client's call raises `RequestFailed` with this text."""
        self._check_open()
        self._server._replies.send_text(self.client, self.number, "failed", reason, self._left_s())
        self._end(FAILED)

    def _tell_gone(self, reason: str) -> None:
        """The client's call raises `ServerGone`. With `retry`, another server gets the request instead."""
        if self.retry and self.redelivered < self._server._max_deliveries:
            self._end(GONE, gives_back=True)
            return
        self._server._replies.send_text(self.client, self.number, "gone", reason, self._left_s())
        self._end(GONE)

    def _end(self, outcome: int, gives_back: bool = False) -> None:
        lease = self._lease
        self._finish(outcome, gives_back)
        if lease is not None:
            (lease._reject if gives_back else lease.release)()

    def _check_open(self) -> None:
        if self.answered:
            raise ValueError(f"request {self.number} is answered already")

    def __repr__(self) -> str:
        state = "answered" if self.answered else "open"
        return f"<ringmain.Request {self.number} of '{self._server.service}' from '{self.client}', {state}>"


def describe(error: BaseException) -> str:
    """`ValueError: no such model`, for the client."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
