"""A subscriber in Python: the whole public face, on top of a handful of primitives that each backend provides.

Owns this invariant: arguments, errors and return values are those of the native type, whatever the backend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ringmain import _names
from ringmain._message import Message
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import PlainEndpoint, check_count, parse_schema, parse_timeout, seconds
from ringmain.backends._python.leases import PlainLease
from ringmain.errors import Closed, DecodeError, Timeout

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from ringmain.typed import Schema


class PlainSubscriber(PlainEndpoint):
    """A subscriber in Python. A backend provides `_next`, `_take`, `_anext` and what a lease needs."""

    _backend_role = "subscriber"

    def _prepare_options(
        self,
        topic: str,
        *,
        start: str = "latest",
        on_lap: str = "latest",
        conflate: bool = False,
        type: Any = None,
        ignore_senders: Iterable[str] = (),
        ignore_kinds: Iterable[str] = (),
        name: str | None = None,
        spin: float | None = None,
        observe: str = "never",
    ) -> None:
        from ringmain._subscriber import ScreenSet

        self.topic = _names.check_topic(topic)
        self.name = _names.participant_name(name)
        _names.parse_spin(spin)
        if observe not in ("never", "pipes", "always"):
            raise ValueError(f"observe is 'never', 'pipes' or 'always', not '{observe}'")
        for what, value in (("start", start), ("on_lap", on_lap)):
            if value not in ("latest", "oldest"):
                raise ValueError(f"{what} is 'latest' or 'oldest', not '{value}'")
        self._start, self._on_lap, self._conflate, self._observe = start, on_lap, conflate, observe
        self._senders = ScreenSet("sender", ignore_senders, self)
        self._kinds = ScreenSet("kind", ignore_kinds, self)
        self._codec: Any = None
        if type is not None:
            from ringmain import typed

            self._codec = typed.codec_for(type)

    # ---------------------------------------------------------------------------------- for the backend

    @abstractmethod
    def _next(self, timeout_ns: int | None) -> reference_ring.Record | None:
        """The next message that is not screened, not yet taken; None when the time is up."""

    @abstractmethod
    def _take(self, record: reference_ring.Record) -> int:
        """Move on past it; returns how many were lost just before."""

    @abstractmethod
    async def _anext(self, timeout_ns: int | None) -> reference_ring.Record | None:
        """As `_next`, for asyncio."""

    @abstractmethod
    def _whom_it_waits_for(self) -> str:
        """For the text of a timeout."""

    def _borrowed(self, record: reference_ring.Record) -> PlainLease:
        """Take the message, and keep it where it is: `_give_back` will follow."""
        return PlainLease(self, record, self._take(record))

    def _give_back(self, record: reference_ring.Record) -> bool:
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

    def _screened(self, record: reference_ring.Record) -> bool:
        return record.sender in self._senders or record.kind in self._kinds

    def _decode(self, record: reference_ring.Record) -> Any:
        if self._codec is None:
            return record.data
        try:
            return self._codec.decode(record.data)
        except Exception as error:
            raise DecodeError(self.topic, record.seq, str(error)) from error

    def _timed_out(self, timeout_ns: int | None) -> Timeout:
        return Timeout(f"no message on topic '{self.topic}' within {seconds(timeout_ns)}: {self._whom_it_waits_for()}")

    def _message(self, record: reference_ring.Record) -> Message:
        lost = self._take(record)
        return Message(self._decode(record), record.seq, record.time_ns, record.sender, record.kind, lost)

    def _wait_for_one(self, timeout: float | None) -> reference_ring.Record:
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
        max_messages = check_count("max_messages", max_messages)
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
        from ringmain.backends._python.columns import columns

        self._usable()
        rows: list[tuple[reference_ring.Record, int]] = []
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
        from ringmain._subscriber import ScreenSet

        self._senders = ScreenSet("sender", senders, self)

    @property
    def ignore_kinds(self) -> Any:
        """Kinds of messages that are passed over. Change it as any set."""
        return self._kinds

    @ignore_kinds.setter
    def ignore_kinds(self, kinds: Iterable[str]) -> None:
        from ringmain._subscriber import ScreenSet

        self._kinds = ScreenSet("kind", kinds, self)

    def _rescreen(self) -> None:
        """The sets are looked at with every message: nothing has to be told of a change."""

    def _check_schema(self) -> None:
        """Does what the topic's writer sends read as our type? `SchemaMismatch` if not."""
        there = self._schema()
        if self._codec is not None and there:
            from ringmain import typed

            typed.compatible(typed.Schema.from_bytes(there), self._codec.schema, topic=self.topic)
