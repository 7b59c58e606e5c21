"""`Subscriber`: receives a topic's messages. The receiving methods are the native type's own; see native/python."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, MutableSet, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from ringmain import _names, _native, backends
from ringmain._endpoint import Endpoint
from ringmain._message import Message
from ringmain.errors import Closed

if TYPE_CHECKING:
    from ringmain.typed import Schema

Start = Literal["latest", "oldest"]
Observe = Literal["never", "pipes", "always"]
S = TypeVar("S", bound="Subscriber")
W = TypeVar("W", bound="_native.Subscriber | _native.FrameSubscriber")


class Subscriber(Endpoint, _native.Subscriber, metaclass=backends.Switch):
    """Receives a topic's messages. The topic may not exist yet, and may be recreated meanwhile.

    start: "latest" begins with the next message, "oldest" with the oldest that is still there.
    on_lap: where to go on after being lapped: the "latest" or the "oldest" message.
    conflate: deliver only the newest message; what is passed over does not count as lost.
    type: what is received: a `msgspec.Struct`, dataclass, `dict`, `numpy.ndarray`, ...; None for bytes.
    ignore_senders, ignore_kinds: what is passed over, without being copied; may be changed at any time.
    name: what the roster calls this participant.
    spin: seconds to look before sleeping. None: as experience tells, 20 µs at most and not where that is in vain.
    backend: "shm", "zmq" or "fake"; None takes RINGMAIN_BACKEND, or shm. address: for zmq, where to connect.
    observe: "always" looks on without taking part: no writer waits for it, and where writers wait for readers it can be
        lapped; on a pipe it leaves the one reader's place, and its messages, alone. "pipes": only there.
    """

    _protocol_role = "subscriber"
    _waits_natively = True

    def __new__(cls, *args: Any, backend: str | None = None, **options: Any) -> Self:
        made: Self | None = backends.make(cls, "subscriber", backend, args, options)
        return super().__new__(cls) if made is None else made

    def __init__(
        self,
        topic: str,
        *,
        start: Start = "latest",
        on_lap: Start = "latest",
        conflate: bool = False,
        type: Any = None,
        ignore_senders: Iterable[str] = (),
        ignore_kinds: Iterable[str] = (),
        name: str | None = None,
        spin: float | None = None,
        backend: backends.Backend | None = None,
        address: Any = None,
        observe: Observe = "never",
    ) -> None:
        backends.check_no_address(address)
        self.topic = _names.check_topic(topic)
        self._directory = _names.runtime_directory()
        self._codec: Any = None
        self._in_a_row = 0  # messages that asyncio took without waiting
        if type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(type)
            self._set_decoder(self._codec.decode)
        self._senders = ScreenSet("sender", ignore_senders, self)
        self._kinds = ScreenSet("kind", ignore_kinds, self)
        self._rescreen()
        self._options = {
            "start": start,
            "on_lap": on_lap,
            "conflate": conflate,
            "type": type,
            "name": _names.participant_name(name),
            "spin": spin,
            "backend": "shm",
            "observe": observe,
        }
        self._open(
            self._directory,
            self.topic,
            start,
            on_lap,
            conflate,
            self._options["name"],
            _names.parse_spin(spin),
            observe,
        )
        self._opened()

    def _attached(self) -> None:
        """Called whenever a seat was taken: at once, when the topic appears, when it is recreated."""
        if self._codec is None:
            return
        there = self._schema()
        if there:
            from ringmain import typed

            typed.compatible(typed.Schema.from_bytes(there), self._codec.schema, topic=self.topic)

    def _rescreen(self) -> None:
        self._screen(self._senders, self._kinds)

    @property
    def ignore_senders(self) -> ScreenSet:
        """Senders whose messages are passed over. Change it as any set."""
        return self._senders

    @ignore_senders.setter
    def ignore_senders(self, senders: Iterable[str]) -> None:
        self._senders = ScreenSet("sender", senders, self)
        self._rescreen()

    @property
    def ignore_kinds(self) -> ScreenSet:
        """Kinds of messages that are passed over. Change it as any set."""
        return self._kinds

    @ignore_kinds.setter
    def ignore_kinds(self, kinds: Iterable[str]) -> None:
        self._kinds = ScreenSet("kind", kinds, self)
        self._rescreen()

    def borrow(self, timeout: float | None = None) -> _native.Lease:
        """The next message where it lies, without a copy: `with sub.borrow() as msg: use(msg.data)`.

        On `bus`, `pipe` and `reliable` it stays until the block is left and the last array made from it is gone. On
        `broadcast` nothing stops the writer: leaving the block raises `Lapped` if it went over the message.
        """
        return _native.borrow(self, timeout)

    def recv_batch(
        self, max_messages: int = 65536, *, timeout: float | None = 0, max_bytes: int = 64 * 1024 * 1024
    ) -> _native.Batch:
        """What is there, as Arrow columns: seq, time_ns, sender, kind, lost, data. No Python object for each message.

        The result has `__arrow_c_array__`: `pyarrow.record_batch(batch)`. Waits, if at all, only for the first message.
        """
        return _native.recv_batch(self, max_messages, timeout, max_bytes)

    async def arecv(self, timeout: float | None = None) -> Any:
        """`recv` for asyncio. A cancelled call has taken nothing."""
        from ringmain import _aio

        return (await _aio.receive(self, timeout)).data

    async def arecv_message(self, timeout: float | None = None) -> Message:
        """`recv_message` for asyncio."""
        from ringmain import _aio

        return await _aio.receive(self, timeout)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self.closed:
            raise StopAsyncIteration
        try:
            return await self.arecv()
        except Closed:
            raise StopAsyncIteration from None

    @property
    def contract(self) -> str | None:
        """The topic's contract; None before the topic exists."""
        there = self._describe()
        return there["contract"] if there else None

    @property
    def epoch(self) -> int | None:
        """Which life of the topic this is: when it was created, in nanoseconds."""
        there = self._describe()
        return there["epoch"] if there else None

    @property
    def schema(self) -> Schema | None:
        """What the topic's messages look like, if it exists and is typed."""
        from ringmain import typed

        there = self._schema()
        return typed.Schema.from_bytes(there) if there else None

    def __reduce__(self) -> tuple[Any, ...]:
        # A pipe has one reader: whoever passes its subscriber on has given it away.
        if self.contract == "pipe" and self._options["observe"] == "never":
            self.close()
        screens = {"ignore_senders": set(self._senders), "ignore_kinds": set(self._kinds)}
        return _rebuild, (type(self), self._directory, self.topic, {**self._options, **screens})


