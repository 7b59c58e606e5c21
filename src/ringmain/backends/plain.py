"""What the backends written in Python share: the whole of a publisher's and a subscriber's public face, on top of a
handful of primitives that each backend provides.

Owns this invariant: arguments, errors and return values are those of the native type, whatever the backend.
"""

from __future__ import annotations

import asyncio
import atexit
import io
import os
import warnings
import weakref
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ringmain import names
from ringmain.backends import model
from ringmain.backends.leases import PlainLease, PlainReservation, PlainStream
from ringmain.errors import Closed, DecodeError, Full, InUse, MessageTooLarge, RingmainError, Timeout
from ringmain.message import Message

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringmain.typed import Schema

FOREVER_S = 9e9
ROOM_SLICE_S = 0.001
"""How often asyncio looks for room: neither ZeroMQ nor a virtual clock has an event for it."""
_open: weakref.WeakSet[PlainEndpoint] = weakref.WeakSet()


def parse_timeout(timeout: float | None) -> int | None:
    """Nanoseconds; None for ever."""
    if timeout is None:
        return None
    if not timeout >= 0:
        raise ValueError("timeout is a number of seconds, 0 or more, or None to wait for ever")
    return None if timeout > FOREVER_S else int(timeout * 1e9)


def seconds(timeout_ns: int | None) -> str:
    return "for ever" if timeout_ns is None else f"{timeout_ns / 1e9:.6g} s"


class PlainEndpoint:
    """Being closed properly, as `ringmain.endpoint.Endpoint` does it for the native types."""

    _backend: ClassVar[str]
    topic: str
    _options: dict[str, Any]
    _is_closed: bool = True

    def _opened(self) -> None:
        self._is_closed = False
        self._pid = os.getpid()
        _open.add(self)

    @abstractmethod
    def _close(self) -> None:
        """Leave the topic."""

    @property
    def closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if not self._is_closed:
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._is_closed:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, stacklevel=2, source=self)
            self._close()

    def __repr__(self) -> str:
        state = " closed" if self._is_closed else ""
        return f"<ringmain.{type(self).__name__} '{getattr(self, 'topic', '?')}'{state}>"


@atexit.register
def _close_all() -> None:
    for endpoint in list(_open):
        with suppress(Exception):
            endpoint.close()


