"""The held side of `Lockstep`: subscribers that ask before they look."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringmain._subscriber import Subscriber

VARIABLE = "RINGMAIN_LOCKSTEP"


class Orders(msgspec.Struct, frozen=True):
    """What the variable says: whom to ask, and about which topics."""

    socket: str
    topics: tuple[str, ...]
    polls: bool = False


class Step(msgspec.Struct, frozen=True):
    """What a held one is about to do."""

    topics: tuple[str, ...]
    call: str
    name: str
    pid: int
    timeout: float | None = None


@functools.cache
def _orders(text: str) -> Orders:
    return msgspec.json.decode(text, type=Orders)


def held_class(cls: Any, topic: str) -> Any:
    """The class to make a subscriber of, if its topic is to be held; None if not."""
    text = os.environ.get(VARIABLE)
    if not text or topic not in _orders(text).topics or issubclass(cls, HeldMixin):
        return None
    return _mix(cls, _orders(text))


@functools.cache
def _mix(cls: Any, orders: Orders) -> Any:
    # Under the same name: a subscriber that is held should look like any other.
    members = {"_lockstep_orders": orders, "_lockstep_base": cls, "__module__": cls.__module__}
    return type(cls.__name__, (HeldMixin, cls), members)


def ask(orders: Orders, step: Step) -> bool:
    """Wait until the test lets us go. True: there is no time left to wait. If there is no test any more, go."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        try:
            connection.connect(orders.socket)
            connection.send(msgspec.json.encode(step))
            return connection.recv(16) == b"expire"
        except OSError:
            return False


async def ask_async(orders: Orders, step: Step) -> bool:
    """As `ask`, without stopping the event loop."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.setblocking(False)
        try:
            await loop.sock_connect(connection, orders.socket)
            await loop.sock_sendall(connection, msgspec.json.encode(step))
            return await loop.sock_recv(connection, 16) == b"expire"
        except OSError:
            return False


class HeldMixin:
    """Mixed into the subscriber's class. Calls made while one is let go (its own inner ones) are not held again."""

    _lockstep_orders: Orders
    _lockstep_base: type
    _waits_natively = False
    _let_go = 0
    topic: str
    _options: dict[str, Any]

    def _step(self, call: str, timeout: float | None) -> Step:
        return Step((self.topic,), call, self._options["name"], os.getpid(), timeout)

    def _is_free(self, timeout: float | None) -> bool:
        return self._let_go > 0 or (timeout == 0 and not self._lockstep_orders.polls)

    @contextmanager
    def _held(self, call: str, timeout: float | None) -> Iterator[float | None]:
        """Be held; gives the timeout to go on with."""
        expired = not self._is_free(timeout) and ask(self._lockstep_orders, self._step(call, timeout))
        self._let_go += 1
        try:
            yield 0 if expired else timeout
        finally:
            self._let_go -= 1

    def __reduce__(self) -> tuple[Any, ...]:
        # Where it arrives, the environment decides anew whether it is held.
        reduced: Any = super().__reduce__()
        rebuild, (_, *rest) = reduced
        return rebuild, (self._lockstep_base, *rest)

    def recv(self, timeout: float | None = None) -> Any:
        with self._held("recv", timeout) as left:
            return super().recv(left)  # type: ignore[misc]

    def try_recv(self) -> Any:
        with self._held("try_recv", 0):
            return super().try_recv()  # type: ignore[misc]

    def recv_message(self, timeout: float | None = None) -> Any:
        with self._held("recv_message", timeout) as left:
            return super().recv_message(left)  # type: ignore[misc]

    def try_recv_message(self) -> Any:
        with self._held("try_recv_message", 0):
            return super().try_recv_message()  # type: ignore[misc]

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> Any:
        with self._held("recv_many", timeout) as left:
            return super().recv_many(max_messages, left)  # type: ignore[misc]

    def recv_into(self, buffer: Any, timeout: float | None = None) -> Any:
        with self._held("recv_into", timeout) as left:
            return super().recv_into(buffer, left)  # type: ignore[misc]

    def recv_batch(self, max_messages: int = 65536, *, timeout: float | None = 0, **options: Any) -> Any:
        with self._held("recv_batch", timeout) as left:
            return super().recv_batch(max_messages, timeout=left, **options)  # type: ignore[misc]

    def borrow(self, timeout: float | None = None) -> Any:
        with self._held("borrow", timeout) as left:
            return super().borrow(left)  # type: ignore[misc]

    def __next__(self) -> Any:
        with self._held("recv", None):
            return super().__next__()  # type: ignore[misc]

    async def arecv(self, timeout: float | None = None) -> Any:
        return (await self.arecv_message(timeout)).data

    async def arecv_message(self, timeout: float | None = None) -> Any:
        expired = not self._is_free(timeout) and await ask_async(self._lockstep_orders, self._step("arecv", timeout))
        self._let_go += 1
        try:
            return await super().arecv_message(0 if expired else timeout)  # type: ignore[misc]
        finally:
            self._let_go -= 1


def wait(subscribers: Sequence[Subscriber], timeout: float | None, native_wait: Any) -> list[Any]:
    """One step for all of them: held once, with all topics that are to be held."""
    held = [subscriber for subscriber in subscribers if isinstance(subscriber, HeldMixin)]
    orders = held[0]._lockstep_orders
    if timeout != 0 or orders.polls:
        topics = tuple(subscriber.topic for subscriber in held)
        if ask(orders, Step(topics, "wait", held[0]._options["name"], os.getpid(), timeout)):
            timeout = 0
    found: list[Any] = native_wait(subscribers, timeout)
    return found
