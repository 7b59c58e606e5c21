"""From a ring's batch to a recording's: columns added and retyped, no Python object for a message.

What is the same for a whole batch (recorder, topic, epoch) is a slice of a column made once; counters change
type by being looked at differently (the ring's stay below 2**63); only times and sizes are computed.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ringmain.recording._format import RING_SCHEMA, SCHEMA

native: Any = None
with contextlib.suppress(ImportError):  # not built here: the same columns, made more slowly
    from ringmain import _recording as native

_CACHED_TOPICS = 256
_CHUNK_ROWS = 8192
_PUBLISH_TIME = SCHEMA.field("publish_time").type
_RECORD_TIME = SCHEMA.field("record_time").type
_NANOS = SCHEMA.field("publish_ns").type
_SIZE = SCHEMA.field("size").type


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
        derived = _derive(time_ns, data, lost)
        recorders, topics, epochs = self._columns(topic, epoch, rows)
        columns = [
            recorders, topics, epochs, seq.view(pa.int64()), derived.micros, derived.nanos,
            _record_times(recorded, rows), sender, kind, lost.view(pa.int64()), derived.sizes, data,
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA), derived.least_ns, derived.greatest_ns, derived.lost

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


class _Derived(NamedTuple):
    """What is computed from the ring's columns."""

    micros: pa.Array
    nanos: pa.Array
    sizes: pa.Array
    least_ns: int
    greatest_ns: int
    lost: int


def _derive(time_ns: pa.Array, data: pa.Array, lost: pa.Array) -> _Derived:
    rows = len(time_ns)
    if native is not None and time_ns.offset == data.offset == lost.offset:
        micros, nanos, sizes = (pa.allocate_buffer(width * rows) for width in (8, 2, 4))
        given = (time_ns.buffers()[1], data.buffers()[1], lost.buffers()[1])
        least, greatest, missed = native.derive(*given, time_ns.offset, rows, micros, nanos, sizes)
        return _Derived(
            pa.Array.from_buffers(_PUBLISH_TIME, rows, [None, micros], 0),
            pa.Array.from_buffers(_NANOS, rows, [None, nanos], 0),
            pa.Array.from_buffers(_SIZE, rows, [None, sizes], 0),
            least, greatest, missed,
        )  # fmt: skip
    times = time_ns.to_pylist()
    return _Derived(
        pa.array([t // 1000 for t in times], _PUBLISH_TIME),
        pa.array([t % 1000 for t in times], _NANOS),
        pc.binary_length(data), min(times), max(times), pc.sum(lost).as_py(),
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
    known = ring.schema.equals(RING_SCHEMA)
    try:
        columns = ring.columns if known else [ring.column(field.name).cast(field.type) for field in RING_SCHEMA]
    except (KeyError, pa.ArrowException) as error:
        raise ValueError(
            f"topic {topic!r}: a batch to record must have the columns {', '.join(RING_SCHEMA.names)}; "
            f"this one has {', '.join(ring.schema.names)} ({error})"
        ) from error
    if any(column.null_count for column in columns):
        raise ValueError(f"topic {topic!r}: a batch to record must not have nulls")
    return ring if known else pa.RecordBatch.from_arrays(columns, schema=RING_SCHEMA)
