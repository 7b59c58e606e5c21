"""`Subscriber`: receives a topic's messages. The receiving methods are the native type's own; see native/python."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from ringmain import _names, _native, backends
from ringmain._contracts import CONTRACTS
from ringmain._message import Message
from ringmain._screens import Screened
from ringmain._topic_info import parse_schema
from ringmain._working import Working
from ringmain.backends.shm import LOCKSTEP_VARIABLE
from ringmain.errors import Closed, RingmainError, TopicMismatch

if TYPE_CHECKING:
    from ringmain.typed import Schema

Start = Literal["latest", "oldest", "last"]
OnLap = Literal["latest", "oldest"]
Observe = Literal["never", "pipes", "always"]
S = TypeVar("S", bound="Subscriber")
W = TypeVar("W", bound="_native.Subscriber | _native.FrameSubscriber")


class Subscriber(Screened, Working, _native.Subscriber, metaclass=backends.EndpointType):
    """Receives a topic's messages. The topic need not exist yet, and may be recreated meanwhile.

    start: "latest" begins with the next message, "oldest" with the oldest that is still there, "last" with the newest
        that is there; on a topic with keep_last_per_kind, with the last of each kind. A pipe or work topic keeps its
        messages for its readers, which begin where the last one stopped.
    on_lap: where to continue after being lapped: at the "latest" or the "oldest" message.
    conflate: deliver only the newest message; the ones skipped do not count as lost.
    type: what is received: a `msgspec.Struct`, dataclass, `dict`, `numpy.ndarray`, ...; None for bytes.
    ignore_senders, ignore_kinds: messages to skip without copying them; may be changed at any time.
    only_senders, only_kinds: the others are skipped likewise; None: receive all.
    max_deliveries: on `work`, a message that workers gave back, or died with, so often goes to topic `NAME.dead`
        instead. From 1 to 15; None: never.
    name: this participant's name, as `ringmain.info` shows it.
    spin: seconds to spin before sleeping, for the least latency. None: adaptive, at most 20 µs, and then it yields
        a core that other processes need; a reader that keeps up with a stream lets messages gather for 1 to 3 µs.
    backend: "shm", "zmq" or "fake"; None takes RINGMAIN_BACKEND, or shm. address: for zmq, where to connect.
    observe: "always" reads as an observer: no writer waits for it, so it can be lapped on every contract, and on a pipe
        the one reader still gets every message. "pipes": observe pipes and work, read other topics. "never": read.
    """

    _backend = "shm"
    _role = "subscriber"
    _waits_natively = True
    _takes_descriptors = False
    """May it read the descriptors of a frame topic as messages? Observers always may."""

    def __new__(cls, *args: Any, backend: str | None = None, **options: Any) -> Self:
        made: Self | None = backends.make(cls, backend, args, options)
        if made is not None:
            return made
        if LOCKSTEP_VARIABLE in os.environ:
            from ringmain.backends.shm import _lockstep_client

            cls = _lockstep_client.pausing_class(cls, options.get("topic", args[0] if args else ""))
        return super().__new__(cls)

    def __init__(
        self,
        topic: str,
        *,
        start: Start = "latest",
        on_lap: OnLap = "latest",
        conflate: bool = False,
        type: Any = None,
        ignore_senders: Iterable[str] = (),
        ignore_kinds: Iterable[str] = (),
        only_senders: Iterable[str] | None = None,
        only_kinds: Iterable[str] | None = None,
        name: str | None = None,
        spin: float | None = None,
        backend: backends.Backend | None = None,
        address: Any = None,
        observe: Observe = "never",
        max_deliveries: int | None = None,
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
        self._screen_by(ignore_senders, ignore_kinds, only_senders, only_kinds)
        self._options = {
            "start": start,
            "on_lap": on_lap,
            "conflate": conflate,
            "type": type,
            "name": name,
            "spin": spin,
            "backend": "shm",
            "observe": observe,
            "max_deliveries": max_deliveries,
        }
        self._set_max_deliveries(_names.check_max_deliveries(max_deliveries))
        self._open(
            self._directory,
            self.topic,
            start,
            on_lap,
            conflate,
            self._participant_name(),
            _names.parse_spin(spin),
            observe,
        )
        self._opened()

    def _attached(self) -> None:
        """Called after each join: at once, when the topic appears, when it is recreated."""
        self._check_contract(self.contract, self._options)
        if not self._takes_descriptors and self._options["observe"] != "always" and self._has_frames():
            raise TopicMismatch(
                f"'{self.topic}' is a frame topic: what travels in it are descriptors of frames, not messages. Receive "
                "it with ringmain.FrameSubscriber"
            )
        if self._codec is None:
            return
        there = self._schema()
        if there:
            from ringmain import typed

            typed.compatible(typed.Schema.from_bytes(there), self._codec.schema, topic=self.topic)

    def _has_frames(self) -> bool:
        """Does this life of the topic have a pool of buffers?"""
        try:
            pool = _native.inspect_pool(self._directory, self.topic)
        except (RingmainError, OSError):
            return False
        there = self._describe()
        return there is not None and pool["epoch"] > there["epoch"]  # an older pool is of an earlier life

    def _rescreen(self) -> None:
        super()._rescreen()
        self._screen(self._senders.ignored, self._kinds.ignored, self._senders.only, self._kinds.only)

    def borrow(self, timeout: float | None = None) -> _native.Lease:
        """The next message in place, without a copy: `with sub.borrow() as msg: use(msg.data)`.

        On `bus`, `pipe` and `reliable` it stays until the block is left and the last array made from it is gone. On
        `broadcast` the writer does not wait: leaving the block raises `Lapped` if it has overwritten the message.
        """
        return _native.borrow(self, timeout)

    def recv_batch(
        self, max_messages: int = 65536, *, timeout: float | None = 0, max_bytes: int = 64 * 1024 * 1024
    ) -> _native.Batch:
        """The messages that are there, as Arrow columns: seq, time_ns, sender, kind, lost, data. It makes no Python
        object for each message.

        The result has `__arrow_c_array__`: `pyarrow.record_batch(batch)`. Waits, if at all, only for the first message.
        """
        return _native.recv_batch(self, max_messages, timeout, max_bytes)

    async def arecv(self, timeout: float | None = None) -> Any:
        """`recv` for asyncio. A cancelled call has taken nothing. `close()` in another task ends it with `Closed`."""
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
        return parse_schema(self._schema())

    def __reduce__(self) -> tuple[Any, ...]:
        # Where there is one reader, passing its subscriber on gives that role away.
        contract = self.contract
        if contract is not None and CONTRACTS[contract].one_reader and self._options["observe"] == "never":
            self.close()
        return _rebuild, (type(self), self._directory, self.topic, {**self._options, **self._screens()})


def _rebuild(cls: type[S], directory: str, topic: str, options: dict[str, Any]) -> S:
    with _names.directory_as(directory):
        return cls(topic, **options)


def wait(subscribers: Sequence[W], timeout: float | None = None) -> list[W]:
    """Those of the subscribers that have something to read; empty when the time is up. One wait for all of them."""
    if hasattr(subscribers, "_role") or isinstance(subscribers, Mapping):  # to list one would receive its messages
        raise TypeError(
            f"wait() takes a list of subscribers, not {subscribers!r}: write wait([subscriber]); "
            "a Latest waits with update()"
        )
    subscribers = list(subscribers)
    for subscriber in subscribers:
        if not getattr(subscriber, "_waits_natively", False):  # another backend's, or paused by a Lockstep
            break
    else:
        return _native.wait(subscribers, timeout)
    return backends.wait(subscribers, timeout)
