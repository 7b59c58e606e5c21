"""`Publisher`: sends messages to a topic. `send` and `send_many` are the native type's own; see native/python."""

from __future__ import annotations

import io
import os
from typing import TYPE_CHECKING, Any, Literal, Self

from ringmain import _names, _native, backends
from ringmain._endpoint import Endpoint
from ringmain._inspect import clean
from ringmain.errors import Closed, TopicNotFound

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from ringmain.backends._python.leases import PlainReservation
    from ringmain.typed import Schema

Contract = Literal["broadcast", "pipe", "bus", "reliable"]


class Publisher(Endpoint, _native.Publisher, metaclass=backends.Switch):
    """Sends messages to a topic, creating it if need be.

    contract: "broadcast", "pipe", "bus" or "reliable"; None takes what is there, or makes a "broadcast".
    capacity: of the ring, in bytes or like "64MiB", rounded up to a power of two; None takes what is there, or 1 MiB.
    type: what `send` takes: a `msgspec.Struct`, dataclass, `dict`, `numpy.ndarray`, ...; None for bytes.
    sender: written on every message.   name: what the roster calls this participant.
    persist: keep the topic when the last participant leaves.   mode: permissions of the file, when it is created.
    takeover: on one-writer contracts, take the place of a writer that lives.
    spin: seconds to look before sleeping, when `send` must wait. None: as experience tells, 20 µs at most.
    backend: "shm", "zmq" or "fake"; None takes RINGMAIN_BACKEND, or shm. address: for zmq, where to bind.
    """

    _protocol_role = "publisher"

    def __new__(cls, *args: Any, backend: str | None = None, **options: Any) -> Self:
        made: Self | None = backends.make(cls, "publisher", backend, args, options)
        return super().__new__(cls) if made is None else made

    def __init__(
        self,
        topic: str,
        *,
        contract: Contract | None = None,
        capacity: int | str | None = None,
        type: Any = None,
        sender: str = "",
        name: str | None = None,
        persist: bool = False,
        mode: int = 0o600,
        takeover: bool = False,
        spin: float | None = None,
        backend: backends.Backend | None = None,
        address: Any = None,
    ) -> None:
        backends.check_no_address(address)
        self.topic = _names.check_topic(topic)
        self._directory = _names.runtime_directory()
        self.sender = _names.check_envelope("sender", sender)
        self._codec: Any = None
        if type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(type)
        self._options = {
            "contract": contract,
            "capacity": _names.parse_capacity(capacity),
            "type": type,
            "sender": sender,
            "name": _names.participant_name(name, sender),
            "persist": persist,
            "mode": _names.check_mode(mode),
            "spin": spin,
            "backend": "shm",
        }
        self._join(takeover)

    def _join(self, takeover: bool) -> None:
        options = self._options
        schema = b"" if self._codec is None else self._codec.schema.to_bytes()
        self._open(
            self._directory,
            self.topic,
            options["contract"],
            options["capacity"],
            options["mode"],
            options["persist"],
            takeover,
            schema,
            options["name"],
            self.sender,
            _names.parse_spin(options["spin"]),
        )
        self._pid = os.getpid()
        self._opened()
        _sweep_once()
        if self._codec is not None:
            try:
                self._agree_on_schema(schema)
            except BaseException:
                self._close()
                raise

    def _agree_on_schema(self, schema: bytes) -> None:
        """The topic's schema is the newest writer's, if whoever reads the old one can read the new."""
        from ringmain import typed

        self._set_encoder(self._codec.encode, self._codec.accepts)
        there = self._schema()
        if there in (schema, b""):
            if not there:
                self._set_schema(schema)
            return
        typed.compatible(self._codec.schema, typed.Schema.from_bytes(there), topic=self.topic)
        self._set_schema(schema)

    @property
    def contract(self) -> Contract:
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
        from ringmain import typed

        there = self._schema()
        return typed.Schema.from_bytes(there) if there else None

    def reserve(self, size: int, *, kind: str = "", timeout: float | None = None) -> _native.Reservation:
        """A message of `size` bytes, written where it will lie. Sent when the block is left, dropped on an exception.

        No array or view of it may outlive the block: then nothing is sent, and `InUse` is raised. Where several write,
        it is this writer's turn until the block is left.
        """
        return _native.reserve(self, size, kind, timeout)

    def stream(self, *, kind: str = "", timeout: float | None = None) -> MessageStream:
        """A message whose size is not known yet, as a file to write to. Sent when the block is left, dropped on an
        exception. `timeout` is for each wait for room."""
        return MessageStream(_native.reserve(self, 0, kind, timeout), timeout)

    async def asend(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        """`send` for asyncio: waits for room without stopping the loop."""
        from ringmain import _aio

        return await _aio.send(self, data, kind, timeout)

    # ------------------------------------------------------------------------------ other processes

    def _revive(self) -> None:
        """In a child that inherited this endpoint through fork: take a seat of its own. Where there is one writer,
        the child takes the place of the parent it got the endpoint from, and of nobody else."""
        parent = self._pid
        self._join(takeover=_is_writer(self._directory, self.topic, parent))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise Closed(f"the publisher of topic '{self.topic}' is closed: it cannot be passed on")
        return _rebuild, (type(self), self._directory, self.topic, self._options, os.getpid())


_swept = False


def _sweep_once() -> None:
    """The last participant of a topic may have been killed, and then nobody is left to take the topic away. So a
    process that opens its first publisher does it for the dead."""
    global _swept
    if not _swept:
        _swept = True
        clean()


def _is_writer(directory: str, topic: str, pid: int) -> bool:
    try:
        participants = _native.inspect(directory, topic)["participants"]
    except TopicNotFound:
        return False
    return any(each["role"] == "writer" and each["pid"] == pid for each in participants)


def _rebuild(cls: type[Publisher], directory: str, topic: str, options: dict[str, Any], pid: int) -> Publisher:
    with _names.directory_as(directory):
        return cls(topic, **options, takeover=_is_writer(directory, topic, pid))


class MessageStream(io.RawIOBase):
    """A file whose content becomes one message."""

    def __init__(self, reservation: _native.Reservation | PlainReservation, timeout: float | None) -> None:
        self._reservation = reservation
        self._timeout = timeout

    def writable(self) -> bool:
        return True

    def write(self, data: ReadableBuffer, /) -> int:
        if self.closed:
            raise ValueError("the message is finished")
        return self._reservation._append(data, self._timeout)

    def tell(self) -> int:
        return len(self._reservation)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def discard(self) -> None:
        """Do not send it."""
        self._reservation.discard()
        super().close()

    def close(self) -> None:
        """Send it."""
        if not self.closed:
            super().close()
            self._reservation.commit()

    def __del__(self) -> None:
        # Forgotten is not finished: only leaving the block or close() sends.
        self.discard()
