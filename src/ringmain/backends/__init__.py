"""The backends, which carry a topic's messages: `shm` (the native ring), `zmq` (between machines), `fake` (for tests).

Owns this invariant: a backend is chosen once, when a publisher or subscriber is made, and not looked up again. So the
others cost the shared-memory path nothing: `Publisher` and `Subscriber` *are* the native types, and making one with
another backend gives an object of another class that follows the same protocol.

The choice is the first of: the argument `backend=`, the world that `ringmain.testing.fake()` opened, RINGMAIN_BACKEND,
shm. What a backend cannot do, it refuses with a reason; `_features.py` has the whole table.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ringmain.backends._protocols import BackendProtocol, PublisherProtocol, SubscriberProtocol
from ringmain.backends._requests import RequestsProtocol

__all__ = [
    "BACKENDS",
    "Backend",
    "BackendProtocol",
    "EndpointType",
    "PublisherProtocol",
    "RequestsProtocol",
    "SubscriberProtocol",
    "check_no_address",
    "choose",
    "default",
    "get",
    "make",
    "requests",
    "visible",
    "wait",
]

Backend = Literal["shm", "zmq", "fake"]


class Row(NamedTuple):
    """A backend: what must be known of it before it is loaded."""

    module: str
    """Its `BACKEND` is the object with the face of `BackendProtocol`."""
    native: bool = False
    """Its endpoints are `Publisher` and `Subscriber` themselves, not objects of another class."""
    requests: str | None = None
    """Its `REQUESTS` is the object with the face of `RequestsProtocol`; None: it has no requests."""
    isolated: bool = False
    """Its topics exist in one process, on a clock of their own. While it is chosen, `topics`, `info`, `unlink` and
    `clean` see only its topics, and `wait` cannot mix its subscribers with others."""


TABLE: dict[Backend, Row] = {
    "shm": Row("ringmain.backends.shm._backend", native=True, requests="ringmain.backends.shm._requests"),
    "zmq": Row("ringmain.backends.zmq._backend"),
    "fake": Row("ringmain.backends.fake._backend", isolated=True, requests="ringmain.backends.fake._requests"),
}
BACKENDS: tuple[Backend, ...] = tuple(TABLE)
VARIABLE = "RINGMAIN_BACKEND"
MIXED_SLICE_S = 0.002
"""Subscribers of several backends have nothing in common to sleep on: each backend is polled this often."""

default: list[Backend] = []
"""`ringmain.testing.fake()` appends its backend while its world is open: the last one is the default."""


def choose(backend: str | None = None) -> Backend:
    """The backend that an object made now would get."""
    asked = backend or (default[-1] if default else os.environ.get(VARIABLE) or BACKENDS[0])
    for known in BACKENDS:
        if asked == known:
            return known
    source = "backend=" if backend else VARIABLE
    raise ValueError(f"{source} is one of {', '.join(BACKENDS)}, not {asked!r}")


def get(name: Backend) -> BackendProtocol:
    """The backend's object, loaded when it is first needed."""
    backend: BackendProtocol = importlib.import_module(TABLE[name].module).BACKEND
    return backend


def requests(name: Backend) -> RequestsProtocol:
    """What `Server` and `Client` use of a backend that has requests."""
    module = TABLE[name].requests
    assert module is not None, name
    found: RequestsProtocol = importlib.import_module(module).REQUESTS
    return found


def visible() -> list[BackendProtocol]:
    """The backends whose topics are seen now."""
    chosen = choose()
    shared = [name for name, row in TABLE.items() if not row.isolated]
    return [get(name) for name in ([chosen] if TABLE[chosen].isolated else shared)]


def check_no_address(address: object) -> None:
    """Only zmq takes an address."""
    if address is not None:
        raise ValueError("address= is for the zmq backend: pass backend='zmq', or leave it out")


class EndpointType(type):
    """The class of `Publisher` and `Subscriber`: the endpoints of all backends are its instances.

    A metaclass rather than an abstract base, because the classes of other backends must not inherit the native type.
    """

    _role: Literal["publisher", "subscriber"]

    @property
    def _is_public(cls) -> bool:
        """Is it `Publisher` or `Subscriber` itself? A user's subclass of them is always native."""
        return "_role" in vars(cls)

    def __instancecheck__(cls, instance: object) -> bool:
        return super().__instancecheck__(instance) or (
            cls._is_public and getattr(type(instance), "_role", None) == cls._role
        )


def make(cls: EndpointType, backend: str | None, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """The endpoint of another backend, ready; None if the native one is wanted."""
    name = choose(backend)
    if TABLE[name].native:
        return None
    role = cls._role
    if not cls._is_public:
        raise TypeError(
            f"{cls.__name__} extends the shared-memory {role}, so it cannot be made with the backend {name!r}: "
            f"pass backend='shm', or use ringmain.{role.capitalize()} itself"
        )
    return getattr(get(name), f"open_{role}")(*args, **options)


def wait(subscribers: Sequence[Any], timeout: float | None) -> list[Any]:
    """`ringmain.wait` for subscribers that are not all native: each backend waits in its own way."""
    groups: dict[Backend, list[Any]] = {}
    for subscriber in subscribers:
        name = getattr(subscriber, "_backend", None)
        if name is None or getattr(subscriber, "_role", None) != "subscriber":
            raise TypeError(f"wait() takes subscribers, not {subscriber!r}")
        groups.setdefault(name, []).append(subscriber)
    waiting = [(get(name), group) for name, group in groups.items()]
    backend, group = waiting[-1]
    if len(waiting) == 1:
        return backend.wait(group, timeout)
    if any(TABLE[name].isolated for name in groups):
        raise ValueError("wait() cannot mix the fake's subscribers with real ones: their clocks are not the same")
    deadline_s = None if timeout is None else time.monotonic() + timeout
    while True:
        found = [subscriber for each, its_own in waiting for subscriber in each.wait(its_own, 0)]
        left_s = MIXED_SLICE_S if deadline_s is None else deadline_s - time.monotonic()
        if found or left_s <= 0:
            return found
        if found := backend.wait(group, min(left_s, MIXED_SLICE_S)):
            return found
