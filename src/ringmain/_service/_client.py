"""`Client`: sends requests to a service, and waits for the replies."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypedDict, Unpack, cast, overload

from ringmain import _names, _native, backends
from ringmain._closing import Closing
from ringmain._endpoint import close_at_exit
from ringmain._publisher import Publisher
from ringmain._service import _endpoints, _topics
from ringmain._service._draft import Draft
from ringmain._service._request import Q, R
from ringmain._service._sending import Sender, join_lane, room_s
from ringmain._subscriber import Subscriber
from ringmain.backends import Backend
from ringmain.errors import Closed

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from ringmain._service._asyncio import Pump
    from ringmain.backends._requests import CallProtocol, Done, FuturesProtocol
    from ringmain.typed import Schema

_clients: weakref.WeakSet[Client[Any, Any]] = weakref.WeakSet()


class ClientOptions(TypedDict, total=False):
    """What a client may be given besides its types."""

    capacity: int | str | None
    reply_capacity: int | str
    name: str | None
    spin: float | None
    backend: Backend | None


class Client(Closing, _native.NativeClient, Generic[Q, R]):
    """A client of a service. Its threads and tasks may share it, and have many requests under way.

    service: its name.
    request, reply: the types of the data, as `type=` of a `Publisher`; None for bytes.
    capacity: of the ring of requests, if this client makes it.   reply_capacity: of the ring of its replies: more than
        its largest reply.
    name: this participant's name.
    spin: seconds to spin before sleeping. None: adaptive, at most 20 µs.
    backend: "shm" or "fake"; None takes RINGMAIN_BACKEND, or shm.
    """

    @overload
    def __init__(self: Client[bytes, bytes], service: str, **options: Unpack[ClientOptions]) -> None: ...
    @overload
    def __init__(
        self: Client[Q, bytes], service: str, *, request: type[Q], **options: Unpack[ClientOptions]
    ) -> None: ...
    @overload
    def __init__(self: Client[bytes, R], service: str, *, reply: type[R], **options: Unpack[ClientOptions]) -> None: ...
    @overload
    def __init__(self, service: str, *, request: type[Q], reply: type[R], **options: Unpack[ClientOptions]) -> None: ...
    def __init__(
        self,
        service: str,
        *,
        request: Any = None,
        reply: Any = None,
        capacity: int | str | None = None,
        reply_capacity: int | str = 64 * 1024,
        name: str | None = None,
        spin: float | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._chosen = _topics.check_service(service, backend)
        self._backend, self._requests = backends.get(self._chosen), backends.requests(self._chosen)
        self.service = service
        self._directory = _names.runtime_directory()
        self._options: dict[str, Any] = {
            "request": request,
            "reply": reply,
            "capacity": capacity,
            "reply_capacity": reply_capacity,
            "name": name,
            "spin": spin,
            "backend": backend,
        }
        self._codec: Any = None
        if reply is not None:
            from ringmain import typed

            self._codec = typed.codec_for(reply)
        self._closed = True
        with _names.directory_as(self._directory):
            self._open()
        self._closed = False
        _clients.add(self)

    def _open(self) -> None:
        """Join a lane, and make the topic of our replies."""
        options = self._options
        self.id = _topics.new_client(options["name"])
        """What the servers see as the sender of its requests."""
        self._inherited = False
        self._futures: FuturesProtocol | None = None
        self._pumps: dict[asyncio.AbstractEventLoop, Pump] = {}
        name = _names.participant_name(options["name"])
        common: Any = {"name": name, "spin": options["spin"], "backend": self._chosen}
        lane = {"capacity": options["capacity"], "type": options["request"], "sender": self.id, **common}
        topic = _topics.replies_topic(self.service, self.id)
        capacity = options["reply_capacity"]
        requests, replies = join_lane(self.service, lane), None
        try:
            with Publisher(topic, contract="reliable", capacity=capacity, type=options["reply"], **common):
                self._replies = replies = Subscriber(topic, **common)
            self._end = self._requests.client_end(requests, replies)
        except BaseException:
            for endpoint in (replies, requests):
                if endpoint is not None:
                    endpoint.close()
            raise
        self._sender = Sender(self.service, requests, self._end)
        self._connect(self._end, None if self._codec is None else self._codec.decode)
        close_at_exit(self)

    # ------------------------------------------------------------------------------------- calling

    if TYPE_CHECKING:

        def call(
            self,
            request: Q,
            timeout: float | None = None,
            retry: bool = False,
            *,
            room_timeout: float | None = None,
            if_idle: bool = False,
        ) -> R:
            """Send a request and wait for its reply.

            `RequestFailed` if the server says so, with its reason. `ServerGone` if the server that had it died or left.
            timeout: seconds, from now, until the reply must be here; then `Timeout`, whose text says where the request
                is. One that no server has taken by then is taken back. None: no limit.
            room_timeout: of these, how long to wait while the ring of requests is full; then `Full`. None: as long as
                for the reply. 0: not at all, and `Busy`.
            if_idle: `Busy` unless a server is free to take the request at once.
            retry: if its server dies, another runs the request, perhaps a second time.
            """

    def _call_in_steps(
        self, request: Q, timeout: float | None, retry: bool, room_timeout: float | None, if_idle: bool
    ) -> R:
        """The native `call` takes this way for what is rare, and on a backend in Python."""
        return self._outcome(self._send(request, timeout, retry, room_timeout, if_idle))

    def _send(
        self,
        request: Q,
        timeout: float | None = None,
        retry: bool = False,
        room_timeout: float | None = None,
        if_idle: bool = False,
        done: Done | None = None,
        waiter: Any = None,
    ) -> CallProtocol:
        self._check_open()
        call = self._sender.new_call(timeout, retry, done, waiter)
        return self._sender.send(request, call, room_s(timeout, room_timeout), if_idle)

    def _outcome(self, call: CallProtocol) -> R:
        """Waits for it."""
        try:
            self._end.wait(call)
        finally:
            self._end.drop(call)
        return self._result(call)

    def _result(self, call: CallProtocol) -> R:
        """Decoded by who waits for it, and not by who received it and may be interrupted."""
        if call.answer != "result":
            self._raise_failure(call.answer or "late", call.payload, call.number, call.timeout)
        return cast("R", call.payload if self._codec is None else self._codec.decode(call.payload))

    def _raise_failure(self, answer: str, payload: bytes | None, number: int, timeout: float | None) -> NoReturn:
        """The native `call` uses it, too."""
        raise self._sender.failure(answer, payload or b"", number, timeout)

    def submit(
        self,
        request: Q,
        timeout: float | None = None,
        *,
        room_timeout: float | None = None,
        if_idle: bool = False,
        retry: bool = False,
    ) -> Future[R]:
        """Send a request; its reply, or the exception that `call` would raise, becomes that of the future. Waits only
        while the ring is full, and with room_timeout=0 not at all. The arguments are those of `call`."""
        self._check_open()
        if self._futures is None:
            self._futures = self._requests.futures(self.service, self._end)
        return self._futures.submit(
            lambda waiter, done: self._send(request, timeout, retry, room_timeout, if_idle, done, waiter), self._result
        )

    def map(
        self,
        requests: Iterable[Q],
        timeout: float | None = None,
        *,
        buffersize: int | None = None,
        retry: bool = False,
    ) -> Iterator[R]:
        """The replies to all requests, in their order, as `map` of a `concurrent.futures.Executor`: the requests are
        sent at once, or with `buffersize` no more than so many before their results are asked for. timeout: for all of
        them. An exception of one is raised where its result would be, and the rest is cancelled."""
        from ringmain._service._futures import map_requests

        if buffersize is not None and buffersize < 1:
            raise ValueError(f"buffersize={buffersize}: 1 or more requests, or None for all")
        self._check_open()
        return map_requests(self, requests, self._sender.new_call(timeout, retry).deadline_ns, buffersize, retry)

    async def acall(
        self,
        request: Q,
        timeout: float | None = None,
        *,
        room_timeout: float | None = None,
        if_idle: bool = False,
        retry: bool = False,
    ) -> R:
        """`call` for asyncio. A cancelled call takes its request back, or ignores the reply if a server has it."""
        from ringmain._service import _asyncio

        return cast("R", await _asyncio.call(self, request, timeout, retry, room_timeout, if_idle))

    def reserve(
        self, size: int, timeout: float | None = None, *, room_timeout: float | None = None, retry: bool = False
    ) -> Draft[R]:
        """A request of `size` bytes that is written in place: for large arrays. See `Draft`."""
        self._check_open()
        call = self._sender.new_call(timeout, retry)
        return Draft(self, self._sender.reserve(size, call, room_s(timeout, room_timeout)), call)

    def wait_for_servers(self, count: int = 1, timeout: float | None = None) -> int:
        """Wait until so many servers take requests; returns how many there are."""
        self._check_open()
        return self._sender.publisher.wait_for_readers(count, timeout)

    @property
    def reply_schema(self) -> Schema | None:
        """What the replies look like, once a server of a typed service has replied."""
        self._check_open()
        return self._replies.schema

    @property
    def in_flight(self) -> int:
        """Requests that have no reply yet."""
        return self._end.in_flight

    # ------------------------------------------------------------------------------------- closing

    def _check_open(self) -> None:
        if self._inherited:
            self._reopen()
        if self._closed:
            raise Closed(f"the client of service '{self.service}' is closed", service=self.service)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Leave the service. Calls that wait in other threads raise `Closed`."""
        if self._closed:
            return
        self._closed = True
        self._leave()

    def _leave(self) -> None:
        publisher = self._sender.publisher
        try:
            if not self._inherited:  # in a forked child, no other thread waits
                self._end.close()
            self._replies.close()
            if self._futures is not None and not self._inherited:
                self._futures.join()
        except BaseException:  # Ctrl-C has ended one of these waits
            self._replies.close()
            raise
        finally:
            publisher.close()
            if not self._inherited:
                with _names.directory_as(self._directory):
                    _endpoints.remove_if_left(publisher.topic, self._backend)

    def _reopen(self) -> None:
        """In a forked child: another client, with replies of its own."""
        self._leave()
        with _names.directory_as(self._directory):
            self._open()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self._directory, self.service, self._options)

    def __repr__(self) -> str:
        return f"<ringmain.Client '{self.service}'{' closed' if self._closed else ''}>"


def _rebuild(cls: type[Client[Q, R]], directory: str, service: str, options: dict[str, Any]) -> Client[Q, R]:
    with _names.directory_as(directory):
        return cls(service, **options)


def _after_fork() -> None:
    for client in _clients:
        client._inherited = True


os.register_at_fork(after_in_child=_after_fork)
