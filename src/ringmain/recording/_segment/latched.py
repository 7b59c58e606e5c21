"""Latched rows: the last message of each kind, of topics that keep these for readers that join late.

    segment 7 ─ begins with the latched rows so far ─ rows ... │ window of an incident ... │ ─► segment 8 ...
    an incident that pins 7, 8: what 7 begins with, and the last of each kind of the rows before the window

An incident begins with what was latched when its window began, however long before that was published, and whatever
retention has deleted since. So each segment carries in its metadata what was latched when it began: with it, and with
the rows that follow, this can be told of every moment of the segment. The invariant owned here: of each kind the last
row before the moment, of the newest life of its topic, and no row that is in the window.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import RecordingCorrupt
from ringmain.recording._format import ENVELOPE_BYTES, LATCHED, SCHEMA, STORED, Position
from ringmain.recording._meta import Meta
from ringmain.recording._segment.segment import Damage, Run, Segment, TopicStats, time_ns_of, topic_stats, with_columns

MOST_BYTES = 64 << 20  # of what one segment carries
_TOGETHER_BYTES = 64 << 10
_LOST = SCHEMA.get_field_index("lost")
_PAYLOAD = SCHEMA.field("payload")

Life: TypeAlias = "tuple[str, int]"  # topic, epoch


def lives_that_keep(meta: Meta | None) -> dict[Life, int]:
    """The lives in a recording whose topics keep the last message of kinds, and of how many kinds."""
    topics = meta.topics if meta is not None else []
    return {(topic.name, topic.epoch): kinds for topic in topics if (kinds := topic.properties.kept_kinds)}


class _Row(NamedTuple):
    batch: pa.RecordBatch
    at: int
    seq: int


class Latched:
    """The last row of each kind, of the newest life of each topic, as rows are added in the order recorded. As in the
    table beside a ring, of more kinds than the topic keeps those that came first are there."""

    def __init__(self) -> None:
        self._epochs: dict[str, int] = {}
        self._rows: dict[str, dict[str, _Row]] = {}

    def __bool__(self) -> bool:
        return any(self._rows.values())

    def add(self, life: Life, kinds: int, rows: pa.RecordBatch, payloads: Sequence[bytes | memoryview] = ()) -> None:
        """Rows that follow in a life whose topic keeps so many kinds; of 0 they only begin the life. With `payloads`,
        these are theirs."""
        known, last = self._of(life), _last_of_each_kind(rows.column("kind")) if kinds else {}
        last = {kind: at for kind, at in last.items() if kind in known or len(known) < kinds}
        if payloads:  # those of the rows are pages that were never touched, and take no memory
            rows = rows.set_column(len(rows.columns) - 1, _PAYLOAD, pa.nulls(len(rows), pa.binary()))
        taken = rows.take(pa.array(list(last.values()), pa.int64()))
        if payloads:
            own = pa.array([bytes(payloads[at]) for at in last.values()], pa.binary())
            taken = taken.set_column(len(taken.columns) - 1, _PAYLOAD, own)
        _put(known, kinds, last, taken)

    def add_earlier(self, life: Life, kinds: int, rows: pa.RecordBatch) -> bool:
        """Rows of which each is the last of its kind, where later ones may be known. Is any of them new?"""
        known = self._of(life)
        last = {
            kind: at
            for at, (kind, seq) in enumerate(zip(*(rows.column(c).to_pylist() for c in ("kind", "seq")), strict=True))
            if kind not in known or known[kind].seq < seq
        }
        _put(known, kinds, last, rows.take(pa.array(list(last.values()), pa.int64())))
        return bool(last)

    def forget(self, topic: str) -> None:
        """The topic is gone."""
        self._epochs.pop(topic, None)
        self._rows.pop(topic, None)

    def has(self, topic: str) -> bool:
        return topic in self._rows

    @property
    def topics(self) -> set[str]:
        return set(self._rows)

    def rows(self) -> pa.RecordBatch:
        """All of them, the oldest first. What was lost before one is not told here."""
        found = [row.batch.slice(row.at, 1) for known in self._rows.values() for row in known.values()]
        if not found:
            return _none()
        rows = pa.concat_batches(found)
        rows = rows.take(
            pc.sort_indices(pa.Table.from_batches([rows]), [(name, "ascending") for name in _OLDEST_FIRST])
        )
        return rows.set_column(_LOST, SCHEMA.field(_LOST), pa.repeat(pa.scalar(0, pa.int64()), len(rows)))

    def _of(self, life: Life) -> dict[str, _Row]:
        topic, epoch = life
        if self._epochs.get(topic) != epoch:  # what an earlier life had latched is over
            self._epochs[topic], self._rows[topic] = epoch, {}
        return self._rows[topic]


_OLDEST_FIRST = ("publish_time", "publish_ns", "topic", "seq")


@functools.cache
def _none() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], STORED)


def _put(known: dict[str, _Row], kinds: int, last: Mapping[str, int], rows: pa.RecordBatch) -> None:
    """`rows` are those of `last`, in its order. Large ones are held each by itself: what is held together goes with the
    last of them."""
    seqs, alone = rows.column("seq").to_pylist(), rows.nbytes > _TOGETHER_BYTES
    for at, kind in enumerate(last):
        if kind in known or len(known) < kinds:
            known[kind] = _Row(rows.take(pa.array([at])), 0, seqs[at]) if alone else _Row(rows, at, seqs[at])


def _last_of_each_kind(kinds: pa.Array) -> dict[str, int]:
    """The last row of each."""
    encoded = kinds.dictionary_encode()
    last = np.zeros(len(encoded.dictionary), np.int64)
    last[encoded.indices.to_numpy()] = np.arange(len(kinds))  # of one index, the last value stays
    return dict(zip(encoded.dictionary.to_pylist(), last.tolist(), strict=True))


# ------------------------------------------------------------------------------------- what a segment carries


def packed(rows: pa.RecordBatch) -> tuple[bytes, int]:
    """(these rows as a segment carries them, an Arrow IPC stream in base64; how many were left out because together
    they are too large)."""
    left_out = 0
    if rows.nbytes > MOST_BYTES:
        sizes = rows.column("size").to_numpy().astype(np.int64) + ENVELOPE_BYTES
        order = np.argsort(sizes, kind="stable")
        fits = np.sort(order[np.cumsum(sizes[order]) <= MOST_BYTES])
        left_out = len(rows) - len(fits)
        rows = rows.take(pa.array(fits))
    if not len(rows):
        return b"", left_out
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_batch(rows)
    return base64.b64encode(sink.getvalue()), left_out


def unpacked(carried: bytes) -> pa.RecordBatch:
    """What `packed` made of them. The segment has checked its bytes."""
    if not carried:
        return _none()
    with pa.ipc.open_stream(base64.b64decode(carried)) as stream:
        return stream.read_next_batch()


# ------------------------------------------------------------------------------------- what was latched at a moment


def latched_by(
    segments: Iterable[Segment],
    keeping: Mapping[Life, int],
    before_ns: int | None = None,
    end: Position | None = None,
) -> tuple[Latched, list[Damage]]:
    """What was latched before the messages of these segments that were published from `before_ns` on, by default after
    all of them; and what could not be read of it. The segments are in order, and are closed; rows from `end` on are not
    looked at."""
    latched, damage = Latched(), list[Damage]()
    if not keeping:
        return latched, damage
    topics = pa.array(sorted({topic for topic, _ in keeping}), pa.string())
    for number, segment in enumerate(segments):
        carried = unpacked(segment.latched)
        if number:  # the first carries what is latched when the rows begin, in the window or before
            carried = carried.filter(_is_before(carried, before_ns))
        for life, rows in _by_life(carried):
            latched.add_earlier(life, keeping.get(life, 0), rows)
        damage += segment.damage
        stop = end.row if end is not None and segment.number == end.segment else segment.end_row
        for index, run in enumerate(segment.runs):
            if run.row < stop and (before_ns is None or run.min_ns < before_ns):
                try:
                    for life, rows in _rows_of(segment, index, stop, topics, before_ns):
                        latched.add(life, keeping.get(life, 0), rows)
                except RecordingCorrupt as error:
                    damage.append(Damage(segment.number, run.row, run.end_row, 0, str(error)))
        segment.close()
    return latched, damage


class LatchedSegment(Segment):
    """Latched rows as if they were a segment, the first of an incident."""

    def __init__(self, latched: Latched, damage: Sequence[Damage]) -> None:
        self.number, self.sealed, self._rows = LATCHED, True, latched.rows()
        self.end_row, self.runs, self.schema = len(self._rows), [], self._rows.schema
        if self.end_row:
            bounds = pc.min_max(time_ns_of(self._rows)).as_py()
            self.runs = [Run(0, self.end_row, self._rows.nbytes, bounds["min"], bounds["max"])]
        self.damage = [Damage(LATCHED, 0, max(1, self.end_row), 0, str(each)) for each in damage]

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        return [with_columns(self._rows, columns)]

    def stats(self) -> list[TopicStats]:
        return topic_stats(pa.Table.from_batches([self._rows]))


def _rows_of(
    segment: Segment, index: int, stop: int, topics: pa.Array, before_ns: int | None
) -> Iterator[tuple[Life, pa.RecordBatch]]:
    """The rows of these topics in a run. Payloads are read only if there are any."""
    for columns in (segment.schema.names[:-1], segment.schema.names):
        row, found = segment.runs[index].row, []
        for batch in segment.read(index, columns):
            batch = batch.slice(0, max(0, stop - row))
            found.append(batch.filter(pc.and_(pc.is_in(batch.column("topic"), topics), _is_before(batch, before_ns))))
            row += len(batch)
        if not any(map(len, found)):
            return
    for batch in found:
        yield from _by_life(batch)


def _is_before(rows: pa.RecordBatch, before_ns: int | None) -> pa.Array:
    return pc.less(time_ns_of(rows), before_ns) if before_ns is not None else pa.repeat(pa.scalar(True), len(rows))


def _by_life(rows: pa.RecordBatch) -> Iterator[tuple[Life, pa.RecordBatch]]:
    for topic in pc.unique(rows.column("topic")).to_pylist():
        part = rows.filter(pc.equal(rows.column("topic"), topic))
        for epoch in pc.unique(part.column("epoch")).to_pylist():
            yield (topic, epoch), part.filter(pc.equal(part.column("epoch"), epoch))
