"""The columns of messages that msgspec does not decode: numpy arrays and Arrow tables.

Invariant: an `..._fields` function names the arrays that its `..._builder` makes, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ringmain.typed import _tables
from ringmain.typed._arrow_types import list_offsets
from ringmain.typed._schema import Schema

Builder = Callable[[list[Any]], list[pa.Array]]


def array_fields(schema: Schema) -> list[pa.Field]:
    """`dtype`, `shape`, and the elements: as a list if the dtype is fixed and Arrow has it, else as bytes."""
    item = _item_type(schema)
    data = pa.field("data", pa.binary()) if item is None else pa.field("values", pa.list_(item))
    return [pa.field("dtype", pa.string()), pa.field("shape", pa.list_(pa.int64())), data]


def array_builder(schema: Schema) -> Builder:
    item = _item_type(schema)

    def build(arrays: list[Any]) -> list[pa.Array]:
        dtypes = pa.array([None if a is None else a.dtype.str for a in arrays], pa.string())
        shapes = pa.array([None if a is None else list(a.shape) for a in arrays], pa.list_(pa.int64()))
        if item is None:
            data = pa.array([None if a is None else a.tobytes() for a in arrays], pa.binary())
            return [dtypes, shapes, data]
        offsets, flat = list_offsets([None if a is None else a.reshape(-1) for a in arrays])
        values = pa.concat_arrays([pa.array([], item), *(pa.array(a, item) for a in flat)])
        return [dtypes, shapes, pa.ListArray.from_arrays(offsets, values)]

    return build


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


def _item_type(schema: Schema) -> Any:
    """Arrow's type for a fixed dtype; None if the dtype is not fixed, or Arrow or Spark has no type for it."""
    text = schema.params.get("dtype")
    if text is None:
        return None
    import numpy

    from ringmain.typed._arrays import parse_dtype

    dtype = parse_dtype(text, schema)
    if dtype.names is not None or dtype.kind not in "bif" or dtype.itemsize > 8 or dtype == numpy.float16:
        return None
    return pa.from_numpy_dtype(dtype.newbyteorder("="))
