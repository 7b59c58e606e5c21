"""The columns of Arrow tables.

Invariant: an `..._fields` function names the arrays that its `..._builder` makes, in the same order.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from ringmain.typed import _tables
from ringmain.typed._array_columns import Builder, list_offsets
from ringmain.typed._schema import Schema


def table_fields(schema: Schema) -> list[pa.Field]:
    """`num_rows`, and the rows: as a list of structs if the Arrow schema is fixed, else as the IPC stream."""
    fixed = _tables.fixed_schema(schema)
    count = pa.field("num_rows", pa.int64())
    if fixed is None:
        return [count, pa.field("ipc", pa.binary())]
    return [count, pa.field("rows", pa.list_(pa.struct(list(fixed))))]


def table_builder(schema: Schema) -> Builder:
    fixed = _tables.fixed_schema(schema)
    encode = _tables.table_codec_from_schema(schema).encode

    def build(tables: list[Any]) -> list[pa.Array]:
        counts = pa.array([None if t is None else t.num_rows for t in tables], pa.int64())
        if fixed is None:
            streams = [None if t is None else bytes(encode(t)) for t in tables]
            return [counts, pa.array(streams, pa.binary())]
        offsets, present = list_offsets(tables)
        chunks = [t.to_struct_array() for t in present]
        parts = [part for c in chunks for part in (c.chunks if isinstance(c, pa.ChunkedArray) else [c])]
        rows = pa.concat_arrays([pa.array([], pa.struct(list(fixed))), *parts])
        return [counts, pa.ListArray.from_arrays(offsets, rows)]

    return build
