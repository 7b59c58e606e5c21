"""The columns of messages that are not msgspec's: numpy arrays and Arrow tables.

Invariant: the fields named here are the arrays built here, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pyarrow as pa

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
            return [
                dtypes,
                shapes,
                pa.array([None if a is None else a.tobytes() for a in arrays], pa.binary()),
            ]
        flat = [a.reshape(-1) for a in arrays if a is not None]
        ends = iter(accumulate((a.size for a in flat), initial=0))
        offsets = pa.array([None if a is None else next(ends) for a in arrays] + [next(ends)], pa.int32())
        values = pa.concat_arrays([pa.array(a, item) for a in flat]) if flat else pa.array([], item)
        return [dtypes, shapes, pa.ListArray.from_arrays(offsets, values)]

    return build


def table_fields(schema: Schema) -> list[pa.Field]:
    """`num_rows`, and the rows: as a list of structs if the Arrow schema is fixed, else as the IPC stream."""
    fixed = _fixed(schema)
    count = pa.field("num_rows", pa.int64())
    if fixed is None:
        return [count, pa.field("ipc", pa.binary())]
    return [count, pa.field("rows", pa.list_(pa.struct(list(fixed))))]


def table_builder(schema: Schema) -> Builder:
    from ringmain.typed._codecs import codec_from_schema

    fixed = _fixed(schema)
    encode = codec_from_schema(schema).encode

    def build(tables: list[Any]) -> list[pa.Array]:
        counts = pa.array([None if t is None else t.num_rows for t in tables], pa.int64())
        if fixed is None:
            streams = [None if t is None else bytes(encode(t)) for t in tables]
            return [counts, pa.array(streams, pa.binary())]
        there = [
            pa.table(t) if isinstance(t, pa.Table) else pa.Table.from_batches([t]) for t in tables if t is not None
        ]
        ends = iter(accumulate((t.num_rows for t in there), initial=0))
        offsets = pa.array([None if t is None else next(ends) for t in tables] + [next(ends)], pa.int32())
        rows = pa.concat_tables([fixed.empty_table(), *there]).to_struct_array().combine_chunks()
        if isinstance(rows, pa.ChunkedArray):  # combining no chunks, or more than fit one, leaves it chunked
            rows = pa.concat_arrays([pa.array([], rows.type), *rows.chunks])
        return [counts, pa.ListArray.from_arrays(offsets, rows)]

    return build


def _fixed(schema: Schema) -> Any:
    from ringmain.typed._tables import fixed_schema

    return fixed_schema(schema)


def _item_type(schema: Schema) -> Any:
    """Arrow's type for a fixed dtype, or None: no dtype is fixed, or Arrow and Spark have none for it."""
    text = schema.params.get("dtype")
    if text is None:
        return None
    import numpy

    from ringmain.typed._arrays import parse_dtype

    dtype = parse_dtype(text, schema)
    if dtype.names is not None or dtype.kind not in "bif" or dtype.itemsize > 8 or dtype == numpy.float16:
        return None
    return pa.from_numpy_dtype(dtype.newbyteorder("="))
