"""`Server`: takes requests, one or many at a time, and answers them."""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, overload

from ringmain import _names, _native, backends
from ringmain._closing import Closing
from ringmain._service._lanes import SLICE_S, Lanes
from ringmain._service._replies import Replies
from ringmain._service._report import Reporter
from ringmain._service._request import EXPIRED, Q, R, Request, describe
from ringmain._service._topics import check_service
from ringmain.backends import Backend
from ringmain.errors import Closed

_FORGET_EVERY, _REMOVE_EVERY = 10, 100
"""Of the rounds, which are a slice apart: how often a server looks for clients that died."""

_servers: weakref.WeakSet[Server[Any, Any]] = weakref.WeakSet()


class ServerOptions(TypedDict, total=False):
    """What a server may be given besides its types."""

    capacity: int | str | None
    name: str | None
    max_deliveries: int
    spin: float | None
    backend: Backend | None


class Server(Closing, _native.NativeServer, Generic[Q, R]):
    """One server of a service. Several processes may serve the same one: each request goes to one of them.

    service: its name.
    request, reply: the types of the data, as `type=` of a `Publisher`; None for bytes.
    capacity: of the ring of requests, if this server makes it.   name: this participant's name.
    max_deliveries: a request with `retry=True` that so many servers died with is given up: `ServerGone`. From 1 to 15.
    spin: seconds to spin before sleeping. None: adaptive, at most 20 µs.
    backend: "shm" or "fake"; None takes RINGMAIN_BACKEND, or shm.
    """

    @overload
    def __init__(self: Server[bytes, bytes], service: str, **options: Unpack[ServerOptions]) -> None: ...
    @overload
    def __init__(
        self: Server[Q, bytes], service: str, *, request: type[Q], **options: Unpack[ServerOptions]
    ) -> None: ...
    @overload
    def __init__(self: Server[bytes, R], service: str, *, reply: type[R], **options: Unpack[ServerOptions]) -> None: ...
    @overload
    def __init__(self, service: str, *, request: type[Q], reply: type[R], **options: Unpack[ServerOptions]) -> None: ...
    def __init__(
        self,
        service: str,
        *,
        request: Any = None,
        reply: Any = None,
        capacity: int | str | None = None,
        name: str | None = None,
        max_deliveries: int = 3,
        spin: float | None = None,
        backend: Backend | None = None,
    ) -> None:
        chosen = check_service(service, backend)
        self._requests = backends.requests(chosen)
        self.service = service
        self._directory = _names.runtime_directory()
        self._options: dict[str, Any] = {
            "request": request,
            "reply": reply,
            "capacity": capacity,
            "name": name,
            "max_deliveries": max_deliveries,
            "spin": spin,
            "backend": backend,
        }
        self._max_deliveries = _names.check_max_deliveries(max_deliveries)
        self._codec: Any = None
        if request is not None:
            from ringmain import typed

            self._codec = typed.codec_for(request)
        # When a request is taken, so that one that does not decode ends no loop. Not where decoding copies much, which
        # a handler that borrows spares itself.
        self._decodes = self._codec is not None and not self._codec.keeps_views
        self._upkeep_ns = self._rounds = 0
        self._inherited = False
        own_name = _names.participant_name(name)
        self._lanes = Lanes(service, request, capacity, {"name": own_name, "spin": spin, "backend": chosen})
        self._replies = Replies(service, reply, chosen, self._arm, self._clock_s)
        self._arm()
        types = (type_name(request), type_name(reply))
        self._reporter = Reporter(service, own_name, os.getpid(), types, chosen)
        _servers.add(self)

    # ------------------------------------------------------------------------------------- taking

    if TYPE_CHECKING:

        def __next__(self) -> Request[Q, R]: ...
        def _unanswered(self) -> list[Request[Q, R]]: ...

    def _next(self) -> Request[Q, R]:
        """The native `__next__` calls it where requests come from several lanes, or from a backend in Python."""
        try:
            while True:
                if found := self._take(1, SLICE_S):
                    return found[0]
        except Closed:
            if not self.closed:  # of something else, raised by a signal handler
                raise
            raise StopIteration from None

    def batches(self, max_requests: int = 64, wait_s: float = 0.0) -> Iterator[list[Request[Q, R]]]:
        """Lists of requests: each as soon as it has `max_requests`, or `wait_s` after its first."""
        if max_requests < 1 or wait_s < 0:
            raise ValueError(f"batches(max_requests={max_requests}, wait_s={wait_s}): at least 1, and at least 0 s")
        for first in self:
            batch = [first]
            deadline_s = self._clock_s() + wait_s
            try:
                while len(batch) < max_requests:
                    left_s = max(0.0, deadline_s - self._clock_s()) if wait_s else 0.0
                    batch += self._take(max_requests - len(batch), left_s)
                    if left_s <= 0:
                        break
            except Closed:
                if not self.closed:
                    raise
                return
            yield batch

    def serve(self, handler: Callable[[Q], R]) -> None:
        """Answer each request with what `handler` returns for its data, until the server is closed. An exception of the
        handler fails the request, and the next one follows."""
        for request in self:
            try:
                request.reply(handler(request.data))
            except Exception as error:
                _fail(request, error)

    def serve_batches(
        self, handler: Callable[[list[Q]], Iterable[R | Exception]], max_requests: int = 64, wait_s: float = 0.0
    ) -> None:
        """Answer requests, many at a time, until the server is closed: `handler` gets the data of a batch (see
        `batches`), and returns a reply for each, in that order. An exception in the place of a reply fails that
        request.

        If the handler raises, it is called again with each request of that batch alone, so that only those fail for
        which it raises again. A request whose data does not decode fails, and the handler does not see it.
        """
        for batch in self.batches(max_requests, wait_s):
            _answer_batch([request for request in batch if _is_readable(request)], handler)

    def take(self, max_requests: int = 1, timeout: float | None = None) -> list[Request[Q, R]]:
        """The requests that are there, up to `max_requests`. Waits, if at all, only for the first; the list is empty if
        none comes in time."""
        deadline_s = None if timeout is None else self._clock_s() + timeout
        while True:
            left_s = SLICE_S if deadline_s is None else deadline_s - self._clock_s()
            found = self._take(max_requests, min(max(left_s, 0.0), SLICE_S))
            if found or left_s <= 0:
                return found

    def __aiter__(self) -> AsyncIterator[Request[Q, R]]:
        return self

    async def __anext__(self) -> Request[Q, R]:
        try:
            while True:
                self._begin_round()
                if found := self._of_leases(await self._lanes.atake(1, SLICE_S)):
                    return found[0]
        except Closed:
            if not self.closed:
                raise
            raise StopAsyncIteration from None

    def _take(self, most: int, timeout: float) -> list[Request[Q, R]]:
        self._begin_round()
        if (pause_s := self._replies.pause_s) is not None:
            timeout = min(timeout, pause_s)
        if self._one_lane:
            return self._take_requests(most, timeout)
        return self._of_leases(self._lanes.take(most, timeout))

    def _of_leases(self, leases: list[Any]) -> list[Request[Q, R]]:
        taken_ns, begun_ns = self._requests.wall_ns(self._lanes.subscribers[0]), self._now_ns()
        requests = [Request.of_lease(self, lease, taken_ns, begun_ns) for lease in leases]
        return [request for request in requests if self._is_to_be_computed(request)]

    def _is_to_be_computed(self, request: Request[Q, R]) -> bool:
        """Not if its client has given up, a server died with it, or its data does not decode."""
        if request.redelivered and (not request.retry or request.redelivered >= self._max_deliveries):
            request._tell_gone("the server that had the request died, or left without an answer")
        elif request.expired:
            request._end(EXPIRED)
        elif self._decodes:
            _is_readable(request)
        return not request.answered

    def _dropped(self, client: str, number: int) -> None:
        self._replies.send_text(client, number, "failed", "the server dropped the request without an answer")

    def _arm(self) -> None:
        """Tell the native module where requests come from and replies go, and whether anything else is due."""
        lanes = self._lanes.subscribers
        pause_s = self._replies.pause_s
        round_ns = 0 if self._inherited else int(1e9 * (SLICE_S if pause_s is None else pause_s))
        subscriber = lanes[0] if len(lanes) == 1 else None
        self._one_lane = self._set_up(subscriber, Request, self._replies.publishers, round_ns, self._decodes)

    def _begin_round(self) -> None:
        """What is due besides requests."""
        if self._inherited:
            self._reopen()
        if self._replies.pause_s is not None:
            self._replies.send_unsent()
            self._arm()
        now_ns = self._now_ns()
        if now_ns < self._upkeep_ns:
            return
        self._upkeep_ns = now_ns + int(SLICE_S * 1e9)
        if self._lanes.closed:
            return
        self._lanes.look_for_more()
        self._arm()
        self._reporter.report_if_due(now_ns, self._statistics, self._replies.dropped)
        self._rounds += 1
        if self._rounds % _FORGET_EVERY == 0:
            self._replies.forget_dead()
        if self._rounds % _REMOVE_EVERY == 0:
            self._replies.remove_left()

    def _decode(self, payload: bytes) -> Any:
        return payload if self._codec is None else self._codec.decode(payload)

    def _now_ns(self) -> int:
        return self._requests.monotonic_ns(self._lanes.subscribers[0])

    def _clock_s(self) -> float:
        return self._now_ns() / 1e9

    # ------------------------------------------------------------------------------------ closing

    @property
    def closed(self) -> bool:
        return self._lanes.closed

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An exception fails the requests that were taken and not answered. Ctrl-C does not: those are as of a server
        that dies."""
        if isinstance(error, Exception):
            for request in self._unanswered():
                request.fail(describe(error))
        self.close()

    def close(self) -> None:
        """Leave the service. Requests that were taken and not answered go to another server (`retry=True`), or their
        clients get `ServerGone`; those that were not taken stay for the next server."""
        if self.closed:
            return
        if not self._inherited:
            for request in self._unanswered():
                request._tell_gone("the server was closed before it answered")
            self._replies.send_unsent()
        self._replies.close()
        self._reporter.close()
        self._lanes.close()

    def _reopen(self) -> None:
        """In a forked child: the requests that were taken, and the publishers, are the parent's."""
        self._inherited = False
        for request in self._unanswered():
            request._abandon()
        self._replies.abandon()
        self._reporter.restart(_names.participant_name(self._options["name"]), os.getpid())
        self._arm()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._directory, self.service, self._options)

    def __repr__(self) -> str:
        return f"<ringmain.Server '{self.service}'{' closed' if self.closed else ''}>"


