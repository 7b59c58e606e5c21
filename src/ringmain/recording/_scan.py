"""Reading ranges of rows as Arrow batches of exactly the columns that are asked for: by Spark's Python workers, by the
tasks of the pipeline, by a lake's bronze.

The invariant owned here: *no row is lost silently*. A row that cannot be read is an error; with `failOnDataLoss=false`
it is a gap, which is counted and recorded next to the recording's consumers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import MessageTooLarge, RecordingCorrupt, RecordingNotFound
from ringmain.recording._decode import ERROR, PAYLOAD, Decoding
from ringmain.recording._filters import Filter
from ringmain.recording._format import (
    COLUMNS,
    CONSUMERS,
    HOST,
    INCIDENTS_COLUMN,
    LATCHED,
    LATCHED_COLUMN,
    PREFIX,
    SCHEMA,
    consumer_path,
    decoded_fields,
    is_ours,
)
from ringmain.recording._in_incidents import InIncidents
from ringmain.recording._meta import host_of, read_meta
from ringmain.recording._plan import Range
from ringmain.recording._reader import Recording
from ringmain.recording._segment.segment import Damage, TopicStats
from ringmain.recording._segment.store import Kept, SegmentRef, Store, reading

POSITION_COLUMNS = ("segment", "row")
BATCH_BYTES = 32 << 20  # a sealed row group can be larger; smaller batches need less memory in a worker
POSITION_FIELDS = [pa.field(name, pa.int64(), nullable=False) for name in POSITION_COLUMNS]


@dataclass(frozen=True)
class Scan:
    """Which rows and columns to read of a range."""

    schema: pa.Schema  # of the batches: Spark refuses any other
    topics: tuple[str, ...] | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    first_seq: int | None = None
    end_seq: int | None = None
    decoding: Decoding | None = None
    fail_on_loss: bool = True
    max_payload: int | None = None
    consumer: str | None = None

    def filter(self, kept: Kept | None = None) -> Filter:
        """Which rows; of an incident, those in its window."""
        since_ns, until_ns = self.since_ns, self.until_ns
        if kept is not None:
            since_ns = kept.since_ns if since_ns is None else max(since_ns, kept.since_ns)
            until_ns = kept.until_ns if until_ns is None else min(until_ns, kept.until_ns)
        return Filter(self.topics, since_ns, until_ns, self.first_seq, self.end_seq)

    def read(self, wanted_range: Range, left_out: Callable[[int], None] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a range that match the filters. `left_out` is told of those that do not, how many they are."""
        with reading(wanted_range.ref.store.shown):
            yield from self._read(wanted_range, left_out)

    def _read(self, wanted_range: Range, left_out: Callable[[int], None] | None) -> Iterator[pa.RecordBatch]:
        number = wanted_range.ref.number
        wanted = self.filter(wanted_range.ref.store.kept if number != LATCHED else None)
        names = self._read_names()
        needed = tuple(name for name in COLUMNS if name in names or name in wanted.columns) or ("seq",)
        store = wanted_range.ref.store
        host = wanted_range.host or ""
        if HOST.name in names and wanted_range.host is None:
            host = host_of(read_meta(store), store.recorded_in(number))
        kept = InIncidents(store) if INCIDENTS_COLUMN.name in names else None
        gaps = Gaps(store, wanted_range.key, self.consumer, self.fail_on_loss)
        try:
            segment = wanted_range.ref.open(known=True)
        except (RecordingNotFound, RecordingCorrupt) as error:
            gaps.note(number, wanted_range.first, wanted_range.end, error)
            return

        def on_damage(damage: Damage) -> None:
            end = wanted_range.end if damage.end_row is None else min(wanted_range.end, damage.end_row)
            if damage.row < wanted_range.end and end > wanted_range.first:
                gaps.note(damage.segment, max(damage.row, wanted_range.first), end, damage)

        segment.dictionaries = any(pa.types.is_dictionary(f.type) for f in self.schema)
        try:
            for row, batch in segment.batches(
                wanted_range.first,
                wanted_range.end,
                needed,
                min_ns=wanted.since_ns if left_out is None else None,
                max_ns=wanted.until_ns if left_out is None else None,
                on_damage=on_damage,
            ):
                there = len(batch)
                rows, batch = wanted.apply(row, batch) if wanted.columns else (None, batch)
                if left_out is not None:
                    left_out(there - len(batch))
                self._check_size(wanted_range, batch)
                for piece, piece_rows in _pieces(batch, rows):
                    numbers = piece_rows if piece_rows is not None else pa.array(np.arange(row, row + len(piece)))
                    yield self._shape(wanted_range, host, kept, piece, numbers)
                    row += len(piece)
        finally:
            segment.close()

    def _ours(self) -> dict[str, str]:
        """The columns of ours that are wanted, and what a recording calls them."""
        if self.decoding is None:
            return {name: name for name in self.schema.names}
        return {name: name.removeprefix(PREFIX) for name in self.schema.names if is_ours(name)}

    def _read_names(self) -> set[str]:
        """The columns to read of a recording."""
        ours = self._ours()
        decodes = len(ours) < len(self.schema.names) or not ours.keys().isdisjoint((PAYLOAD.name, ERROR.name))
        more = InIncidents.needs if INCIDENTS_COLUMN.name in ours.values() else ()
        return {*ours.values(), *more, *(("payload", "epoch") if self.decoding is not None and decodes else ())}

    def _check_size(self, source: Range, batch: pa.RecordBatch) -> None:
        if self.max_payload is None or batch.nbytes <= self.max_payload or "payload" not in batch.schema.names:
            return
        longest = pc.max(pc.binary_length(batch.column("payload"))).as_py() or 0
        if longest > self.max_payload:
            raise MessageTooLarge(
                f"segment {source.ref.number:09d} of {source.key!r} holds a message of {longest:,} bytes, more than "
                f"the {self.max_payload:,} of maxPayload"
            )

    def _shape(
        self, source: Range, host: str, kept: InIncidents | None, batch: pa.RecordBatch, rows: pa.Array
    ) -> pa.RecordBatch:
        """The columns that are wanted, in their order."""
        decoded: dict[str, pa.Array] = {}
        if self.decoding is not None and "payload" in batch.schema.names:
            decoding = self._with_lives(source.ref.store, batch)
            columns, reasons = decoding.apply(batch)
            decoded = dict(zip((f.name for f in decoding.columns()), columns, strict=True))
            decoded[ERROR.name] = reasons
            decoded[PAYLOAD.name] = pc.if_else(reasons.is_valid(), batch.column("payload"), None)
        arrays, ours = [], self._ours()
        for name in self.schema.names:
            if name in decoded:
                arrays.append(decoded[name])
            elif ours[name] == "segment":
                arrays.append(pa.repeat(pa.scalar(source.ref.number, pa.int64()), len(batch)))
            elif ours[name] == HOST.name:
                arrays.append(_repeated(host, len(batch), self.schema.field(name).type))
            elif ours[name] == "row":
                arrays.append(rows)
            elif ours[name] == LATCHED_COLUMN.name:
                arrays.append(pa.repeat(source.ref.number == LATCHED, len(batch)))
            elif ours[name] == INCIDENTS_COLUMN.name:
                assert kept is not None
                arrays.append(kept.of(source.ref.number, rows, batch).cast(self.schema.field(name).type))
            else:
                arrays.append(_as(batch.column(ours[name]), self.schema.field(name).type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _with_lives(self, store: Store, batch: pa.RecordBatch) -> Decoding:
        """A topic that was created again after the query started has a life that is not in the plan."""
        assert self.decoding is not None
        if all(epoch in self.decoding.lives for epoch in pc.unique(batch.column("epoch")).to_pylist()):
            return self.decoding
        return replace(self.decoding, lives={**self.decoding.lives, **lives_of([store], self.decoding.topic)})


def _repeated(text: str, count: int, type_: pa.DataType) -> pa.Array:
    if not pa.types.is_dictionary(type_):
        return pa.repeat(pa.scalar(text), count)
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, type_.index_type), count), pa.array([text]))


