"""A subscriber in Python: the public methods, on top of a few primitives that each backend provides.

Owns this invariant: arguments, errors and return values are those of the native type, on every backend.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from ringmain import _names
from ringmain._contracts import CONTRACTS
from ringmain._endpoint import AsyncIteration
from ringmain._message import Message
from ringmain._screens import Screened
from ringmain._subscriber import Subscriber
from ringmain._working import Working
from ringmain.backends._python import reference_ring
from ringmain.backends._python.buffers import PythonLease
from ringmain.backends._python.endpoint import PythonEndpoint, check_count, parse_timeout, seconds
from ringmain.errors import Closed, DecodeError, Timeout, WaitedFor, no_message

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

NO_TOPIC = "there is no such topic (no publisher has opened it)"


class PythonSubscriber(Screened, Working, AsyncIteration, PythonEndpoint):
    """A subscriber in Python. A backend provides `_next`, `_take`, `_anext` and what a lease needs."""

    _role = "subscriber"

    def _prepare_options(self, topic: str, options: dict[str, Any]) -> None:
        self._set_options(Subscriber, topic, options)
        asked = self._asked
        if asked.observe not in ("never", "pipes", "always"):
            raise ValueError(f"observe is 'never', 'pipes' or 'always', not '{asked.observe}'")
        if asked.start not in ("next", "oldest", "newest"):
            raise ValueError(f"start is 'next', 'oldest' or 'newest', not '{asked.start}'")
        if asked.on_lap not in ("next", "oldest"):
            raise ValueError(f"on_lap is 'next' or 'oldest', not '{asked.on_lap}'")
        self._screen_by(asked.ignore_senders, asked.ignore_kinds, asked.only_senders, asked.only_kinds)
        self._max_deliveries = _names.check_max_deliveries(asked.max_deliveries)

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
        return observe == "always" or (observe == "pipes" and CONTRACTS[contract].takes_away)

    # ---------------------------------------------------------------------------------- for the backend

    @abstractmethod
    def _next(self, timeout_ns: int | None) -> reference_ring.Record | None:
        """The next message that is not screened, not yet taken; None when the time is up."""

    def _more(self) -> reference_ring.Record | None:
        """The next message if it is there; one of the topic's next life may be left for the next call."""
        return self._next(0)

    @abstractmethod
    def _take(self, record: reference_ring.Record) -> int:
        """Move on past it; returns how many were lost just before."""

    @abstractmethod
    async def _anext(self, timeout_ns: int | None) -> reference_ring.Record | None:
        """As `_next`, for asyncio."""

    @abstractmethod
    def _reason_to_wait(self) -> tuple[str, list[WaitedFor]]:
        """For a timeout: its reason, and the writers that are known."""

    @abstractmethod
    def _lost_just_before(self) -> int:
        """Messages lost since the last one that was received."""

    def _borrowed(self, record: reference_ring.Record) -> PythonLease:
        """Take the message, and keep it until `_give_back`."""
        return PythonLease(self, record, self._take(record))

    def _begin_call(self) -> None:
        """A receiving call begins. Where the contract is shared, what was received before is done."""
        self._usable()

    def _received(self, record: reference_ring.Record, what: Any) -> None:
        """The caller gets this for the message. For `reject`, where the contract is shared."""

    def _undecodable(self, record: reference_ring.Record) -> None:
        """Move on past a message that is not what it should be."""
        self._take(record)

    def _end_task(self, record: reference_ring.Record, failed: bool) -> None:
        """Where the contract is shared: the block of a borrowed message has ended."""

    def _reject(self, task: Any) -> bool:
        return False

    def _give_back_all(self) -> None:
        """Where the contract is shared: what was received and is not finished."""

    def _give_back(self, record: reference_ring.Record) -> bool:
        """The block has ended. Was the message intact until now?"""
        return True

    # ---------------------------------------------------------------------------------------- receiving

    def _usable(self) -> None:
        self._check_open()

    def _of_one_life(self, most: int, timeout_ns: int | None) -> Iterator[reference_ring.Record]:
        """The messages of a list or a batch, each to be taken before the next. Only the first is waited for."""
        record = self._next(timeout_ns) if most else None
        epoch, given = self._epoch, 0
        while record is not None and self._epoch == epoch:
            yield record
            given += 1
            record = self._more() if given < most else None

    def _screened(self, record: reference_ring.Record) -> bool:
        return self._senders.skips(record.sender) or self._kinds.skips(record.kind)

    def _decode(self, record: reference_ring.Record) -> Any:
        if self._codec is None:
            return record.data
        try:
            return self._codec.decode(record.data)
        except Exception as error:
            raise DecodeError(self.topic, record.seq, str(error)) from error

    def _timed_out(self, timeout_ns: int | None) -> Timeout:
        reason, participants = self._reason_to_wait()
        return no_message(self.topic, seconds(timeout_ns), reason, participants, self._lost_just_before())

    def _message(self, record: reference_ring.Record) -> Message:
        try:
            data = self._decode(record)
        except DecodeError:
            self._undecodable(record)
            raise
        # Taken only now: Ctrl-C in a decoder must not lose the message.
        message = self._with_envelope(record, data, self._take(record))
        self._received(record, message)
        return message

    def _with_envelope(self, record: reference_ring.Record, data: Any, lost: int) -> Message:
        return Message(
            data, record.seq, record.time_ns, record.sender, record.kind, lost, self.topic, record.returns,
            record.extension,
        )  # fmt: skip

    def _wait_for_one(self, timeout: float | None) -> reference_ring.Record:
        self._begin_call()
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
        self._begin_call()
        record = self._next(0)
        return None if record is None else self._message(record)

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[Any]:
        return self._receive_many(max_messages, timeout, lambda record, data, lost: data)

    def recv_messages(self, max_messages: int, timeout: float | None = 0) -> list[Message]:
        return self._receive_many(max_messages, timeout, self._with_envelope)

    def _receive_many(
        self,
        max_messages: int,
        timeout: float | None,
        made_of: Callable[[reference_ring.Record, Any, int], Any],
    ) -> list[Any]:
        self._usable()
        max_messages = check_count("max_messages", max_messages)
        received: list[Any] = []
        timeout_ns = parse_timeout(timeout)
        if max_messages:  # otherwise nothing is received, and what was received before is not done yet
            self._begin_call()
        for record in self._of_one_life(max_messages, timeout_ns):
            try:
                data = self._decode(record)
            except DecodeError:
                if received:  # the list ends before it, and the next call begins with it
                    break
                self._undecodable(record)
                raise
            made = made_of(record, data, self._take(record))
            self._received(record, made)
            received.append(made)
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
        self._begin_call()
        rows: list[tuple[reference_ring.Record, int]] = []
        taken_bytes = 0
        timeout_ns = parse_timeout(timeout)
        for record in self._of_one_life(max_messages, timeout_ns):
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
        self._begin_call()
        timeout_ns = parse_timeout(timeout)
        record = await self._anext(timeout_ns)
        if record is None:
            raise self._timed_out(timeout_ns)
        return self._message(record)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

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
        "extension": (pa.binary(), [record.extension for record, _ in rows]),
        "data": (pa.binary(), [record.data for record, _ in rows]),
    }
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, (kind, _) in columns.items()])
    return pa.RecordBatch.from_arrays([pa.array(values, kind) for kind, values in columns.values()], schema=schema)
