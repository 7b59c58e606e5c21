"""The columns of structs: a field, a column. All payloads are one numpy array, so there is no work for each message.

Invariants: `struct_fields` names the arrays that `decode_structs` makes, in the same order, and gives them types that
Spark has: unsigned integers and half floats have the next wider type.
"""

from __future__ import annotations

from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.typed._schema import Schema
from ringmain.typed._structs import dtype_of_schema

_NUMBERS: dict[str, pa.DataType] = {
    "b1": pa.bool_(), "i1": pa.int8(), "i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(), "u1": pa.int16(),
    "u2": pa.int32(), "u4": pa.int64(), "u8": pa.decimal128(20, 0), "f2": pa.float32(), "f4": pa.float32(),
    "f8": pa.float64(),
}  # fmt: skip


def struct_fields(schema: Schema) -> list[pa.Field]:
    return _fields(dtype_of_schema(schema))


def _fields(dtype: numpy.dtype[Any]) -> list[pa.Field]:
    return [pa.field(name, _arrow_type(dtype[name])) for name in dtype.names or ()]


def _arrow_type(dtype: numpy.dtype[Any]) -> pa.DataType:
    if dtype.subdtype is not None:
        inner = _arrow_type(dtype.base)
        for _ in dtype.shape:
            inner = pa.list_(inner)
        return inner
    if dtype.names is not None:
        return pa.struct(_fields(dtype))
    match dtype.kind:
        case "c":
            part = _NUMBERS[f"f{dtype.itemsize // 2}"]
            return pa.struct([pa.field("real", part), pa.field("imag", part)])
        case "M":
            return pa.timestamp("us")
        case "m":
            return pa.duration("us")
        case "U":
            return pa.string()
        case "S" | "V":
            return pa.binary()
    return _NUMBERS[dtype.str[1:]]


def decode_structs(payload: pa.Array, schema: Schema, columns: pa.Schema) -> tuple[pa.StructArray, pa.StringArray]:
    """See `ringmain.typed.decode_column`."""
    dtype = dtype_of_schema(schema)
    fits = pc.fill_null(pc.equal(pc.binary_length(payload), dtype.itemsize), False)
    if fits.false_count == 0:
        return _rows(payload, dtype, columns), pa.nulls(len(payload), pa.string())
    rows = _rows(payload.filter(fits), dtype, columns)
    # A row that does not fit has no index, and becomes null.
    order = numpy.cumsum(fits.to_numpy(zero_copy_only=False)) - 1
    index = pa.array(order, pa.int64(), mask=~fits.to_numpy(zero_copy_only=False))
    reasons = [_reason(size, dtype.itemsize) for size in pc.binary_length(payload).to_pylist()]
    return rows.take(index), pa.array(reasons, pa.string())


def _rows(payload: pa.Array, dtype: numpy.dtype[Any], columns: pa.Schema) -> pa.StructArray:
    return pa.StructArray.from_arrays(_arrays(_records(payload, dtype), dtype), fields=list(columns))


def _reason(size: int | None, wanted: int) -> str | None:
    if size is None:
        return "no payload"
    return None if size == wanted else f"the struct has {wanted} bytes, the payload has {size}"


def _records(payload: pa.Array, dtype: numpy.dtype[Any]) -> numpy.ndarray[Any, Any]:
    """Payloads of the right size, which lie one after the other in their buffer."""
    if not len(payload):
        return numpy.zeros(0, dtype)
    _, offsets, data = payload.buffers()
    wide = pa.types.is_large_binary(payload.type)
    first = numpy.frombuffer(offsets, numpy.int64 if wide else numpy.int32)[payload.offset]
    return numpy.frombuffer(data, dtype, count=len(payload), offset=int(first))


def _arrays(records: numpy.ndarray[Any, Any], dtype: numpy.dtype[Any]) -> list[pa.Array]:
    return [_array(records[name], dtype[name]) for name in dtype.names or ()]


def _array(values: numpy.ndarray[Any, Any], dtype: numpy.dtype[Any]) -> pa.Array:
    """`values` has a row for each message; where `dtype` is an array, the other dimensions are its own."""
    if dtype.subdtype is not None:
        items = _array(values.reshape(-1), dtype.base)
        for length in reversed(dtype.shape):
            ends = numpy.arange(0, len(items) + 1, length, dtype=numpy.int32)
            items = pa.ListArray.from_arrays(pa.array(ends), items)
        return items
    if dtype.names is not None:
        return pa.StructArray.from_arrays(_arrays(values, dtype), fields=list(_arrow_type(dtype)))
    wanted = _arrow_type(dtype)
    match dtype.kind:
        case "c":
            part = numpy.dtype(f"f{dtype.itemsize // 2}")
            parts = [_array(values.real, part), _array(values.imag, part)]
            return pa.StructArray.from_arrays(parts, fields=list(wanted))
        case "M" | "m":
            return pa.array(values.astype(f"{dtype.kind}8[us]"), wanted)
        case "S" | "U" | "V":
            return pa.array(values.tolist(), wanted)
    return pa.array(numpy.ascontiguousarray(values, dtype.newbyteorder("="))).cast(wanted)