def _as(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A text as a dictionary, if that is wanted and it is none."""
    return column.dictionary_encode() if pa.types.is_dictionary(type_) and column.type != type_ else column


def _pieces(batch: pa.RecordBatch, rows: pa.Array | None) -> Iterator[tuple[pa.RecordBatch, pa.Array | None]]:
    count = len(batch)
    if count == 0:
        return
    step = max(1, count * BATCH_BYTES // max(1, batch.nbytes))
    for at in range(0, count, step):
        yield batch.slice(at, step), None if rows is None else rows.slice(at, step)


class Gaps:
    """Raises, or counts and records, rows that cannot be read."""

    def __init__(self, store: Store, key: str, consumer: str | None, fail: bool) -> None:
        self._store, self._key, self._consumer, self._fail = store, key, consumer, fail

    def unreadable(self, ref: SegmentRef, error: Exception) -> None:
        """A segment that cannot be opened. Its number of rows is not known."""
        self.note(ref.number, 0, None, error)

    def note(self, segment: int, row: int, end_row: int | None, why: object) -> None:
        if self._fail:
            hint = (
                "failOnDataLoss=false turns such losses into counted gaps (in a pipeline: fail_on_data_loss=False, "
                "--skip-damage)"
            )
            kind = RecordingNotFound if isinstance(why, RecordingNotFound) else RecordingCorrupt
            cause = why if isinstance(why, Exception) else None
            raise kind(f"recording {self._store.shown}: {why}; {hint}") from cause
        rows = None if end_row is None else end_row - row
        gap = {"time_ns": time.time_ns(), "recording": self._key, "segment": segment, "row": row, "rows": rows}
        line = json.dumps({**gap, "reason": str(why)})
        print(f"ringmain: gap: {line}", file=sys.stderr)
        directory = self._store.directory
        if directory is not None and self._consumer is not None:
            path = consumer_path(directory, self._consumer).with_suffix(".gaps")
            path.parent.mkdir(exist_ok=True)
            with open(path, "a", encoding="utf-8") as file:  # appending a short line is atomic
                file.write(line + "\n")


def gaps(path: str, consumer: str | None = None) -> list[dict[str, Any]]:
    """The rows of a recording that streams with `failOnDataLoss=false` could not read, when, and why. If a batch ran
    twice, its gaps are listed twice."""
    store = Store.of(path)
    if store.directory is None:
        return []
    pattern = f"{consumer}.gaps" if consumer is not None else "*.gaps"
    files = sorted((store.directory / CONSUMERS).glob(pattern))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def stats_by_host(recording: Recording) -> Iterator[tuple[str, list[TopicStats]]]:
    """(the host, what it recorded), segment by segment: a recording may have been continued on another host."""
    meta = read_meta(recording.store) or recording.meta
    if recording.incident is not None:
        yield host_of(meta, recording.store.recorded_in(LATCHED)), recording.lives()
        return
    for ref in recording.segments():
        with recording.opened(ref) as segment:
            if segment is not None:
                yield host_of(meta, ref.number), segment.stats()


def lives_of(stores: Iterable[Store], topic: str) -> dict[int, bytes]:
    """{epoch: schema} of every life of a topic."""
    lives: dict[int, bytes] = {}
    for store in stores:
        meta = read_meta(store)
        if meta is None:
            continue
        for entry in meta.topics:
            if entry.name == topic and (entry.schema or entry.epoch not in lives):
                lives[entry.epoch] = entry.schema
    return lives


def known_topics(stores: Iterable[Store]) -> list[str]:
    """Every topic that the recordings' meta.json names."""
    found: set[str] = set()
    for store in stores:
        meta = read_meta(store)
        if meta is not None:
            found |= {entry.name for entry in meta.topics}
        elif store.directory is None or os.path.isdir(store.directory):
            found |= set(
                Recording(
                    store.directory or store.sealed_uri, skip_damage=True, storage_options=dict(store.options)
                ).topics()
            )
    return sorted(found)


def with_dictionaries(schema: pa.Schema) -> pa.Schema:
    """The same columns, with texts as dictionaries: what is done with texts that are mostly the same costs less so."""
    texts = pa.dictionary(pa.int32(), pa.string())
    return pa.schema([f.with_type(texts) if pa.types.is_string(f.type) else f for f in schema])


def source_schema(
    decoding: Decoding | None, positions: bool, host: bool, incidents: bool = False, latched: bool = False
) -> pa.Schema:
    """All columns that can be read."""
    last = [
        *((HOST,) if host else ()), *((INCIDENTS_COLUMN,) if incidents else ()), *((LATCHED_COLUMN,) if latched else ())
    ]  # fmt: skip
    more = [*(POSITION_FIELDS if positions else ()), *last]
    if decoding is None:
        return pa.schema([*SCHEMA, *more])
    envelope = decoded_fields(list(SCHEMA)[:-1])
    return pa.schema([*envelope, PAYLOAD, *decoding.columns(), ERROR, *decoded_fields(more)])
