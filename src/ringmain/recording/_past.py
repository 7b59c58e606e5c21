"""What a recording has of one topic from a moment on: the past of a subscriber with `since=`.

The invariant owned here: each message once, in order. Which one is the next is known by epoch and sequence number: so
what the recorder wrote twice, or the ring gave before, is left out, and what is missing is counted in `lost` of the
row after it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ringmain import _contracts, typed
from ringmain.errors import RecordingNotFound, Unsupported
from ringmain.recording._filters import as_ns
from ringmain.recording._format import LATCHED, RING_SCHEMA, Position
from ringmain.recording._meta import TopicMeta
from ringmain.recording._reader import Recording
from ringmain.recording._record.continuity import with_lost, without_known
from ringmain.recording._segment.segment import time_ns_of
from ringmain.recording._segment.store import read_retired
from ringmain.recording._upkeep.incidents import Incident, find_incident
from ringmain.recording._upkeep.lock import is_locked

Since: TypeAlias = "str | timedelta | datetime | int | Incident"

_SPANS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_COLUMNS = ("epoch", "seq", "publish_time", "publish_ns", "sender", "kind", "lost", "extension", "payload")
_SEQ = RING_SCHEMA.get_field_index("seq")


class Past:
    """Rows of the recording, as a ring has them, and which message of which life is the next."""

    def __init__(self, topic: str, since: Since, recording: Recording | str | Path, codec: Any) -> None:
        self._topic, self._codec = topic, codec
        self.recording = recording if isinstance(recording, Recording) else Recording(recording)
        self._since_ns: int | None = None
        self._skip, self._position = 0, None
        self._incident: Incident | None = None
        if isinstance(since, int) and not isinstance(since, bool):
            self._skip, self._position = _last(self.recording, topic, since)
        else:
            found = _since(self.recording, since)
            self._incident = found if isinstance(found, Incident) else None
            self._since_ns = found.start_ns if isinstance(found, Incident) else found
        self._lives: dict[int, TopicMeta] = {}
        self._check_lives()
        self._next: dict[int, int] = {}  # by epoch: the next message; the last epoch is that of the newest given
        self._coming: Iterator[tuple[int, pa.RecordBatch]] = itertools.chain(self._of_incident(), self._read_on())

    def take(self) -> tuple[int, pa.RecordBatch] | None:
        """(epoch, rows) that come next; None at the end of what is recorded by now."""
        for epoch, rows in self._coming:
            if self._skip:
                skipped = min(self._skip, len(rows))
                self._skip -= skipped
                rows = rows.slice(skipped)
            if len(rows) and not self._next:  # before the first message that is given none is lost
                rows = with_lost(rows, rows.column(_SEQ)[0].as_py())
            if len(rows) and len(rows := self.new(epoch, rows)):
                self._check_lives()
                return epoch, rows
        return None

    def look_again(self) -> None:
        """At what has been recorded since."""
        self._coming = self._read_on()

    def new(self, epoch: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Of rows that follow in a life, also of the ring's: those that were not given yet, with what is missing before
        them. Of a life that follows another one, all are wanted."""
        if self._next:
            expected = self._next.get(epoch, 0)
            rows = with_lost(without_known(rows, expected), expected)
        if len(rows):
            self._next.pop(epoch, None)
            self._next[epoch] = int(rows.column(_SEQ)[len(rows) - 1].as_py()) + 1
        return rows

    def has_reached(self, epoch: int, seq: int) -> bool:
        """Has everything been given that comes before this message?"""
        return self._next.get(epoch, -1) >= seq

    @property
    def is_over(self) -> bool:
        """Is nothing more recorded?"""
        directory = self.recording.store.directory
        return self.recording.incident is not None or directory is None or not is_locked(directory)

    def schema(self, epoch: int | None) -> bytes:
        """Of a life's messages, by default of the newest's."""
        lives = self._lives if epoch is None else {epoch: self._lives[epoch]} if epoch in self._lives else {}
        return lives[max(lives)].schema if lives else b""

    def _of_incident(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """What it has, also of what is deleted around it; those that are left there come again, and are left out."""
        if self._incident is not None:
            kept = self.recording.of_incident(self._incident)
            for _, batch in kept.batches(topics=self._topic, columns=_COLUMNS, latched=False):
                yield from _lives_in(batch)

    def _read_on(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(epoch, rows as the ring has them) of what is recorded from the position on, by now."""
        try:
            for where, batch in self.recording.batches(
                topics=self._topic, since=self._since_ns, start=self._position, columns=_COLUMNS, latched=False
            ):
                last = where[len(where) - 1].as_py()
                self._position = Position(last["segment"], last["row"] + 1)
                yield from _lives_in(batch)
        except RecordingNotFound:  # retention was faster than we: what it has deleted is counted as lost
            first = read_retired(self.recording.store).first_segment
            if self._position is not None and self._position.segment >= first:
                raise
            self._position = Position(first, 0)

    def _check_lives(self) -> None:
        """Can the type read what was recorded?"""
        for (name, epoch), life in self.recording.schemas().items():
            if name == self._topic and self._lives.get(epoch) != life:
                traits = _contracts.CONTRACTS.get(life.contract)
                if traits is not None and traits.shared:
                    raise Unsupported(
                        f"topic '{name}' is a queue of work: its tasks are done once, and have no history", topic=name
                    )
                if self._codec is not None and life.schema:
                    typed.compatible(typed.Schema.from_bytes(life.schema), self._codec.schema, topic=name)
                self._lives[epoch] = life


def _last(recording: Recording, topic: str, messages: int) -> tuple[int, Position | None]:
    """Where the last so many messages of a topic begin: (messages to skip, from this position on)."""
    if messages < 0:
        raise ValueError(f"since= is a number of messages, 0 or more, not {messages}")
    left = messages
    for ref in reversed([ref for ref in recording.segments() if ref.number != LATCHED]):
        with recording.opened(ref) as segment:
            rows = sum(stats.rows for stats in segment.stats() if stats.topic == topic) if segment is not None else 0
        if rows >= left:
            return rows - left, Position(ref.number, 0)
        left -= rows
    return 0, None


def _since(recording: Recording, since: Since) -> int | Incident:
    """A publish time, or the incident."""
    if isinstance(since, Incident):
        return since
    if isinstance(since, datetime):
        return as_ns(since) or 0
    if isinstance(since, timedelta):
        return time.time_ns() - round(since.total_seconds() * 1e9)
    if not isinstance(since, str):
        raise TypeError(f"since= is a time like '2h', a datetime, a number of messages or an incident, not {since!r}")
    unit = since.lstrip("0123456789.")
    try:
        span_s = float(since.removesuffix(unit)) * _SPANS_S[unit]
    except (ValueError, KeyError):
        return find_incident(recording.store, since)
    return time.time_ns() - round(span_s * 1e9)


def _lives_in(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """(epoch, rows as a ring has them) of each life."""
    for epoch in pc.unique(batch.column("epoch")).to_pylist():
        yield epoch, _as_ring(batch.filter(pc.equal(batch.column("epoch"), epoch)))


def _as_ring(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a recording in the columns that the ring gives."""
    columns = [
        batch.column("seq").cast(pa.uint64()), time_ns_of(batch), batch.column("sender"), batch.column("kind"),
        batch.column("lost").cast(pa.uint64()), pc.fill_null(batch.column("extension"), b""), batch.column("payload"),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=RING_SCHEMA)