class PlainPublisher(PlainEndpoint):
    """A publisher in Python. A backend provides `_start`, `_finish` and `_abort`."""

    _backend_role = "publisher"
    sender: str

    def _prepare_options(self, topic: str, type: Any, sender: str, name: str | None) -> None:
        self.topic = names.check_topic(topic)
        self.sender = names.check_envelope("sender", sender)
        self.name = names.participant_name(name, sender)
        self._reservation: PlainReservation | None = None
        self._codec: Any = None
        if type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(type)

    # ---------------------------------------------------------------------------------- for the backend

    @abstractmethod
    def _start(self, size: int, kind: str, timeout_ns: int | None) -> None:
        """Make room for a message of this size, waiting if need be: `Full` when the time is up. May be called again
        with a larger size. The turn is ours until `_finish` or `_abort`."""

    @abstractmethod
    def _finish(self, data: bytes, kind: str, seq: int | None = None, time_ns: int | None = None) -> int:
        """Publish what `_start` made room for; returns its number."""

    @abstractmethod
    def _abort(self) -> None:
        """Give the turn back."""

    @property
    @abstractmethod
    def contract(self) -> Any: ...
    @property
    @abstractmethod
    def capacity(self) -> int:
        """Bytes in the ring."""

    @property
    def max_message_bytes(self) -> int:
        """The largest message the topic takes, without sender and kind."""
        return model.largest_message(self.contract, self.capacity)

    @abstractmethod
    def _schema(self) -> bytes: ...

    @property
    def schema(self) -> Schema | None:
        """What the topic's messages look like, if it is typed."""
        return parse_schema(self._schema())

    # ------------------------------------------------------------------------------------------ sending

    def _usable(self) -> None:
        if self._is_closed:
            raise Closed(f"the publisher of topic '{self.topic}' is closed")
        if self._reservation is not None and not self._reservation.settled():
            raise InUse(
                f"a reservation or stream of topic '{self.topic}' is still open, or a view of one is still alive: "
                "finish it first"
            )

    def _encode(self, data: Any) -> bytes:
        if self._codec is not None:
            accepts = self._codec.accepts
            if accepts is not None and not isinstance(data, accepts):
                raise TypeError(f"topic '{self.topic}' takes {accepts!r}, not {type(data)!r}")
            data = self._codec.encode(data)
        return data if type(data) is bytes else bytes(memoryview(data).cast("B"))

    def _check_size(self, size: int, kind: str) -> None:
        envelope = model.envelope_bytes(self.sender, kind)
        if size + envelope > self.max_message_bytes:
            raise MessageTooLarge(
                f"a message of {size} bytes is too large for topic '{self.topic}': with its {self.capacity} bytes it "
                f"takes up to {self.max_message_bytes - envelope}; ask for "
                f"capacity={model.needed_capacity(self.contract, size, envelope)} or more"
            )

    def send(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        self._usable()
        check_kind(kind)
        timeout_ns = parse_timeout(timeout)
        payload = self._encode(data)
        self._check_size(len(payload), kind)
        self._start(len(payload), kind, timeout_ns)
        return self._finish(payload, kind)

    def _send_as(self, data: Any, seq: int, time_ns: int, kind: str = "", timeout: float = -1, /) -> int:
        """Under the number and time it had elsewhere, or new ones if the number is negative."""
        self._usable()
        check_kind(kind)
        payload = bytes(data)
        self._check_size(len(payload), kind)
        self._start(len(payload), kind, None if timeout < 0 else parse_timeout(timeout))
        return self._finish(payload, kind, seq, time_ns) if seq >= 0 else self._finish(payload, kind)

    def _set_sender(self, sender: str, /) -> None:
        """What is written on the messages from now on."""
        self.sender = names.check_envelope("sender", sender)

    @abstractmethod
    def _set_schema(self, schema: bytes, /) -> None:
        """Replace the topic's schema."""

    async def asend(self, data: Any, kind: str = "", timeout: float | None = None) -> int:
        """`send` for asyncio: waits for room without stopping the loop."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            try:
                return self.send(data, kind, 0)
            except Full as full:
                if deadline is not None and loop.time() >= deadline:
                    raise Full(str(full).replace("within 0 s", f"within {timeout:g} s")) from None
            await asyncio.sleep(ROOM_SLICE_S)

    def send_many(self, messages: Iterable[Any], kind: str = "", timeout: float | None = None) -> int:
        self._usable()
        check_kind(kind)
        timeout_ns = parse_timeout(timeout)
        batch = [self._encode(message) for message in messages]  # everything is looked at before anything is sent
        for payload in batch:
            self._check_size(len(payload), kind)
        for sent, payload in enumerate(batch):
            try:
                self._start(len(payload), kind, timeout_ns)
            except RingmainError as error:
                error.sent = sent  # type: ignore[attr-defined]  # so that nothing is sent twice or lost
                raise
            self._finish(payload, kind)
        return len(batch)

    def reserve(self, size: int, *, kind: str = "", timeout: float | None = None) -> PlainReservation:
        """A message of `size` bytes to write into. Sent when the block is left, dropped on an exception."""
        self._usable()
        check_kind(kind)
        self._check_size(size, kind)
        self._start(size, kind, parse_timeout(timeout))
        self._reservation = PlainReservation(self, size, kind)
        return self._reservation

    def stream(self, *, kind: str = "", timeout: float | None = None) -> io.RawIOBase:
        """A message whose size is not known yet, as a file to write to."""
        return PlainStream(self.reserve(0, kind=kind, timeout=timeout), timeout)

    def _grow(self, size: int, kind: str, timeout: float | None) -> None:
        """A stream needs more."""
        self._check_size(size, kind)
        self._start(size, kind, parse_timeout(timeout))

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if self._is_closed:
            return
        if self._reservation is not None and not self._reservation.settled():
            raise InUse(
                f"topic '{self.topic}' cannot be closed: a reservation or stream is open, or a view of one is alive"
            )
        self._close()


class PlainSubscriber(PlainEndpoint):
    """A subscriber in Python. A backend provides `_next`, `_take`, `_anext` and what a lease needs."""

    _backend_role = "subscriber"

    def _prepare_options(
        self,
        topic: str,
        *,
        start: str,
        on_lap: str,
        type: Any,
        ignore_senders: Iterable[str],
        ignore_kinds: Iterable[str],
        name: str | None,
    ) -> None:
        from ringmain.subscriber import ScreenSet

        self.topic = names.check_topic(topic)
        self.name = names.participant_name(name)
        for what, value in (("start", start), ("on_lap", on_lap)):
            if value not in ("latest", "oldest"):
                raise ValueError(f"{what} is 'latest' or 'oldest', not '{value}'")
        self._senders = ScreenSet("sender", ignore_senders, lambda: None)
        self._kinds = ScreenSet("kind", ignore_kinds, lambda: None)
        self._codec: Any = None
        if type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(type)

    # ---------------------------------------------------------------------------------- for the backend

    @abstractmethod
    def _next(self, timeout_ns: int | None) -> model.Record | None:
        """The next message that is not screened, not yet taken; None when the time is up."""

    @abstractmethod
    def _take(self, record: model.Record) -> int:
        """Move on past it; returns how many were lost just before."""

    @abstractmethod
    async def _anext(self, timeout_ns: int | None) -> model.Record | None:
        """As `_next`, for asyncio."""

    @abstractmethod
    def _whom_it_waits_for(self) -> str:
        """For the text of a timeout."""

    def _borrowed(self, record: model.Record) -> PlainLease:
        """Take the message, and keep it where it is: `_give_back` will follow."""
        return PlainLease(self, record, self._take(record))

    def _give_back(self, record: model.Record) -> bool:
        """The block has ended. Was the message whole all the time?"""
        return True

    @abstractmethod
    def _schema(self) -> bytes: ...

    @property
    def schema(self) -> Schema | None:
        """What the topic's messages look like, if it exists and is typed."""
        return parse_schema(self._schema())

    # ---------------------------------------------------------------------------------------- receiving

    def _usable(self) -> None:
        if self._is_closed:
            raise Closed(f"the subscriber of topic '{self.topic}' is closed")

    def _screened(self, record: model.Record) -> bool:
        return record.sender in self._senders or record.kind in self._kinds

    def _decode(self, record: model.Record) -> Any:
        if self._codec is None:
            return record.data
        try:
            return self._codec.decode(record.data)
        except Exception as error:
            raise DecodeError(self.topic, record.seq, str(error)) from error

    def _timed_out(self, timeout_ns: int | None) -> Timeout:
        return Timeout(f"no message on topic '{self.topic}' within {seconds(timeout_ns)}: {self._whom_it_waits_for()}")

    def _message(self, record: model.Record) -> Message:
        lost = self._take(record)
        return Message(self._decode(record), record.seq, record.time_ns, record.sender, record.kind, lost)

    def _wait_for_one(self, timeout: float | None) -> model.Record:
        self._usable()
        timeout_ns = parse_timeout(timeout)
        record = self._next(timeout_ns)
        if record is None:
            raise self._timed_out(timeout_ns)
        return record

    def recv(self, timeout: float | None = None) -> Any:
        return self.recv_message(timeout).data

    def try_recv(self) -> Any:
        message = self.try_recv_message()
        return None if message is None else message.data

    def recv_message(self, timeout: float | None = None) -> Message:
        return self._message(self._wait_for_one(timeout))

    def try_recv_message(self) -> Message | None:
        self._usable()
        record = self._next(0)
        return None if record is None else self._message(record)

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[Any]:
        self._usable()
        if max_messages < 0:
            raise ValueError("max_messages must be 0 or more")
        received: list[Any] = []
        timeout_ns = parse_timeout(timeout)
        while len(received) < max_messages and (record := self._next(0 if received else timeout_ns)) is not None:
            try:
                data = self._decode(record)
            except DecodeError:
                if received:  # ends the list before it, and is what the next call begins with
                    break
                self._take(record)
                raise
            self._take(record)
            received.append(data)
        return received

    def recv_into(self, buffer: WriteableBuffer, timeout: float | None = None) -> int:
        with memoryview(buffer) as view, view.cast("B") as room:
            record = self._wait_for_one(timeout)
            size = len(record.data)
            if size > len(room):
                raise ValueError(
                    f"the next message of topic '{self.topic}' has {size} bytes and the buffer {len(room)}; "
                    "it was not taken"
                )
            self._take(record)
            room[:size] = record.data
            return size

    def recv_batch(
        self, max_messages: int = 65536, *, timeout: float | None = 0, max_bytes: int = 64 * 1024 * 1024
    ) -> Any:
        """What is there, as Arrow columns: seq, time_ns, sender, kind, lost, data."""
        from ringmain.backends.columns import columns

        self._usable()
        rows: list[tuple[model.Record, int]] = []
        taken_bytes = 0
        timeout_ns = parse_timeout(timeout)
        while len(rows) < max_messages and (record := self._next(0 if rows else timeout_ns)) is not None:
            if rows and taken_bytes + len(record.data) > max_bytes:
                break
            taken_bytes += len(record.data)
            rows.append((record, self._take(record)))
        return columns(rows)

    def borrow(self, timeout: float | None = None) -> PlainLease:
        """The next message, as `with sub.borrow() as msg: use(msg.data)`."""
        return self._borrowed(self._wait_for_one(timeout))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._is_closed:
            raise StopIteration
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None

    async def arecv(self, timeout: float | None = None) -> Any:
        """As `recv`, without stopping the event loop."""
        return (await self.arecv_message(timeout)).data

    async def arecv_message(self, timeout: float | None = None) -> Message:
        """As `recv_message`, without stopping the event loop."""
        self._usable()
        timeout_ns = parse_timeout(timeout)
        record = await self._anext(timeout_ns)
        if record is None:
            raise self._timed_out(timeout_ns)
        return self._message(record)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        if self._is_closed:
            raise StopAsyncIteration
        try:
            return await self.arecv()
        except Closed:
            raise StopAsyncIteration from None

    # ------------------------------------------------------------------------------------------ screens

    @property
    def ignore_senders(self) -> Any:
        """Senders whose messages are passed over. Change it as any set."""
        return self._senders

    @ignore_senders.setter
    def ignore_senders(self, senders: Iterable[str]) -> None:
        from ringmain.subscriber import ScreenSet

        self._senders = ScreenSet("sender", senders, lambda: None)

    @property
    def ignore_kinds(self) -> Any:
        """Kinds of messages that are passed over. Change it as any set."""
        return self._kinds

    @ignore_kinds.setter
    def ignore_kinds(self, kinds: Iterable[str]) -> None:
        from ringmain.subscriber import ScreenSet

        self._kinds = ScreenSet("kind", kinds, lambda: None)

    def _check_schema(self) -> None:
        """Does what the topic's writer sends read as our type? `SchemaMismatch` if not."""
        there = self._schema()
        if self._codec is not None and there:
            from ringmain import typed

            typed.compatible(typed.Schema.from_bytes(there), self._codec.schema, topic=self.topic)


def check_observe(observe: str) -> str:
    if observe not in ("never", "pipes", "always"):
        raise ValueError(f"observe is 'never', 'pipes' or 'always', not '{observe}'")
    return observe


def check_kind(kind: str) -> None:
    size = len(kind.encode())
    if size > 255:
        raise ValueError(f"kind is at most 255 bytes of UTF-8, this one has {size}")


def parse_schema(schema: bytes) -> Schema | None:
    if not schema:
        return None
    from ringmain import typed

    return typed.Schema.from_bytes(schema)
