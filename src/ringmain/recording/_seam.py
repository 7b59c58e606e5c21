"""The ring's side of the seam between a recording and the ring: what was taken from the ring before its turn.

    recording ──► given ──► flushed by now ──► not flushed yet
                            ring ────────────► waits here ──► ring

A ring may hold less than a recorder flushes at once, and would lap its reader before that can be read. The invariant
owned here: what waits is in the order of the ring, so given after what the recording has before it, each message comes
once.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ringmain._subscriber import Subscriber
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._record.continuity import lost_in

_AT_ONCE = 1024  # messages that are taken, and given, together
_MOST_BYTES = 64 << 20  # wait here; then the reader is lapped, or writers wait for it, and the recording is asked again
_SEQ, _DATA = (RING_SCHEMA.get_field_index(name) for name in ("seq", "data"))
EMPTY = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in RING_SCHEMA], schema=RING_SCHEMA)


class HistoryBatch:
    """What `recv_batch` of a subscriber with `since=` gives: like a `Batch`, from the recording or the ring."""

    def __init__(self, rows: pa.RecordBatch, epoch: int) -> None:
        self._rows, self.epoch = rows, epoch
        self.lost = lost_in(rows)
        self.nbytes = int(pc.sum(pc.binary_length(rows.column(_DATA))).as_py() or 0)

    def __len__(self) -> int:
        return len(self._rows)

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_array__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._rows.schema.__arrow_c_schema__()


class Ahead:
    """Messages of the ring that wait for their turn."""

    def __init__(self, ring: Subscriber[Any]) -> None:
        self._ring = ring
        self._waiting: deque[tuple[int, int, pa.RecordBatch]] = deque()  # epoch, bytes, messages
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        return self._bytes >= _MOST_BYTES

    def take_in(self) -> None:
        """What the ring has by now."""
        while not self.is_full and len(batch := self._ring.recv_batch(_AT_ONCE, timeout=0)):
            self._waiting.append((batch.epoch, batch.nbytes, pa.record_batch(batch)))
            self._bytes += batch.nbytes

    def first(self) -> tuple[int, int] | None:
        """(epoch, sequence number) of the message whose turn is next."""
        if not self._waiting:
            return None
        epoch, _, rows = self._waiting[0]
        return epoch, rows.column(_SEQ)[0].as_py()

    def pop(self) -> tuple[int, pa.RecordBatch]:
        """(epoch, messages) whose turn it is."""
        epoch, size, rows = self._waiting.popleft()
        self._bytes -= size
        return epoch, rows
