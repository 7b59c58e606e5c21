"""From a ring's batch to a recording's: columns added and retyped, no Python object for a message.

What is the same for a whole batch (recorder, topic, epoch) is a slice of a column made once; counters change
type by being looked at differently (the ring's stay below 2**63); only times and sizes are computed.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ringmain.recording.format import RING_SCHEMA, SCHEMA

native: Any = None
with contextlib.suppress(ImportError):  # not built, or not for this processor: the same columns, made more slowly
    from ringmain import _checksum as native

_CACHED_TOPICS = 256
_CHUNK_ROWS = 8192
_PUBLISH_TIME = SCHEMA.field("publish_time").type
_RECORD_TIME = SCHEMA.field("record_time").type
_NANOS = SCHEMA.field("publish_ns").type


class Envelope:
    """Wraps batches for one recorder."""

    def __init__(self, recorder: str) -> None:
        self._recorder = recorder
        self._constant: OrderedDict[tuple[str, int], tuple[pa.Array, pa.Array, pa.Array]] = OrderedDict()

    def wrap(
        self, topic: str, epoch: int, ring: pa.RecordBatch, recorded: Sequence[tuple[int, int]]
    ) -> tuple[pa.RecordBatch, int, int, int]:
        """(rows of SCHEMA, least publish time, greatest, messages lost before them). `recorded` says when the
        rows were taken from the ring: (rows, record time in ns), one entry a drain."""
        rows = ring.num_rows
        seq, time_ns, sender, kind, lost, data = ring.columns
        micros, nanos, least, greatest = _split_times(time_ns)
        recorders, topics, epochs = self._columns(topic, epoch, rows)
        lost = lost.view(pa.int64())
        columns = [
            recorders, topics, epochs, seq.view(pa.int64()), micros, nanos, _record_times(recorded, rows),
            sender, kind, lost, pc.binary_length(data), data,
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), least, greatest, pc.sum(lost).as_py()

    def _columns(self, topic: str, epoch: int, rows: int) -> tuple[pa.Array, pa.Array, pa.Array]:
        key = (topic, epoch)
        known = self._constant.get(key)
        if known is None or len(known[0]) < rows:
            room = max(rows, min(_CHUNK_ROWS, 2 * rows))
            values = (pa.scalar(self._recorder), pa.scalar(topic), pa.scalar(epoch, pa.int64()))
            known = tuple(pa.repeat(value, room) for value in values)
            assert known is not None
            self._constant[key] = known
            if len(self._constant) > _CACHED_TOPICS:
                self._constant.popitem(last=False)
        recorder, name, number = known
        return recorder.slice(0, rows), name.slice(0, rows), number.slice(0, rows)


def _split_times(time_ns: pa.Array) -> tuple[pa.Array, pa.Array, int, int]:
    """(microseconds, nanoseconds beyond them, the least time, the greatest)."""
    rows = len(time_ns)
    if native is not None:
        micros, nanos = pa.allocate_buffer(8 * rows), pa.allocate_buffer(2 * rows)
        least, greatest = native.split_times(time_ns.buffers()[1], time_ns.offset, rows, micros, nanos)
        times = pa.Array.from_buffers(_PUBLISH_TIME, rows, [None, micros], 0)
        return times, pa.Array.from_buffers(_NANOS, rows, [None, nanos], 0), least, greatest
    pairs = [divmod(t, 1000) for t in time_ns.to_pylist()]
    least, greatest = min(pairs), max(pairs)
    times = pa.array([p[0] for p in pairs], _PUBLISH_TIME)
    return (
        times, pa.array([p[1] for p in pairs], _NANOS), least[0] * 1000 + least[1], greatest[0] * 1000 + greatest[1]
    )  # fmt: skip


def _record_times(recorded: Sequence[tuple[int, int]], rows: int) -> pa.Array:
    if native is not None:
        micros, first = pa.allocate_buffer(8 * rows), 0
        for count, time_ns in recorded:
            native.fill(micros, first, count, time_ns // 1000)
            first += count
        return pa.Array.from_buffers(_RECORD_TIME, rows, [None, micros], 0)
    return pa.concat_arrays([pa.repeat(pa.scalar(ns // 1000, _RECORD_TIME), count) for count, ns in recorded])


def ring_batch(topic: str, batch: object) -> pa.RecordBatch:
    """What a topic's `recv_batch` gave, as a RecordBatch of RING_SCHEMA; anything else is told what is
    missing."""
    ring = batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch)
    if ring.schema.equals(RING_SCHEMA):
        return ring
    try:
        columns = [ring.column(field.name).cast(field.type) for field in RING_SCHEMA]
    except (KeyError, pa.ArrowException) as error:
        raise ValueError(
            f"topic {topic!r}: a batch to record must have the columns {', '.join(RING_SCHEMA.names)}; "
            f"this one has {', '.join(ring.schema.names)} ({error})"
        ) from error
    if any(column.null_count for column in columns):
        raise ValueError(f"topic {topic!r}: a batch to record must not have nulls")
    return pa.RecordBatch.from_arrays(columns, schema=RING_SCHEMA)
