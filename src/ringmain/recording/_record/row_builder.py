"""From a ring's batch to rows of a recording: columns added and retyped, no Python object for a message.

Constant columns are slices of a column made once for each topic. The ring's counters change type by a view of the same
bytes (they stay below 2**63). Only times and sizes are computed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from ringmain import _recording
from ringmain.recording._format import EXTENSION, RING_COLUMNS, RING_SCHEMA, SCHEMA, STORED, TABLE

_CACHED_TOPICS = 256
_CHUNK_ROWS = 8192

# What is looked up in the table and in the ring's schema once, and not for every batch.
_TIMES, _DATA, _LOST = (RING_SCHEMA.get_field_index(name) for name in ("time_ns", "data", "lost"))
_COMPUTED = [(c.name, c.type, c.type.bit_width // 8) for c in TABLE if c.source == "computed"]
_RING = {c.name: RING_SCHEMA.get_field_index(c.ring) for c in TABLE if c.source == "ring"}
_RING[EXTENSION.name] = RING_SCHEMA.get_field_index("extension")
_VIEWED = {c.name: c.type for c in TABLE if c.source == "ring" and RING_SCHEMA.field(c.ring).type != c.type}


class Rows(NamedTuple):
    """Rows, the bounds of their publish times, and how many messages were lost before them."""

    batch: pa.RecordBatch
    min_ns: int
    max_ns: int
    lost: int


class RowBuilder:
    """Builds the rows of one recorder."""

    def __init__(self, recorder: str, schema: pa.Schema = STORED) -> None:
        self._recorder, self._schema = recorder, schema
        self._constants: OrderedDict[tuple[str, int], dict[str, pa.Array]] = OrderedDict()

    def build(self, topic: str, epoch: int, ring: pa.RecordBatch, recorded: Sequence[tuple[int, int]]) -> Rows:
        """`recorded` says when the rows were taken from the ring: (rows, record time in ns) for each drain."""
        rows = ring.num_rows
        constant = self._constant(topic, epoch, rows)
        computed, min_ns, max_ns, lost = _compute(ring, recorded)
        columns = []
        for name in self._schema.names:
            if name in _RING:
                taken = ring.column(_RING[name])
                columns.append(taken.view(_VIEWED[name]) if name in _VIEWED else taken)
            else:
                columns.append(computed[name] if name in computed else constant[name].slice(0, rows))
        return Rows(pa.RecordBatch.from_arrays(columns, schema=self._schema), min_ns, max_ns, lost)

    def _constant(self, topic: str, epoch: int, rows: int) -> dict[str, pa.Array]:
        """The constant columns, at least so many rows of each."""
        known = self._constants.get((topic, epoch))
        if known is None or len(known["topic"]) < rows:
            room = max(rows, min(_CHUNK_ROWS, 2 * rows))
            values = {"recorder": self._recorder, "topic": topic, "epoch": epoch}
            known = {name: pa.repeat(pa.scalar(v, SCHEMA.field(name).type), room) for name, v in values.items()}
            self._constants[topic, epoch] = known
            if len(self._constants) > _CACHED_TOPICS:
                self._constants.popitem(last=False)
        return known


def _compute(ring: pa.RecordBatch, recorded: Sequence[tuple[int, int]]) -> tuple[dict[str, pa.Array], int, int, int]:
    """(the computed columns, least publish time, greatest, messages lost)."""
    rows = ring.num_rows
    times, data, lost = ring.column(_TIMES), ring.column(_DATA), ring.column(_LOST)
    if not times.offset == data.offset == lost.offset:
        times, data, lost = (pa.concat_arrays([column]) for column in (times, data, lost))  # copies that begin at 0
    buffers = {name: pa.allocate_buffer(width * rows) for name, _, width in _COMPUTED}
    min_ns, max_ns, missed = _recording.derive(
        times.buffers()[1], data.buffers()[1], lost.buffers()[1], times.offset, rows,
        buffers["publish_time"], buffers["publish_ns"], buffers["size"],
    )  # fmt: skip
    first = 0
    for count, time_ns in recorded:
        _recording.fill(buffers["record_time"], first, count, time_ns // 1000)
        first += count
    made = {name: pa.Array.from_buffers(kind, rows, [None, buffers[name]], 0) for name, kind, _ in _COMPUTED}
    return made, min_ns, max_ns, missed


def ring_batch(topic: str, batch: object) -> pa.RecordBatch:
    """What a topic's `recv_batch` gave, as a RecordBatch of RING_SCHEMA; raises ValueError for anything else."""
    ring = batch if isinstance(batch, pa.RecordBatch) else pa.record_batch(batch)
    if "extension" not in ring.schema.names:  # made by hand
        ring = ring.append_column(RING_SCHEMA.field("extension"), pa.repeat(pa.scalar(b""), len(ring)))
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


def ring_rows(rows: int, **given: object) -> pa.RecordBatch:
    """Messages that came from no ring, as a batch of RING_SCHEMA. A column is given as values, or as one value for all;
    one that is not given is as RING_COLUMNS says."""
    unknown = given.keys() - set(RING_SCHEMA.names)
    if unknown:
        raise TypeError(f"a ring has no column {', '.join(sorted(unknown))}")
    arrays = []
    for column in RING_COLUMNS:
        values = given.get(column.name, column.absent)
        if values is None:
            raise TypeError(f"column {column.name} is to be given")
        if isinstance(values, pa.Array):
            arrays.append(values)
        elif isinstance(values, list | range):
            arrays.append(pa.array(values, column.type))
        else:
            arrays.append(pa.repeat(pa.scalar(values, column.type), rows))
    return pa.RecordBatch.from_arrays(arrays, schema=RING_SCHEMA)
