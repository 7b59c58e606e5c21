"""`Subscriber`: receives a topic's messages. The receiving methods are the native type's own; see native/python."""

from __future__ import annotations

import builtins
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypedDict, TypeVar, Unpack, overload

from ringmain import _names, _native, backends
from ringmain._contracts import CONTRACTS
from ringmain._endpoint import AsyncIteration
from ringmain._message import Message, T
from ringmain._screens import Screened
from ringmain._topic_info import parse_schema
from ringmain._working import Working
from ringmain.backends.shm import LOCKSTEP_VARIABLE
from ringmain.errors import TopicMismatch

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from pathlib import Path

    from ringmain.recording import Incident, Recording
    from ringmain.typed import Schema

Start = Literal["next", "oldest", "newest"]
OnLap = Literal["next", "oldest"]
Observe = Literal["never", "pipes", "always"]
S = TypeVar("S", bound="Subscriber[Any]")
W = TypeVar("W", bound="_native.Subscriber | _native.FrameSubscriber")


class SubscriberOptions(TypedDict, total=False):
    """What a subscriber may be given besides its type."""

    start: Start
    on_lap: OnLap
    conflate: bool
    ignore_senders: Iterable[str]
    ignore_kinds: Iterable[str]
    only_senders: Iterable[str] | None
    only_kinds: Iterable[str] | None
    name: str | None
    spin: float | None
    backend: backends.Backend | None
    address: Any
    observe: Observe
    max_deliveries: int | None
    since: str | timedelta | datetime | int | Incident
    recording: Recording | str | Path


class Subscriber(Screened, Working, AsyncIteration, _native.Subscriber, Generic[T], metaclass=backends.EndpointType):
    """Receives a topic's messages. The topic need not exist yet, and may be recreated meanwhile.

    start: "next" begins with the next message, "oldest" with the oldest that is still there, "newest" with the newest
        that is there; on a topic with keep_last_per_kind, with the last of each kind. A pipe or work topic keeps its
        messages for its readers, which begin where the last one stopped.
    on_lap: where to continue after being lapped: "oldest" with the oldest message that is still there, "next" with
        the next: then what is in the ring counts as lost too.
    conflate: deliver only the newest message; the ones skipped do not count as lost.
    type: what is received: a `msgspec.Struct`, dataclass, `dict`, `numpy.ndarray`, a structured `numpy.dtype`, ...;
        None for bytes.
    ignore_senders, ignore_kinds: messages to skip without copying them; may be changed at any time.
    only_senders, only_kinds: the others are skipped likewise; None: receive all.
    max_deliveries: on `work`, a message that workers gave back, or died with, so often goes to topic `NAME.dead`
        instead. From 1 to 15; None: never.
    name: this participant's name, as `ringmain.info` shows it.
    spin: seconds to spin before sleeping, for the least latency. None: adaptive, at most 20 µs, and then it yields
        a core that other processes need; a reader that keeps up with a stream lets messages gather for 1 to 3 µs.
    backend: "shm", "zmq" or "fake"; None takes RINGMAIN_BACKEND, or shm. address: for zmq, where to connect.
    since, recording: begin in a recording, `since="2h"`, a datetime, so many messages, or an incident, and go on with
        the ring: each message once; see docs/guide/recording.md. `live` says which side the next message is from.
    observe: "always" reads as an observer: no writer waits for it, so it can be lapped on every contract, and on a pipe
        the one reader still gets every message. "pipes": observe pipes and work, read other topics. "never": read.
    """

    _backend = "shm"
    _role = "subscriber"
    _waits_natively = True
    _observer_sees_descriptors = True
    """May it read the descriptors of a frame topic as messages? Observers always may."""

    def __new__(
        cls, *args: Any, backend: str | None = None, since: Any = None, recording: Any = None, **options: Any
    ) -> Self:
        if since is not None or recording is not None:
            options |= {"backend": backend, "since": since, "recording": recording}
            of_both: Self = _with_history(cls, args, options)
            return of_both
        made: Self | None = backends.make(cls, backend, args, options)
        if made is not None:
            return made
        if LOCKSTEP_VARIABLE in os.environ:
            from ringmain.backends.shm import _lockstep_client

            cls = _lockstep_client.pausing_class(cls, options.get("topic", args[0] if args else ""))
        return super().__new__(cls)

    if TYPE_CHECKING:

        def recv(self, timeout: float | None = None) -> T: ...
        def try_recv(self) -> T | None: ...
        def recv_message(self, timeout: float | None = None) -> Message[T]: ...
        def try_recv_message(self) -> Message[T] | None: ...
        def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[T]: ...
        def recv_messages(self, max_messages: int, timeout: float | None = 0) -> list[Message[T]]: ...
        def __next__(self) -> T: ...

    @overload
    def __init__(
        self: Subscriber[bytes], topic: str, *, type: None = None, **options: Unpack[SubscriberOptions]
    ) -> None: ...
    @overload
    def __init__(self, topic: str, *, type: builtins.type[T], **options: Unpack[SubscriberOptions]) -> None: ...
    @overload
    def __init__(self: Subscriber[Any], topic: str, *, type: Any, **options: Unpack[SubscriberOptions]) -> None: ...
    def __init__(
        self,
        topic: str,
        *,
        start: Start = "next",
        on_lap: OnLap = "oldest",
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
        since: Any = None,  # then __new__ makes another object
        recording: Any = None,
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
        here = self._describe()
        sees = self._observer_sees_descriptors and self._options["observe"] == "always"
        if here is not None and here["frames"] and not sees:
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
        """The messages that are there, as Arrow columns: seq, time_ns, sender, kind, lost, extension, data. It
        makes no Python object for each message.

        The result has `__arrow_c_array__`: `pyarrow.record_batch(batch)`. Waits, if at all, only for the first message.
        """
        return _native.recv_batch(self, max_messages, timeout, max_bytes)

    async def arecv(self, timeout: float | None = None) -> T:
        """`recv` for asyncio. A cancelled call has taken nothing. `close()` in another task ends it with `Closed`."""
        from ringmain import _aio

        return (await _aio.receive(self, timeout)).data

    async def arecv_message(self, timeout: float | None = None) -> Message[T]:
        """`recv_message` for asyncio."""
        from ringmain import _aio

        return await _aio.receive(self, timeout)

    def __aiter__(self) -> Self:
        return self

    @property
    def live(self) -> bool:
        """Is the next message one of the ring? Without `since=` always."""
        return True

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


def _with_history(cls: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A subscriber that begins in a recording. Recordings need packages that others do not, and are loaded by name."""
    if not cls._is_public:
        raise TypeError(
            f"{cls.__name__} extends the shared-memory subscriber, which has no since=: use ringmain.Subscriber"
        )
    if options["since"] is None or options["recording"] is None:
        raise ValueError("since= and recording= belong together: from when on, and in which recording")
    if options["backend"] is None:
        options.pop("backend")
    return importlib.import_module("ringmain.recording._history").HistorySubscriber(*args, **options)


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
    for subscriber in subscribers:
        if (wait_among := getattr(subscriber, "_wait_among", None)) is not None:  # it may be in a recording still
            found: list[W] = wait_among(subscribers, timeout)
            return found
    return backends.wait(subscribers, timeout)
