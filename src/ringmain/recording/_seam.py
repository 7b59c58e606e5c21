"""The seam between a recording and the ring, where a subscriber with `since=` goes from one to the other.

    recording ──► its end for now ──► join the ring at its oldest message ──► what is recorded meanwhile ──► the ring

    recording ──► given ──► flushed by now ──► not flushed yet
                            ring ────────────► waits here ──► ring

The invariants owned here: each message comes once, in the order of the ring, and those that neither the recording nor
the ring has are counted in `lost` of the first message after them. Until it joins, the topic does not know of it: no
writer waits for a reader of history. A ring may hold less than a recorder flushes at once, and would lap its reader
before that can be read, so what the ring has waits here for its turn. Where the ring has lapped it all the same, the
recording is asked again; it is past the seam once nothing waits.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ringmain import _names, _native
from ringmain._subscriber import Subscriber
from ringmain.errors import RingmainError
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._past import Past

EVERY_S = 0.02  # the recording is looked at so often for what comes before the ring's next message
_SEAM_S = 2.0  # for what the recorder has taken and not written yet; a recorder flushes ten times a second
_LISTED, _LISTED_BYTES = 256, 1 << 20  # rows that become Python objects at once: of one by one, each takes 10 us
_AT_ONCE = 1024  # messages that are taken from the ring, and given, together
_MOST_BYTES = 64 << 20  # wait here; then the reader is lapped, or writers wait for it, and the recording is asked again
_SEQ = RING_SCHEMA.get_field_index("seq")
EMPTY = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in RING_SCHEMA], schema=RING_SCHEMA)


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


class Seam:
    """What comes next: rows of the recording, then of the ring. `open_ring` joins the topic at its oldest message."""

    def __init__(self, past: Past, open_ring: Callable[[], Subscriber[Any]]) -> None:
        self.ring: Subscriber[Any] | None = None  # once it has joined
        self.epoch = 0  # of the rows
        self.is_of_ring = False  # are the rows of the ring?
        self.is_over = False  # has all of the recording been given that comes before the ring's next message?
        self.is_settled = False  # is it past the seam? What comes next is received from the ring itself.
        self._past, self._open_ring = past, open_ring
        self._rows, self._row = EMPTY, 0
        self._listed: list[dict[str, Any]] = []  # the next of them
        self._ahead: Ahead | None = None
        self._joined_at: tuple[int, int] | None = None  # (epoch, sequence) of the first message of the ring for us
        self._reaching: tuple[int, int] | None = None  # up to this one the recording is read
        self._deadline_s = self._look_s = 0.0
        self._is_last_look = self._gave_up = False  # at the recording, for what comes before that message

    def has_rows(self) -> bool:
        return self._row < len(self._rows)

    def next(self) -> pa.RecordBatch:
        """The row that is next, which stays there."""
        return self._rows.slice(self._row, 1)

    def next_row(self) -> dict[str, Any]:
        if not self._listed:
            rows = len(self._rows) - self._row
            most = max(1, min(_LISTED, rows, rows * _LISTED_BYTES // max(1, self._rows.nbytes)))
            self._listed = self._rows.slice(self._row, most).to_pylist()[::-1]
        self._row += 1
        return self._listed.pop()

    def take(self, most: int) -> pa.RecordBatch:
        """So many rows, or all that there are."""
        taken = self._rows.slice(self._row, most)
        self._row += len(taken)
        del self._listed[-len(taken) :]
        return taken

    def waits_for(self) -> Subscriber[Any] | None:
        """The ring; None while it is still in the recording, or enough of the ring waits."""
        return None if self._ahead is None or self._ahead.is_full else self.ring

    def fill(self) -> bool:
        """Are there rows to give? Reads on, joins the topic at the recording's end, and takes what the ring has."""
        while not self.has_rows():
            if self.is_settled:
                return False
            if self._ahead is not None and self._is_the_rings_turn(self._ahead):
                if self._ahead.first() is None:
                    self._settle()
                    return False
                self._give(*self._ahead.pop(), of_ring=True)
            elif (found := self._past.take()) is not None:
                self._give(*found, of_ring=False)
            elif self._ahead is None:
                self._join()
                self._past.look_again()
            elif self._is_last_look:
                self._gave_up = True
            elif time.monotonic() < self._look_s:
                return False
            else:
                now_s = time.monotonic()
                self._look_s, self._is_last_look = now_s + EVERY_S, self._past.is_over or now_s >= self._deadline_s
                self._past.look_again()
        return True

    def _give(self, epoch: int, rows: pa.RecordBatch, *, of_ring: bool) -> None:
        if of_ring:
            rows = self._past.new(epoch, rows)  # without those that the recording gave, with what the seam has lost
        self.epoch, self._rows, self._row, self._listed, self.is_of_ring = epoch, rows, 0, [], of_ring

    def _join(self) -> None:
        self.ring = self._open_ring()
        self._ahead = Ahead(self.ring)
        there = self.ring._describe()
        if there is None:
            return
        try:
            seen = _native.inspect(_names.runtime_directory(), self.ring.topic)
        except RingmainError:
            return
        for each in seen["participants"]:
            if each["slot"] == there["slot"] and seen["epoch"] == there["epoch"]:
                self._joined_at = (there["epoch"], each["sequence"])

    def _is_the_rings_turn(self, ahead: Ahead) -> bool:
        """Has everything been given that was recorded before the ring's next message, or will it not come?"""
        ahead.take_in()
        reaching = ahead.first() or self._joined_at
        if reaching != self._reaching or not self._deadline_s:
            self._reaching, self._deadline_s = reaching, time.monotonic() + _SEAM_S
            self._is_last_look = self._gave_up = False
        self.is_over = self._gave_up or (reaching is not None and self._past.has_reached(*reaching))
        return self.is_over

    def _settle(self) -> None:
        """Nothing of the ring waits. Its next message is the first that the native reader gives, unless what is lost
        before that one is not known yet: a message tells it."""
        if self.is_of_ring or not self._gave_up:
            self.is_settled = self.is_of_ring = True
