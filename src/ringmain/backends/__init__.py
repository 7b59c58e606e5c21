"""What carries a topic's messages: `shm` (the native ring), `zmq` (between machines), `fake` (for tests).

Owns this invariant: the backend is chosen once, when a publisher or subscriber is made, and never looked at again. So
the shared-memory path costs nothing for there being others: `Publisher` and `Subscriber` *are* the native types, and
making one with another backend gives an object of another class that follows the same protocol.

The choice, first of: the argument `backend=`, the world that `ringmain.testing.fake()` opened, `RINGMAIN_BACKEND`, shm.
What a backend cannot do is refused with a sentence; `support.py` has the whole table.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, MutableSet
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringmain._message import Message
    from ringmain.typed import Schema

__all__ = [
    "BACKENDS",
    "Backend",
    "PublisherProtocol",
    "SubscriberProtocol",
    "Switch",
    "check_no_address",
    "choose",
    "default",
    "make",
]

Backend = Literal["shm", "zmq", "fake"]
BACKENDS: tuple[Backend, ...] = ("shm", "zmq", "fake")
VARIABLE = "RINGMAIN_BACKEND"
LOCKSTEP = "RINGMAIN_LOCKSTEP"

default: list[Backend] = []
"""What `ringmain.testing.fake()` pushes while its world is open: the last one counts."""


@runtime_checkable
class PublisherProtocol(Protocol):
    """What every backend's publisher has. `ringmain.Publisher` documents it."""

    topic: str
    sender: str

    def send(self, data: Any, kind: str = "", timeout: float | None = None) -> int: ...
    async def asend(self, data: Any, kind: str = "", timeout: float | None = None) -> int: ...
    def send_many(self, messages: Iterable[Any], kind: str = "", timeout: float | None = None) -> int: ...
    def reserve(self, size: int, *, kind: str = "", timeout: float | None = None) -> Any: ...
    def stream(self, *, kind: str = "", timeout: float | None = None) -> Any: ...
    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int: ...
    def _set_sender(self, sender: str, /) -> None: ...
    def _send_as(self, data: Any, seq: int, time_ns: int, kind: str = "", timeout: float = -1, /) -> int: ...
    def _set_schema(self, schema: bytes, /) -> None: ...
    @property
    def all_read(self) -> bool: ...
    @property
    def contract(self) -> Any: ...
    @property
    def capacity(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def max_message_bytes(self) -> int: ...
    @property
    def next_sequence(self) -> int: ...
    @property
    def schema(self) -> Schema | None: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class SubscriberProtocol(Protocol):
    """What every backend's subscriber has. `ringmain.Subscriber` documents it."""

    topic: str

    def recv(self, timeout: float | None = None) -> Any: ...
    def try_recv(self) -> Any: ...
    def recv_message(self, timeout: float | None = None) -> Message: ...
    def try_recv_message(self) -> Message | None: ...
    def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[Any]: ...
    def recv_into(self, buffer: WriteableBuffer, timeout: float | None = None) -> int: ...
    def recv_batch(
        self, max_messages: int = 65536, *, timeout: float | None = 0, max_bytes: int = 64 * 1024 * 1024
    ) -> Any: ...
    def borrow(self, timeout: float | None = None) -> Any: ...
    async def arecv(self, timeout: float | None = None) -> Any: ...
    async def arecv_message(self, timeout: float | None = None) -> Message: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...
    @property
    def ignore_senders(self) -> MutableSet[str]: ...
    @property
    def ignore_kinds(self) -> MutableSet[str]: ...
    @property
    def lost(self) -> int: ...
    @property
    def attached(self) -> bool: ...
    @property
    def contract(self) -> str | None: ...
    @property
    def epoch(self) -> int | None: ...
    @property
    def schema(self) -> Schema | None: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def choose(backend: str | None = None) -> Backend:
    """The backend that an object made now would get."""
    asked = backend or (default[-1] if default else os.environ.get(VARIABLE) or "shm")
    for known in BACKENDS:
        if asked == known:
            return known
    source = "backend=" if backend else VARIABLE
    raise ValueError(f"{source} is one of {', '.join(BACKENDS)}, not {asked!r}")


def check_no_address(address: object) -> None:
    """Everywhere but on zmq."""
    if address is not None:
        raise ValueError("address= is for the zmq backend: pass backend='zmq', or leave it out")


class Switch(type):
    """The class of `Publisher` and `Subscriber`: what other backends make counts as one of them, too.

    A metaclass rather than an abstract base, because the classes of other backends must not inherit the native type.
    """

    _protocol_role: Literal["publisher", "subscriber"]

    def __instancecheck__(cls, instance: object) -> bool:
        if super().__instancecheck__(instance):
            return True
        # Only for Publisher and Subscriber themselves: a user's subclass of them is native and nothing else.
        is_base = "_protocol_role" in vars(cls)
        return is_base and getattr(type(instance), "_backend_role", None) == cls._protocol_role


def _held(cls: type, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A native subscriber that `ringmain.testing.Lockstep` holds, not yet initialised; None if it does not."""
    from ringmain import _native
    from ringmain.backends.shm import _lockstep_client

    held_class = _lockstep_client.held_class(cls, options.get("topic", args[0] if args else ""))
    return None if held_class is None else _native.Subscriber.__new__(held_class)


def make(cls: type, role: str, backend: str | None, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The endpoint of another backend, ready; None if the native one is wanted."""
    chosen = choose(backend)
    if chosen == "shm":
        return _held(cls, args, options) if role == "subscriber" and LOCKSTEP in os.environ else None
    if "_protocol_role" not in vars(cls):
        raise TypeError(
            f"{cls.__name__} extends the shared-memory {role}, so it cannot be made with the backend {chosen!r}: "
            f"pass backend='shm', or use ringmain.{role.capitalize()} itself"
        )
    if chosen == "fake":
        from ringmain.backends import fake

        return fake.FakePublisher(*args, **options) if role == "publisher" else fake.FakeSubscriber(*args, **options)
    from ringmain.backends import zmq

    return zmq.ZmqPublisher(*args, **options) if role == "publisher" else zmq.ZmqSubscriber(*args, **options)
