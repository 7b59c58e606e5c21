"""msgq's sockets and poller: `broadcast` topics under the name `msgq/<endpoint>`."""

from __future__ import annotations

import time

from ringmain.compat.msgq.events import SocketEventHandle, fake_events_are_on, get_fake_prefix, text
from ringmain.errors import RingmainError, TakenOver, Timeout
from ringmain.inspect import info
from ringmain.publisher import Publisher
from ringmain.subscriber import Subscriber, wait

NO_TRAVERSAL_LIMIT = 2**64 - 1
DEFAULT_SEGMENT_BYTES = 4 * 1024 * 1024
_LOCAL = ("127.0.0.1", "localhost", "")


class IpcError(Exception):
    """A socket could not do what was asked. The cause is ringmain's own error, which says why."""

    def __init__(self, endpoint: str | bytes | None = None, reason: str = "") -> None:
        at = f" with {text(endpoint)}" if endpoint else ""
        super().__init__(f"Messaging failure{at}: {reason}")


class MultiplePublishersError(IpcError):
    """Another publisher has taken over the endpoint."""


def _topic(endpoint: str | bytes) -> str:
    return "msgq/" + text(endpoint).strip("/")


class Context:
    """Nothing to keep: it is there because programs pass it."""

    def term(self) -> None: ...


class PubSocket:
    """The publisher of an endpoint. A second one takes over, and the first one's next send raises."""

    def __init__(self) -> None:
        self._publisher: Publisher | None = None
        self._endpoint: str | bytes = ""

    def connect(self, context: Context, endpoint: str | bytes, segment_size: int = 0) -> None:
        self._endpoint = endpoint
        try:
            self._publisher = Publisher(
                _topic(endpoint),
                contract="broadcast",
                capacity=segment_size or None if _exists(endpoint) else segment_size or DEFAULT_SEGMENT_BYTES,
                takeover=True,
            )
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
        """Have all readers read what was sent?"""
        return self._connected().all_read

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> bool:
        """Wait until so many readers are connected; False when the time (seconds) is up."""
        try:
            return self._connected().wait_for_readers(count, timeout) >= count
        except Timeout:
            return False

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()

    def __del__(self) -> None:
        self.close()


def _exists(endpoint: str | bytes) -> bool:
    try:
        info(_topic(endpoint))
    except RingmainError:
        return False
    return True


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
        self._endpoint = endpoint
        if text(address) not in _LOCAL:
            reason = f"address {text(address)!r} is another machine: use ringmain with backend='zmq', or rm.bridge"
            raise IpcError(endpoint, reason)
        if fake_events_are_on():
            self._events = SocketEventHandle(endpoint, get_fake_prefix(), override=False)
        try:
            self._subscriber = Subscriber(_topic(endpoint), conflate=conflate)
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


def pub_sock(endpoint: str, segment_size: int = 0) -> PubSocket:
    socket = PubSocket()
    socket.connect(context, endpoint, segment_size)
    return socket


def sub_sock(
    endpoint: str,
    poller: Poller | None = None,
    addr: str = "127.0.0.1",
    conflate: bool = False,
    timeout: int | None = None,
    segment_size: int = 0,
) -> SubSocket:
    socket = SubSocket()
    socket.connect(context, endpoint, addr.encode(), conflate, segment_size)
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
