"""`Request`: what a server has taken, until it is answered."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ringmain._service._topics import Terms, terms_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringmain._native import Lease, Reservation
    from ringmain._service._server import Server

Q = TypeVar("Q")
R = TypeVar("R")
_UNREAD: Any = object()


class Request(Generic[Q, R]):
    """One request. Answer it with `reply` or `fail`, at any time and in any order; one that is dropped fails."""

    __slots__ = ("__weakref__", "_data", "_lease", "_server", "client", "number", "sent_ns", "taken_ns", "terms")

    def __init__(self, server: Server[Q, R], lease: Lease, taken_ns: int) -> None:
        self._server = server
        self._lease: Lease | None = lease
        self._data: Any = _UNREAD
        self.number = lease.seq
        """Its sequence number in the topic of requests."""
        self.client = lease.sender
        """Which client sent it."""
        self.sent_ns = lease.time_ns
        """When it was sent: wall clock, nanoseconds since 1970."""
        self.taken_ns = taken_ns
        self.terms: Terms = terms_of(lease.kind)

    @property
    def data(self) -> Q:
        """What the client sent, as a copy."""
        if self._data is _UNREAD:
            self._data = self._server._decode(bytes(memoryview(self._held())))
        return cast("Q", self._data)

    @contextmanager
    def borrow(self) -> Iterator[Q]:
        """What the client sent, where it lies: `with request.borrow() as array: ...`. Untyped: a read-only memoryview.
        An exception in the block fails the request."""
        try:
            yield self._held().data
        except BaseException as error:
            if self._lease is not None:
                self.fail(describe(error))
            raise

    @property
    def redelivered(self) -> int:
        """How many servers had it before, and died or gave it back. Above 0 only with `retry=True`."""
        return self._held().redelivered

    @property
    def expired(self) -> bool:
        """Has its client given up? Then no reply is awaited. Requests that expire before they are taken are skipped."""
        return self._is_expired(self._server._now())

    @property
    def answered(self) -> bool:
        return self._lease is None

    def _is_expired(self, now_ns: int) -> bool:
        limit_ns = self.terms.timeout_ns
        return limit_ns is not None and now_ns > self.sent_ns + limit_ns

    def reply(self, value: R) -> None:
        """Send the result to the client."""
        lease = self._held()
        self._server._replies.send(self.client, self.number, value)
        self._end(lease, "")

    @contextmanager
    def reserve(self, size: int) -> Iterator[Reservation]:
        """A reply of `size` bytes, written in place: sent when the block is left. An exception in it fails the
        request."""
        lease = self._held()
        try:
            with self._server._replies.reserve(self.client, self.number, size) as buffer:
                yield buffer
        except BaseException as error:
            if self._lease is not None:
                self.fail(describe(error))
            raise
        self._end(lease, "")

    def fail(self, reason: str) -> None:
        """The client's call raises `RequestFailed` with this text."""
        lease = self._held()
        self._server._replies.send_text(self.client, self.number, "failed", reason)
        self._end(lease, "failed")

    def _tell_gone(self, reason: str) -> None:
        """The client's call raises `ServerGone`. With `retry`, another server gets the request instead."""
        lease = self._held()
        if self.terms.retry and lease.redelivered < self._server._max_deliveries:
            self._server._count(self, "gone")
            self._lease = None
            lease._reject()
            return
        self._server._replies.send_text(self.client, self.number, "gone", reason)
        self._end(lease, "gone")

    def _drop(self) -> None:
        """No reply is awaited."""
        self._end(self._held(), "expired")

    def _end(self, lease: Lease, outcome: str) -> None:
        self._server._count(self, outcome)
        self._lease = None
        lease.release()

    def _held(self) -> Lease:
        if self._lease is None:
            raise ValueError(f"request {self.number} of service '{self._server.service}' is answered already")
        return self._lease

    def __del__(self) -> None:
        if getattr(self, "_lease", None) is not None and not self._server.closed:
            self.fail("the server dropped the request without an answer")

    def __repr__(self) -> str:
        state = "answered" if self.answered else "open"
        return f"<ringmain.Request {self.number} of '{self._server.service}' from '{self.client}', {state}>"


def describe(error: BaseException) -> str:
    """`ValueError: no such model`, for the client."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
