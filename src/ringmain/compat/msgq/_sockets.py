"""msgq's sockets and poller: `broadcast` topics named `msgq/<endpoint>`.

Sockets may be used after a fork: the child takes a slot of its own, and a publisher's endpoint is then the child's."""

from __future__ import annotations

import time
from typing import Any, Generic, TypeVar

from ringmain import Publisher, Subscriber, wait
from ringmain.compat._names import text
from ringmain.compat.msgq._endpoints import topic_of
from ringmain.compat.msgq._events import SocketEventHandle, events_of
from ringmain.errors import RingmainError, TakenOver, Timeout, TopicMismatch

NO_TRAVERSAL_LIMIT = 2**64 - 1
DEFAULT_SEGMENT_BYTES = 4 * 1024 * 1024
_LOCAL = ("127.0.0.1", "localhost", "")
E = TypeVar("E", Publisher, Subscriber)


class IpcError(Exception):
    """A socket failed. Its cause is ringmain's own error, which says why."""

    def __init__(self, endpoint: str | bytes | None = None, reason: str = "") -> None:
        at = f" with {text(endpoint)}" if endpoint else ""
        super().__init__(f"Messaging failure{at}: {reason}")
        self._arguments = (endpoint, reason)

    def __reduce__(self) -> tuple[Any, ...]:  # so that it can be sent from another process
        return type(self), self._arguments


class MultiplePublishersError(IpcError):
    """Another publisher has taken over the endpoint."""


class Context:
    """Has no state: it exists because programs pass one."""

    def term(self) -> None: ...


def _ipc_error(endpoint: str | bytes, error: Exception) -> IpcError:
    kind = MultiplePublishersError if isinstance(error, TakenOver) else IpcError
    return kind(endpoint, str(error))


class _Socket(Generic[E]):
    """What both kinds of sockets have: an endpoint, and ringmain's publisher or subscriber while connected."""

    _end: E | None = None
    _endpoint: str | bytes = ""

    def _begin_connect(self, context: Context, endpoint: str | bytes) -> None:
        # Checked, because a program that passes the endpoint first would take over another endpoint's publisher.
        if not isinstance(context, Context):
            raise TypeError(f"connect(context, endpoint, ...): the first is a Context, not {context!r}")
        self.close()
        self._endpoint = endpoint

    def _connected(self) -> E:
        if self._end is None:
            raise IpcError(self._endpoint, "the socket is not connected")
        return self._end

    def close(self) -> None:
        if self._end is not None:
            self._end.close()
            self._end = None

    def __del__(self) -> None:
        self.close()


class PubSocket(_Socket[Publisher]):
    """The publisher of an endpoint. A second one takes over, and the next send of the first raises."""

    def connect(self, context: Context, endpoint: str | bytes, segment_size: int = 0) -> None:
        self._begin_connect(context, endpoint)
        try:
            self._end = _take_over(topic_of(endpoint), segment_size or DEFAULT_SEGMENT_BYTES)
        except (RingmainError, ValueError) as error:
            raise _ipc_error(endpoint, error) from error

    def send(self, data: bytes) -> None:
        try:
            self._connected().send(data)
        except RingmainError as error:
            raise _ipc_error(self._endpoint, error) from error

    def all_readers_updated(self) -> bool:
        """Are there readers, and have all of them read everything that was sent?"""
        publisher = self._connected()
        return publisher.wait_for_readers(0) > 0 and publisher.all_read

    def wait_for_readers(self, timeout: float = 1.0, interval: float = 0.001) -> None:
        """Wait until `all_readers_updated`, checking every `interval` seconds; `TimeoutError` when the time is up."""
        deadline = time.monotonic() + timeout
        while not self.all_readers_updated():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no reader of '{text(self._endpoint)}' has read everything within {timeout:g} s")
            time.sleep(interval)


def _take_over(topic: str, capacity: int) -> Publisher:
    try:
        return Publisher(topic, contract="broadcast", capacity=capacity, takeover=True)
    except TopicMismatch:  # a live publisher made it with another size, and it has readers
        return Publisher(topic, contract="broadcast", takeover=True)


class SubSocket(_Socket[Subscriber]):
    """A reader of an endpoint, which may not have a publisher yet."""

    _timeout: float | None = None
    _events: SocketEventHandle | None = None

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        address: str | bytes = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
    ) -> None:
        self._begin_connect(context, endpoint)
        if text(address) not in _LOCAL:
            reason = f"address {text(address)!r} is another machine: use ringmain with backend='zmq', or rm.bridge"
            raise IpcError(endpoint, reason)
        self._events = events_of(endpoint)
        try:
            self._end = Subscriber(topic_of(endpoint), conflate=conflate, on_lap="next")
        except (RingmainError, ValueError) as error:
            raise _ipc_error(endpoint, error) from error

    def setTimeout(self, timeout: int) -> None:
        """Milliseconds that `receive` waits; negative: without limit."""
        self._timeout = None if timeout < 0 else timeout / 1000

    def receive(self, non_blocking: bool = False) -> bytes | None:
        """The next message, or None if none came in time."""
        subscriber = self._connected()
        if self._events is not None:
            self._events.pass_through()
        try:
            data: bytes | None = subscriber.try_recv() if non_blocking else subscriber.recv(self._timeout)
        except Timeout:
            return None
        except RingmainError as error:
            raise _ipc_error(self._endpoint, error) from error
        return data


class Poller:
    """Waits for several sockets at once."""

    def __init__(self) -> None:
        self._sockets: list[SubSocket] = []

    def registerSocket(self, socket: SubSocket) -> None:
        self._sockets.append(socket)

    def poll(self, timeout: int) -> list[SubSocket]:
        """The sockets with a message; waits up to `timeout` milliseconds, without limit if negative. With fake events,
        returns all of them at once: `receive` waits instead."""
        if any(socket._events is not None for socket in self._sockets):
            return list(self._sockets)
        by_subscriber = {socket._connected(): socket for socket in self._sockets}
        if not by_subscriber:
            time.sleep(max(timeout, 0) / 1000)
            return []
        return [by_subscriber[s] for s in wait(list(by_subscriber), None if timeout < 0 else timeout / 1000)]


context = Context()


def pub_sock(endpoint: str | bytes, segment_size: int = 0) -> PubSocket:
    socket = PubSocket()
    socket.connect(context, endpoint, segment_size)
    return socket


def sub_sock(
    endpoint: str | bytes,
    poller: Poller | None = None,
    addr: str | bytes = "127.0.0.1",
    conflate: bool = False,
    timeout: int | None = None,
    segment_size: int = 0,
) -> SubSocket:
    socket = SubSocket()
    socket.connect(context, endpoint, addr, conflate, segment_size)
    if timeout is not None:
        socket.setTimeout(timeout)
    if poller is not None:
        poller.registerSocket(socket)
    return socket


def drain_sock_raw(sock: SubSocket, wait_for_one: bool = False) -> list[bytes]:
    """All available messages; with `wait_for_one`, at least one."""
    taken: list[bytes] = []
    while (data := sock.receive(non_blocking=not (wait_for_one and not taken))) is not None:
        taken.append(data)
    return taken