def _fail(request: Request[Any, Any], error: Exception) -> None:
    if request.answered:  # raised by a signal handler, after the reply
        raise error
    request.fail(describe(error))


def _is_readable(request: Request[Any, Any]) -> bool:
    try:
        request.data  # noqa: B018 -- decodes it
    except Exception as error:
        _fail(request, error)
    return not request.answered


def _answer_batch(batch: list[Request[Q, R]], handler: Callable[[list[Q]], Iterable[R | Exception]]) -> None:
    if not batch:
        return
    try:
        replies = list(handler([request.data for request in batch]))
        if len(replies) != len(batch):
            raise ValueError(f"the handler returned {len(replies)} replies to {len(batch)} requests")
    except Exception as error:
        if len(batch) == 1:
            batch[0].fail(describe(error))
        else:
            for request in batch:
                _answer_batch([request], handler)
        return
    for request, reply in zip(batch, replies, strict=True):
        try:
            if isinstance(reply, Exception):
                request.fail(describe(reply))
            else:
                request.reply(reply)
        except Exception as error:
            _fail(request, error)


def type_name(type_: Any) -> str:
    return "" if type_ is None else getattr(type_, "__name__", str(type_))


def _rebuild(cls: type[Server[Q, R]], directory: str, service: str, options: dict[str, Any]) -> Server[Q, R]:
    with _names.directory_as(directory):
        return cls(service, **options)


def _after_fork() -> None:
    for server in _servers:
        server._inherited = True
        server._arm()


os.register_at_fork(after_in_child=_after_fork)
