"""`MessageStream`: writes one message as a file, on any backend."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Reservation(Protocol):
    """What a stream needs of the native reservation, or of one in Python."""

    def _append(self, data: ReadableBuffer, timeout: float | None, /) -> int: ...
    def __len__(self) -> int: ...
    def commit(self) -> int: ...
    def discard(self) -> None: ...


class MessageStream(io.RawIOBase):
    """A file whose content becomes one message: sent by `close()` or at the end of the block."""

    def __init__(self, reservation: Reservation, timeout: float | None) -> None:
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
        # A stream that is dropped is not complete: only leaving the block or close() sends it.
        self.discard()
