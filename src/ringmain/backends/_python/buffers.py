"""Reservations and leases of the backends written in Python. They behave as the native ones, with one copy.

Owns this invariant: an array or view that outlives its block is noticed. Their memory is the native module's, because
in Python 3.11 a class cannot have the buffer protocol.
"""

from __future__ import annotations

import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from ringmain import _extension, _native
from ringmain.errors import InUse, Lapped

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from ringmain._extension import Said
    from ringmain.backends._python.publisher import PythonPublisher
    from ringmain.backends._python.reference_ring import Record
    from ringmain.backends._python.subscriber import PythonSubscriber


class PythonReservation(_native.HeapBuffer):
    """A message being written. Sent when its block is left, dropped on an exception."""

    def __init__(self, publisher: PythonPublisher, size: int, kind: Said | str) -> None:
        self._own(size)
        self._publisher, self._kind, self._size = publisher, kind, size
        self._appended = bytearray()  # by a stream
        self._open = True

    def __len__(self) -> int:
        return self._size

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the reservation has ended: its block was left")

    def __getitem__(self, key: Any) -> Any:
        self._check_open()
        return memoryview(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._check_open()
        with memoryview(self) as view:
            view[key] = value

    def truncate(self, size: int) -> None:
        """Send only the first `size` bytes."""
        self._check_open()
        with memoryview(self) as view:
            room = len(view)
        if not 0 <= size <= room:
            raise ValueError(f"truncate({size}): only {room} bytes are reserved")
        self._size = size

    def _append(self, data: ReadableBuffer, timeout: float | None) -> int:
        """For a stream: make it longer."""
        self._check_open()
        more = bytes(memoryview(data).cast("B"))
        self._publisher._grow(self._size + len(more), self._kind, timeout)
        self._appended += more
        self._size += len(more)
        return len(more)

    def commit(self) -> int:
        """Send it now; returns its sequence number."""
        self._check_open()
        self._open = False
        if self.viewed():
            raise InUse(
                f"an array or view of the reservation on topic '{self._publisher.topic}' is still alive, so the "
                "message was not sent: delete it before the block ends (nothing can be sent until it is gone)",
                topic=self._publisher.topic,
            )
        with memoryview(self) as view:
            data = bytes(view[: self._size]) + self._appended
        self._publisher._reservation = None
        return self._publisher._finish(data, self._kind)

    def discard(self) -> None:
        """Do not send it."""
        if self._open:
            self._open = False
            self.settled()

    def settled(self) -> bool:
        """Has the block ended, and is the last view gone? Then other writers may go on."""
        if self._open or self.viewed():
            return False
        if self._publisher._reservation is self:
            self._publisher._reservation = None
            self._publisher._abort()
        return True

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is not None:
            self.discard()
        elif self._open:
            self.commit()
        return False


class Borrowed:
    """Exists as long as a borrowed message: until its block has ended and nothing shows it any more."""

    def __init__(self, position: int) -> None:
        self.position = position


class PythonLease(_native.HeapBuffer):
    """A borrowed message."""

    def __init__(self, subscriber: PythonSubscriber, record: Record, lost: int) -> None:
        self._subscriber, self._record = subscriber, record
        borrowed = Borrowed(record.position)
        self.borrowed = weakref.ref(borrowed)
        self._own(record.data, borrowed)
        self.seq, self.time_ns, self.sender, self.kind = record.seq, record.time_ns, record.sender, record.kind
        self.extension, self.trace = record.extension, _extension.trace_of(record.extension)
        self.lost = lost
        self.redelivered = record.returns
        self._open = True
        self._data: Any = None

    def __len__(self) -> int:
        return len(self._record.data)

    @property
    def data(self) -> Any:
        """The message as a read-only memoryview, or decoded on a typed topic."""
        self._check_open()
        if self._data is None:
            codec = self._subscriber._codec
            view = memoryview(self)
            self._data = view if codec is None else codec.decode(view)
        return self._data

    def _check_open(self) -> None:
        if not self._open:
            raise ValueError("the borrowed message was given back")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if self._open:
            self._subscriber._end_task(self._record, kind is not None)
        if self._open and not self._end(self._data) and kind is None:
            error = Lapped(
                f"message {self.seq} of topic '{self._subscriber.topic}' was overwritten while it was borrowed: do "
                "not use what was read of it. Copy with recv(), ask for a larger capacity, or use the contract "
                "'bus', where a borrowed message stays",
                topic=self._subscriber.topic,
            )
            error.seq = self.seq
            raise error
        return False

    def _end(self, data: Any) -> bool:
        self._open, self._data = False, None
        self._let_go(data if isinstance(data, memoryview) else None)
        del data
        return self._subscriber._give_back(self._record)

    def release(self) -> None:
        """Give the message back. On `broadcast`, raises `Lapped` if the writer has overwritten it."""
        self.__exit__(None, None, None)

    def _reject(self) -> None:
        if self._open:
            self._subscriber._end_task(self._record, True)
            self._end(self._data)

    def __del__(self) -> None:
        if self._open:
            self._subscriber._end_task(self._record, True)
            self._end(None)
