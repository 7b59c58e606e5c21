"""The columns of a numpy array: a message of its own, or a field of one.

Invariant: `array_fields` names the arrays that `array_builder` makes, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from ringmain.typed._schema import Schema

Builder = Callable[[list[Any]], list[pa.Array]]


def array_fields(dtype: str | None, schema: Schema) -> list[pa.Field]:
    """`dtype`, `shape`, and the elements: as a list if the dtype is fixed and Arrow has it, else as bytes."""
    item = _item_type(dtype, schema)
    data = pa.field("data", pa.binary()) if item is None else pa.field("values", pa.list_(item))
    return [pa.field("dtype", pa.string()), pa.field("shape", pa.list_(pa.int64())), data]


def array_builder(dtype: str | None, schema: Schema) -> Builder:
    item = _item_type(dtype, schema)

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


def list_offsets(values: Sequence[Any]) -> tuple[pa.Array, list[Any]]:
    """For `ListArray.from_arrays`: where each list begins, null where a value is None; and the values that are not."""
    present = [v for v in values if v is not None]
    ends = list(accumulate(map(len, present), initial=0))
    if len(present) == len(values):
        return pa.array(ends, pa.int32()), present
    starts = iter(ends)
    return pa.array([None if v is None else next(starts) for v in values] + [ends[-1]], pa.int32()), present


def _item_type(text: str | None, schema: Schema) -> Any:
    """Arrow's type for a fixed dtype; None if the dtype is not fixed, or Arrow or Spark has no type for it."""
    if text is None:
        return None
    import numpy

    from ringmain.typed._arrays import parse_dtype

    dtype = parse_dtype(text, schema)
    if dtype.names is not None or dtype.kind not in "bif" or dtype.itemsize > 8 or dtype == numpy.float16:
        return None
    return pa.from_numpy_dtype(dtype.newbyteorder("="))