def _rebuild(cls: type[S], directory: str, topic: str, options: dict[str, Any]) -> S:
    with _names.directory_as(directory):
        return cls(topic, **options)


class Screens(Protocol):
    """Whoever passes over messages by name, and wants to know when the names change."""

    def _rescreen(self) -> None: ...


class ScreenSet(MutableSet[str]):
    """A set of names that tells its subscriber when it changes. It knows it weakly, or a forgotten subscriber would
    stay until the garbage collector found the circle."""

    def __init__(self, what: str, items: Iterable[str], subscriber: Screens) -> None:
        if isinstance(items, str):
            raise TypeError(f"a set of {what}s is wanted, not the single str {items!r}")
        self._what = what
        self._items = {_names.check_envelope(what, item) for item in items}
        self._subscriber = weakref.ref(subscriber)

    def _changed(self) -> None:
        subscriber = self._subscriber()
        if subscriber is not None:
            subscriber._rescreen()

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: str) -> None:
        self._items.add(_names.check_envelope(self._what, item))
        self._changed()

    def discard(self, item: str) -> None:
        self._items.discard(item)
        self._changed()

    def __repr__(self) -> str:
        return repr(self._items)


def wait(subscribers: Sequence[W], timeout: float | None = None) -> list[W]:
    """Those of the subscribers that have something to read; empty when the time is up. One sleep for all of them."""
    subscribers = list(subscribers)
    for subscriber in subscribers:
        if not getattr(subscriber, "_waits_natively", False):  # another backend's, or held by a Lockstep
            break
    else:
        return _native.wait(subscribers, timeout)
    from ringmain.backends import _wait

    return _wait.wait(subscribers, timeout)
