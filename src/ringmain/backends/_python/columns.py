"""Messages as Arrow columns, for the backends written in Python: as the native `Batch`, made by pyarrow."""

from __future__ import annotations

from typing import Any

from ringmain.backends._python.reference_ring import Record


def columns(rows: list[tuple[Record, int]]) -> Any:
    """A `pyarrow.RecordBatch` of (message, lost before it): seq, time_ns, sender, kind, lost, data."""
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field("seq", pa.uint64(), nullable=False),
            pa.field("time_ns", pa.int64(), nullable=False),
            pa.field("sender", pa.string(), nullable=False),
            pa.field("kind", pa.string(), nullable=False),
            pa.field("lost", pa.uint64(), nullable=False),
            pa.field("data", pa.binary(), nullable=False),
        ]
    )
    arrays = [
        pa.array([record.seq for record, _ in rows], pa.uint64()),
        pa.array([record.time_ns for record, _ in rows], pa.int64()),
        pa.array([record.sender for record, _ in rows], pa.string()),
        pa.array([record.kind for record, _ in rows], pa.string()),
        pa.array([lost for _, lost in rows], pa.uint64()),
        pa.array([record.data for record, _ in rows], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
