"""`Publisher`: sends messages to a topic. `send` and `send_many` are the native type's own; see native/python."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from ringmain import _names, _native, backends
from ringmain._contracts import ContractName
from ringmain._endpoint import Endpoint
from ringmain._message_stream import MessageStream
from ringmain._topic_info import parse_schema
from ringmain.errors import Closed

if TYPE_CHECKING:
    from ringmain.typed import Schema

P = TypeVar("P")


class Participation(NamedTuple):
    """One joining of one slot. It says who a writer is where a pid cannot: in another process or pid namespace."""

    epoch: int
    slot: int
    generation: int


class Publisher(Endpoint, _native.Publisher, metaclass=backends.EndpointType):
    """Sends messages to a topic, creating it if need be.

    contract: "broadcast", "pipe", "bus", "reliable" or "work"; None: that of the existing topic, or "broadcast".
    capacity: of the ring, in bytes or like "64MiB", rounded up to a power of two; None: that of the existing topic, or
        1 MiB.
    type: what `send` takes: a `msgspec.Struct`, dataclass, `dict`, `numpy.ndarray`, a structured `numpy.dtype`, ...;
        None for bytes.
    sender: written on every message.   name: this participant's name, as `ringmain.info` shows it.
    persist: keep the topic when the last participant leaves; from now on, if it exists already.
    mode: permissions of the file, like 0o660; None: those of the existing topic, or 0o600.
    min_readers: every send waits while fewer readers than this take part, and raises `Full` at its timeout. 0: does not
        wait: what is sent before the first reader joins is not delivered, and no reader counts it as lost.
    max_participants: how many publishers and subscribers the topic takes at once, up to 4096; None: as many as the
        existing topic, or 128. Each takes 256 bytes. On `work` the
        queue itself takes one. On zmq there is no limit.
    keep_last_per_kind: keep the last message of each kind for subscribers with start="newest", also after the ring has
        dropped it. True: of up to 1024 kinds; a number: of so many, up to 16384. It belongs to the topic, as its
        capacity does: all of its publishers keep. False: as the existing topic, or not. For `broadcast`, `bus` and
        `reliable`. A message takes at most a 1024th of the capacity, or 1 KiB where that is less.
    takeover: on one-writer contracts, replace a writer that is still alive.
    spin: seconds to spin before sleeping, when `send` must wait. None: adaptive, at most 20 µs.
    backend: "shm", "zmq" or "fake"; None takes RINGMAIN_BACKEND, or shm. address: for zmq, where to bind.
    """

    _backend = "shm"
    _of_frames = False
    """Are its messages descriptors of frames?"""
    _role = "publisher"
    _participation: Participation | None = None
    """This publisher's own, or in a process that it came to, that of the process it came from. On a one-writer contract
    the new process replaces this writer, and no other."""

    def __new__(cls, *args: Any, backend: str | None = None, **options: Any) -> Self:
        made: Self | None = backends.make(cls, backend, args, options)
        return super().__new__(cls) if made is None else made

    def __init__(
        self,
        topic: str,
        *,
        contract: ContractName | None = None,
        capacity: int | str | None = None,
        type: Any = None,
        sender: str = "",
        name: str | None = None,
        persist: bool = False,
        mode: int | None = None,
        takeover: bool = False,
        min_readers: int = 0,
        max_participants: int | None = None,
        keep_last_per_kind: bool | int = False,
        spin: float | None = None,
        backend: backends.Backend | None = None,
        address: Any = None,
    ) -> None:
        backends.check_no_address(address)
        self.topic = _names.check_topic(topic)
        self._directory = _names.runtime_directory()
        self.sender = _names.check_envelope("sender", sender)
        self._codec: Any = None
        self._in_a_row = 0  # messages that asyncio sent without waiting
        if type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(type)
        self._options = {
            "contract": contract,
            "capacity": _names.parse_capacity(capacity),
            "type": type,
            "sender": sender,
            "name": name,
            "persist": persist,
            "mode": None if mode is None else _names.check_mode(mode),
            "max_participants": _names.check_max_participants(max_participants),
            "min_readers": _names.check_min_readers(min_readers, max_participants),
            "keep_last_per_kind": _names.check_kept_kinds(keep_last_per_kind, contract),
            "spin": spin,
            "backend": "shm",
        }
        self._join(takeover)

    def _join(self, takeover: bool) -> None:
        options = self._options
        schema = b"" if self._codec is None else self._codec.schema.to_bytes()
        self._open(
            directory=self._directory,
            topic=self.topic,
            contract=options["contract"],
            capacity=options["capacity"],
            mode=options["mode"],
            persist=options["persist"],
            takeover=takeover,
            schema=schema,
            name=self._participant_name(),
            sender=self.sender,
            spin_ns=_names.parse_spin(options["spin"]),
            min_readers=options["min_readers"],
            replaces=self._participation,
            max_participants=options["max_participants"],
            keep_last_per_kind=options["keep_last_per_kind"],
            frames=self._of_frames,
        )
        there = self._describe()
        self._participation = Participation(there["epoch"], there["slot"], there["generation"])
        self._opened()
        _clean_once()
        if self._codec is not None:
            self._set_encoder(self._codec.encode, self._codec.accepts)
            agree_on_schema(self, self._codec)

    @property
    def contract(self) -> ContractName:
        contract: Any = self._describe()["contract"]
        return contract  # type: ignore[no-any-return]

    @property
    def capacity(self) -> int:
        """Bytes in the ring."""
        return self._describe()["capacity_bytes"]

    @property
    def epoch(self) -> int:
        """Which life of the topic this is: when it was created, in nanoseconds."""
        return self._describe()["epoch"]

    @property
    def max_message_bytes(self) -> int:
        """The largest message the topic takes, without sender and kind."""
        return self._describe()["max_message_bytes"]

    @property
    def schema(self) -> Schema | None:
        """What the topic's messages look like, if it is typed."""
        return parse_schema(self._schema())

    def reserve(self, size: int, *, kind: str = "", timeout: float | None = None) -> _native.Reservation:
        """A message of `size` bytes, written in place. Sent when the block is left, dropped on an exception.

        No array or view of it may outlive the block: otherwise it is not sent, and `InUse` is raised. On contracts with
        several writers, the others wait until the block is left.
        """
        return _native.reserve(self, size, kind, timeout)

    def stream(self, *, kind: str = "", timeout: float | None = None) -> MessageStream:
        """A message whose size is not known yet, as a file to write to. Sent when the block is left, dropped on an
        exception. `timeout` is for each wait for room."""
        return MessageStream(_native.reserve(self, 0, kind, timeout), timeout)

    async def asend(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        """`send` for asyncio: waits for room without blocking the loop."""
        from ringmain import _aio

        return await _aio.send(self, data, kind, timeout)

    # ------------------------------------------------------------------------------ other processes

    def _revive(self) -> None:
        """In a child that inherited this endpoint through fork: join with a slot of its own."""
        self._join(takeover=False)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise Closed(f"the publisher of topic '{self.topic}' is closed: it cannot be passed on", topic=self.topic)
        return _rebuild, (type(self), self._directory, self.topic, self._options, self._participation)


def agree_on_schema(publisher: Any, codec: Any) -> None:
    """The topic's schema becomes this writer's, if readers of the old one can read the new one. Otherwise the publisher
    is closed, with `SchemaMismatch`."""
    there, own = publisher._schema(), codec.schema.to_bytes()
    try:
        if there not in (own, b""):
            from ringmain import typed

            known = typed.Schema.from_bytes(there)
            typed.compatible(codec.schema, known, topic=publisher.topic)
            if known.codec == codec.schema.codec == "struct":
                return  # the same layout, and what is there may have a name, which a dtype has not
        if there != own:
            publisher._set_schema(own)
    except BaseException:
        publisher._close()
        raise


@functools.cache
def _clean_once() -> None:
    """If the last participant of a topic is killed, its file stays. So a process that opens its first publisher removes
    the topics whose participants have all died."""
    for backend in backends.visible():
        backend.clean()


def continued(cls: type[P], topic: str, options: dict[str, Any], participation: Participation | None) -> P:
    """A new publisher that takes over from that participant, if it still writes, and from no other."""
    make: Any = cls.__new__
    publisher: Any = make(cls, topic, **options)
    publisher._participation = participation
    publisher.__init__(topic, **options)
    return publisher  # type: ignore[no-any-return]


def _rebuild(
    cls: type[Publisher], directory: str, topic: str, options: dict[str, Any], participation: Participation
) -> Publisher:
    with _names.directory_as(directory):
        return continued(cls, topic, options, participation)
