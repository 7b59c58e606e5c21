"""A subscriber in Python: the public methods, on top of a few primitives that each backend provides.

Owns this invariant: arguments, errors and return values are those of the native type, on every backend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from ringmain._contracts import CONTRACTS
from ringmain._message import Message
from ringmain._screens import Screened, split_kind
from ringmain._subscriber import Subscriber
from ringmain.backends._python import reference_ring
from ringmain.backends._python.buffers import PythonLease
from ringmain.backends._python.endpoint import PythonEndpoint, check_count, parse_timeout, seconds
from ringmain.errors import Closed, DecodeError, Timeout

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

NO_TOPIC = "there is no such topic (no publisher has opened it)"


class PythonSubscriber(Screened, PythonEndpoint):
    """A subscriber in Python. A backend provides `_next`, `_take`, `_anext` and what a lease needs."""

    _role = "subscriber"

    def _prepare_options(self, topic: str, options: dict[str, Any]) -> None:
        self._set_options(Subscriber, topic, options)
        asked = self._asked
        if asked.observe not in ("never", "pipes", "always"):
            raise ValueError(f"observe is 'never', 'pipes' or 'always', not '{asked.observe}'")
        for what, value in (("start", asked.start), ("on_lap", asked.on_lap)):
            if value not in ("latest", "oldest"):
                raise ValueError(f"{what} is 'latest' or 'oldest', not '{value}'")
        self._screen_by(asked.ignore_senders, asked.ignore_kinds)

    _contract: str | None = None
    _epoch: int | None = None

    @property
    def contract(self) -> str | None:
        """The topic's contract; None before the topic exists."""
        self._usable()
        return self._contract

    @property
    def epoch(self) -> int | None:
        """Which life of the topic this is; None before it is known."""
        self._usable()
        return self._epoch

    def _observes(self, contract: str) -> bool:
        observe = self._asked.observe
        return observe == "always" or (observe == "pipes" and CONTRACTS[contract].one_reader)

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
    def _reason_to_wait(self) -> str:
        """For the text of a timeout."""

    def _borrowed(self, record: reference_ring.Record) -> PythonLease:
        """Take the message, and keep it until `_give_back`."""
        return PythonLease(self, record, self._take(record))

    def _give_back(self, record: reference_ring.Record) -> bool:
        """The block has ended. Was the message intact until now?"""
        return True

    # ---------------------------------------------------------------------------------------- receiving

    def _usable(self) -> None:
        self._check_open()

    def _screened(self, record: reference_ring.Record) -> bool:
        return record.sender in self._senders or split_kind(record.kind).name in self._kinds

    def _decode(self, record: reference_ring.Record) -> Any:
        if self._codec is None:
            return record.data
        try:
            return self._codec.decode(record.data)
        except Exception as error:
            raise DecodeError(self.topic, record.seq, str(error)) from error

    def _timed_out(self, timeout_ns: int | None) -> Timeout:
        return Timeout(f"no message on topic '{self.topic}' within {seconds(timeout_ns)}: {self._reason_to_wait()}")

    def _message(self, record: reference_ring.Record) -> Message:
        try:
            data = self._decode(record)
        except DecodeError:
            self._take(record)
            raise
        # Taken only now: Ctrl-C in a decoder must not lose the message.
        lost = self._take(record)
        return Message(data, record.seq, record.time_ns, record.sender, record.kind, lost, self.topic)

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
        epoch = None
        while len(received) < max_messages and (record := self._next(0 if received else timeout_ns)) is not None:
            if received and self._epoch != epoch:
                break  # a list is of one life of the topic
            epoch = self._epoch
            try:
                data = self._decode(record)
            except DecodeError:
                if received:  # the list ends before it, and the next call begins with it
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
        """All messages that are there, as a `pyarrow.RecordBatch` with the columns of the native `Batch`."""
        self._usable()
        rows: list[tuple[reference_ring.Record, int]] = []
        taken_bytes = 0
        timeout_ns = parse_timeout(timeout)
        while len(rows) < max_messages and (record := self._next(0 if rows else timeout_ns)) is not None:
            if rows and taken_bytes + len(record.data) > max_bytes:
                break
            taken_bytes += len(record.data)
            rows.append((record, self._take(record)))
        return _columns(rows)

    def borrow(self, timeout: float | None = None) -> PythonLease:
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
        """As `recv`, without blocking the event loop."""
        return (await self.arecv_message(timeout)).data

    async def arecv_message(self, timeout: float | None = None) -> Message:
        """As `recv_message`, without blocking the event loop."""
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

    def _check_schema(self) -> None:
        """`SchemaMismatch` if messages of the topic cannot be read as this subscriber's type."""
        there = self._schema()
        if self._codec is not None and there:
            from ringmain import typed

            typed.compatible(typed.Schema.from_bytes(there), self._codec.schema, topic=self.topic)


def _columns(rows: list[tuple[reference_ring.Record, int]]) -> Any:
    """Of (message, lost before it)."""
    import pyarrow as pa

    columns: dict[str, tuple[Any, list[Any]]] = {
        "seq": (pa.uint64(), [record.seq for record, _ in rows]),
        "time_ns": (pa.int64(), [record.time_ns for record, _ in rows]),
        "sender": (pa.string(), [record.sender for record, _ in rows]),
        "kind": (pa.string(), [record.kind for record, _ in rows]),
        "lost": (pa.uint64(), [lost for _, lost in rows]),
        "data": (pa.binary(), [record.data for record, _ in rows]),
    }
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, (kind, _) in columns.items()])
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for kind, values in columns.values()], schema=schema)
