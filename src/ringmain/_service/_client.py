"""`Client`: sends requests to a service, and waits for the replies."""

from __future__ import annotations

import itertools
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypedDict, Unpack, cast, overload

from ringmain import _inspect, _names, _native
from ringmain._closing import Closing
from ringmain._publisher import Publisher
from ringmain._service import _endpoints, _topics
from ringmain._service._calls import Call, Calls
from ringmain._service._draft import Draft
from ringmain._service._request import Q, R
from ringmain._service._service_info import why_no_reply
from ringmain._subscriber import Subscriber
from ringmain.backends import Backend
from ringmain.errors import Busy, Closed, Full, RosterFull, ServerGone, Timeout, TopicNotFound

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from ringmain.typed import Schema

_FIRST_SLICE_S, _SLICE_S = 0.01, 0.1
"""How long a client waits for replies before it looks whether its requests are still to be answered."""
_AT_ONCE = 64
"""Replies that are received in one call."""

_clients: weakref.WeakSet[Client[Any, Any]] = weakref.WeakSet()


class ClientOptions(TypedDict, total=False):
    """What a client may be given besides its types."""

    capacity: int | str | None
    reply_capacity: int | str
    name: str | None
    spin: float | None
    backend: Backend | None


class Client(Closing, _native.Caller, Generic[Q, R]):
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
        self._calls = Calls(self.service, self._decode)
        self._adopted: dict[int, Call] = {}
        self._turn = threading.Condition()
        self._reading = False  # does a thread receive for all?
        self._followers = 0
        self._thread: threading.Thread | None = None
        self._pumps: dict[asyncio.AbstractEventLoop, asyncio.Task[None]] = {}
        name = _names.participant_name(options["name"])
        common: Any = {"name": name, "spin": options["spin"], "backend": self._chosen}
        self._publisher = self._join_lane(common)
        replies = _topics.replies_topic(self.service, self.id)
        capacity = options["reply_capacity"]
        try:
            with Publisher(replies, contract="reliable", capacity=capacity, type=options["reply"], **common):
                self._replies = Subscriber(replies, **common)
        except BaseException:
            self._publisher.close()
            raise
        decode = None if self._codec is None else self._codec.decode
        self._connect(self._publisher, self._replies, decode, True)

    def _join_lane(self, common: Any) -> Publisher:
        options = self._options
        for lane in itertools.count(1):
            topic = _topics.lane_topic(self.service, lane)
            try:
                writers = _inspect.info(topic).writers
            except TopicNotFound:
                writers = []
            if sum(writer.alive for writer in writers) >= _topics.CLIENTS_PER_LANE:
                continue
            try:
                return Publisher(
                    topic,
                    contract="work",
                    capacity=options["capacity"],
                    type=options["request"],
                    sender=self.id,
                    **common,
                )
            except RosterFull:
                continue
        raise AssertionError("itertools.count has no end")

    def _decode(self, payload: bytes) -> Any:
        return payload if self._codec is None else self._codec.decode(payload)

    # ------------------------------------------------------------------------------------- calling

    if TYPE_CHECKING:

        def call(self, request: Q, timeout: float | None = None, retry: bool = False) -> R:
            """Send a request and wait for its reply.

            `RequestFailed` if the server says so, with its reason. `ServerGone` if the server that had it died or left.
            `Timeout` if no reply comes in time: the text says where the request is. timeout=0: `Busy` unless a server
            is free to take it at once; the reply is then waited for without a limit.
            retry: if its server dies, another runs the request, perhaps a second time.
            """

    def _call(self, request: Q, timeout: float | None, retry: bool) -> R:
        """The native `call` takes this way if another thread or task uses the client, and for what is rare."""
        return self._outcome(self._send(request, timeout, retry, if_idle=True))

    def _add_call(self, number: int, timeout: float | None, waited_ns: int) -> None:
        """The native `call` has sent a request, and its reply was not the next message within its first slice."""
        deadline_s = None if timeout is None else self._clock_s() + timeout - waited_ns / 1e9
        self._adopted[number] = call = Call(timeout, deadline_s, False)
        self._calls.add(call, number)

    def _rest_of_call(self, number: int) -> R:
        return self._outcome(self._adopted.pop(number))

    def _drop_call(self, number: int) -> None:
        """The native `call` was interrupted."""
        self._calls.drop(self._adopted.pop(number))

    def _go_slow(self) -> None:
        """From now on other threads or tasks receive replies: every call must be on the list."""
        self._connect(self._publisher, self._replies, None, False)

    def submit(self, request: Q, timeout: float | None = None, *, retry: bool = False) -> Future[R]:
        """Send a request; its reply, or the exception that `call` would raise, becomes that of the future. Waits only
        while the ring is full. timeout=0: `Busy` if there is no room; then without a limit."""
        from ringmain._service._futures import DrivenFuture, Future, settles

        self._check_open()
        self._go_slow()
        future: Future[R] = DrivenFuture(self) if self._chosen == "fake" else Future()
        call = self._send(request, timeout, retry, settles(future))
        if isinstance(future, DrivenFuture):
            future.call = call
        else:
            self._start_thread()
        return future

    async def acall(self, request: Q, timeout: float | None = None, *, retry: bool = False) -> R:
        """`call` for asyncio. A cancelled call leaves its request to the server, and ignores the reply."""
        from ringmain._service import _tasks

        return cast("R", await _tasks.call(self, request, timeout, retry))

    def reserve(self, size: int, timeout: float | None = None, *, retry: bool = False) -> Draft[R]:
        """A request of `size` bytes that is written in place: for large arrays. See `Draft`."""
        self._check_open()
        kind = _topics.kind_of_request(timeout, retry)
        reservation = self._publisher.reserve(size, kind=kind, timeout=timeout)
        return Draft(self, reservation, Call(timeout, self._deadline_s(timeout), retry))

    def wait_for_servers(self, count: int = 1, timeout: float | None = None) -> int:
        """Wait until so many servers take requests; returns how many there are."""
        self._check_open()
        return self._publisher.wait_for_readers(count, timeout)

    @property
    def reply_schema(self) -> Schema | None:
        """What the replies look like, once a server of a typed service has replied."""
        self._check_open()
        return self._replies.schema

    @property
    def in_flight(self) -> int:
        """Requests that have no reply yet."""
        return len(self._calls)

    # ------------------------------------------------------------------------------------- sending

    def _check_open(self) -> None:
        if self._inherited:
            self._reopen()
        if self._closed:
            raise Closed(f"the client of service '{self.service}' is closed")

    def _clock_s(self) -> float:
        return _endpoints.clock_s(self._publisher)

    def _deadline_s(self, timeout: float | None) -> float | None:
        return None if not timeout else self._clock_s() + timeout

    def _send(
        self,
        request: Q,
        timeout: float | None,
        retry: bool,
        done: Callable[[Call], None] | None = None,
        *,
        if_idle: bool = False,
        waits: bool = True,
    ) -> Call:
        """`waits`: for room. With a timeout of 0 it does not wait, and raises `Busy`."""
        self._check_open()
        call = Call(timeout, self._deadline_s(timeout), retry)
        call.done = done
        kind = _topics.kind_of_request(timeout or None, retry)
        if if_idle and timeout == 0:
            self._check_idle()
        with self._calls.sending:
            try:
                number = self._publisher.send(request, kind, timeout if waits else 0)
            except Full as full:
                if timeout != 0:
                    raise
                raise Busy(f"service '{self.service}' is busy: {full}") from None
            self._calls.add(call, number)
        return call

    def _check_idle(self) -> None:
        there = _inspect.info(self._publisher.topic)
        servers = [worker for worker in there.readers if worker.alive and worker.role == "reader"]
        if there.waiting == 0 and any(server.taken == 0 for server in servers):
            return
        taken = sum(server.taken for server in servers)
        raise Busy(
            f"service '{self.service}' is busy: {len(servers)} servers have {taken} requests, and {there.waiting} wait"
            if servers
            else f"service '{self.service}' has no server"
        )

    # ----------------------------------------------------------------------------------- receiving

    def _outcome(self, call: Call) -> R:
        """Wait for the reply. One thread receives for all that wait: this one, if no other does."""
        try:
            while not call.finished and not self._is_late(call):
                with self._turn:
                    receives = not self._reading and self._thread is None
                    if receives:
                        self._reading = True
                    elif not call.finished:
                        self._followers += 1
                        self._turn.notify_all()  # the thread may not know of this call yet
                        self._turn.wait(min(_SLICE_S, self._left_s(call)))
                        self._followers -= 1
                if receives:
                    try:
                        self._receive_for(call)
                    finally:
                        with self._turn:
                            self._reading = False
                            self._turn.notify_all()
            if not call.finished:
                raise self._timed_out(call)
        finally:
            self._calls.drop(call)
        return cast("R", call.outcome())

    def _left_s(self, call: Call) -> float:
        """Until it is late, but no more than a slice."""
        return _SLICE_S if call.deadline_s is None else min(_SLICE_S, max(0.0, call.deadline_s - self._clock_s()))

    def _is_late(self, call: Call) -> bool:
        return call.deadline_s is not None and self._clock_s() >= call.deadline_s

    def _receive_for(self, call: Call) -> None:
        slice_s = _FIRST_SLICE_S
        while not call.finished and not self._is_late(call):
            if not self._receive(min(slice_s, self._left_s(call))):
                slice_s = min(2 * slice_s, _SLICE_S)
                self._give_up_lost([call])

    def _receive(self, timeout: float) -> bool:
        """Give replies to their calls. False: there was none."""
        leases = _endpoints.borrow_many(self._replies, _AT_ONCE, timeout)
        for lease in leases:
            kind, payload = lease.kind, bytes(memoryview(lease))
            lease.release()
            self._calls.give(kind, payload)
        if leases and self._followers:
            with self._turn:
                self._turn.notify_all()
        return bool(leases)

    def _give_up_lost(self, calls: list[Call]) -> None:
        """`ServerGone` for calls whose server died: no other will run them."""
        for call in calls:
            if call.retry or call.finished:
                continue
            if _endpoints.task_state(self._publisher, call.number) in ("returned", "orphaned"):
                self._receive(0)  # it may have replied before it died
                gone = f"service '{self.service}': the server that had the request died, or left without an answer"
                self._calls.fail(call, ServerGone(gone))

    def _timed_out(self, call: Call) -> Timeout:
        state = _endpoints.task_state(self._publisher, call.number)
        reason = why_no_reply(self.service, self._publisher.topic, state)
        return Timeout(f"no reply of service '{self.service}' within {call.timeout:g} s: {reason}")

    # ------------------------------------------------------------------------- a thread, or asyncio

    def _start_thread(self) -> None:
        with self._turn:
            if self._thread is None:
                name = f"ringmain replies of '{self.service}'"
                self._thread = threading.Thread(target=self._receive_in_thread, name=name, daemon=True)
                self._thread.start()
            self._turn.notify_all()

    def _receive_in_thread(self) -> None:
        """For the futures of `submit`."""
        with suppress(Closed):
            while not self._closed:
                with self._turn:
                    self._turn.wait_for(lambda: self._closed or (len(self._calls) and not self._reading))
                calls = self._calls.all()
                if not self._receive(min((self._left_s(call) for call in calls), default=0.0)):
                    self._give_up_lost(calls)
                    self._give_up_late(calls)

    def _give_up_late(self, calls: list[Call]) -> None:
        for call in calls:
            if self._is_late(call) and call.done is not None and call.deadline_s is not None:
                self._calls.fail(call, self._timed_out(call))

    # ------------------------------------------------------------------------------------- closing

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Leave the service. Calls that wait in other threads raise `Closed`."""
        if self._closed:
            return
        self._closed = True
        self._go_slow()
        if not self._inherited:
            self._calls.fail_all(lambda: Closed(f"the client of service '{self.service}' was closed"))
        with self._turn:
            self._turn.notify_all()
        self._leave()

    def _leave(self) -> None:
        self._replies.close()
        if self._thread is not None and self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()
        topic = self._publisher.topic
        self._publisher.close()
        if not self._inherited:
            with _names.directory_as(self._directory):
                _endpoints.remove_if_left(topic)

    def _reopen(self) -> None:
        """In a forked child: another client, with replies of its own."""
        self._thread = None
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
        client._go_slow()


os.register_at_fork(after_in_child=_after_fork)
