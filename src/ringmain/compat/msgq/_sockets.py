"""msgq's sockets and poller: `broadcast` topics under the name `msgq/<endpoint>`.

Sockets may cross a fork: the child's takes a place of its own, and a publisher's is then the child's."""

from __future__ import annotations

import time
from typing import Any

from ringmain._publisher import Publisher
from ringmain._subscriber import Subscriber, wait
from ringmain.compat._names import text
from ringmain.compat.msgq._endpoints import place
from ringmain.compat.msgq._events import SocketEventHandle, events_of
from ringmain.errors import RingmainError, TakenOver, Timeout, TopicMismatch

NO_TRAVERSAL_LIMIT = 2**64 - 1
DEFAULT_SEGMENT_BYTES = 4 * 1024 * 1024
_LOCAL = ("127.0.0.1", "localhost", "")


class IpcError(Exception):
    """A socket could not do what was asked. The cause is ringmain's own error, which says why."""

    def __init__(self, endpoint: str | bytes | None = None, reason: str = "") -> None:
        at = f" with {text(endpoint)}" if endpoint else ""
        super().__init__(f"Messaging failure{at}: {reason}")
        self._made_of = (endpoint, reason)

    def __reduce__(self) -> tuple[Any, ...]:  # it may come from another process
        return type(self), self._made_of


class MultiplePublishersError(IpcError):
    """Another publisher has taken over the endpoint."""


class Context:
    """Nothing to keep: it is there because programs pass it."""

    def term(self) -> None: ...


def _check(context: object) -> None:
    """Its place is easily given to the endpoint, and a publisher would take over what it did not mean."""
    if not isinstance(context, Context):
        raise TypeError(f"connect(context, endpoint, ...): the first is a Context, not {context!r}")


class PubSocket:
    """The publisher of an endpoint. A second one takes over, and the first one's next send raises."""

    def __init__(self) -> None:
        self._publisher: Publisher | None = None
        self._endpoint: str | bytes = ""

    def connect(self, context: Context, endpoint: str | bytes, segment_size: int = 0) -> None:
        _check(context)
        self.close()
        self._endpoint = endpoint
        try:
            self._publisher = _take_over(place(endpoint), segment_size or DEFAULT_SEGMENT_BYTES)
        except (RingmainError, ValueError) as error:
            raise IpcError(endpoint, str(error)) from error

    def _connected(self) -> Publisher:
        if self._publisher is None:
            raise IpcError(self._endpoint, "the socket is not connected")
        return self._publisher

    def send(self, data: bytes) -> None:
        try:
            self._connected().send(data)
        except TakenOver as error:
            raise MultiplePublishersError(self._endpoint, str(error)) from error
        except RingmainError as error:
            raise IpcError(self._endpoint, str(error)) from error

    def all_readers_updated(self) -> bool:
        """Are there readers, and have all of them read what was sent?"""
        publisher = self._connected()
        return publisher.wait_for_readers(0) > 0 and publisher.all_read

    def wait_for_readers(self, timeout: float = 1.0, interval: float = 0.001) -> None:
        """Wait until `all_readers_updated`, looking every `interval` seconds; `TimeoutError` when the time is up."""
        deadline = time.monotonic() + timeout
        while not self.all_readers_updated():
            if time.monotonic() >= deadline:
                raise TimeoutError(f"no reader of '{text(self._endpoint)}' has read all within {timeout:g} s")
            time.sleep(interval)

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def __del__(self) -> None:
        self.close()


def _take_over(topic: str, capacity: int) -> Publisher:
    try:
        return Publisher(topic, contract="broadcast", capacity=capacity, takeover=True)
    except TopicMismatch:  # a publisher that lives made it in another size, and its readers are there
        return Publisher(topic, contract="broadcast", takeover=True)


class SubSocket:
    """A reader of an endpoint, which may not have a publisher yet."""

    def __init__(self) -> None:
        self._subscriber: Subscriber | None = None
        self._endpoint: str | bytes = ""
        self._timeout: float | None = None
        self._events: SocketEventHandle | None = None

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        address: str | bytes = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
    ) -> None:
        _check(context)
        self.close()
        self._endpoint = endpoint
        if text(address) not in _LOCAL:
            reason = f"address {text(address)!r} is another machine: use ringmain with backend='zmq', or rm.bridge"
            raise IpcError(endpoint, reason)
        self._events = events_of(endpoint)
        try:
            self._subscriber = Subscriber(place(endpoint), conflate=conflate)
        except (RingmainError, ValueError) as error:
            raise IpcError(endpoint, str(error)) from error

    def setTimeout(self, timeout: int) -> None:
        """Milliseconds that `receive` waits; below 0 for ever."""
        self._timeout = None if timeout < 0 else timeout / 1000

    def _connected(self) -> Subscriber:
        if self._subscriber is None:
            raise IpcError(self._endpoint, "the socket is not connected")
        return self._subscriber

    def receive(self, non_blocking: bool = False) -> bytes | None:
        """The next message, or None when there is none, or none came in time."""
        subscriber = self._connected()
        if self._events is not None:
            self._events.pass_through()
        try:
            data: bytes | None = subscriber.try_recv() if non_blocking else subscriber.recv(self._timeout)
        except Timeout:
            return None
        except RingmainError as error:
            raise IpcError(self._endpoint, str(error)) from error
        return data

    def close(self) -> None:
        if self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None

    def __del__(self) -> None:
        self.close()


class Poller:
    """Waits for several sockets at once."""

    def __init__(self) -> None:
        self._sockets: list[SubSocket] = []

    def registerSocket(self, socket: SubSocket) -> None:
        self._sockets.append(socket)

    def poll(self, timeout: int) -> list[SubSocket]:
        """Those with a message; waits up to `timeout` milliseconds, below 0 for ever. With fake events on, all of
        them at once: then it is `receive` that waits."""
        if any(socket._events is not None for socket in self._sockets):
            return list(self._sockets)
        by_subscriber = {id(socket._connected()): socket for socket in self._sockets}
        if not by_subscriber:
            time.sleep(max(timeout, 0) / 1000)
            return []
        subscribers = [socket._connected() for socket in self._sockets]
        return [by_subscriber[id(s)] for s in wait(subscribers, None if timeout < 0 else timeout / 1000)]


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
    """All that is there; with `wait_for_one`, at least one."""
    taken: list[bytes] = []
    while (data := sock.receive(non_blocking=not (wait_for_one and not taken))) is not None:
        taken.append(data)
    return taken
