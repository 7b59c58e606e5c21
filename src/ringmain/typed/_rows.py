"""Messages → Arrow arrays: natively where _packed_columns.py can, else through objects, a column at a time.

Invariant: a bad row affects only itself. Columns are built as a whole; only if Arrow refuses one are the rows tried
one by one, to find those it refuses (an int beyond 64 bits, for example), which become nulls with a reason.

Columns are built from one list per field rather than from a list of dicts: `attrgetter` makes that list in C, and
nested records work the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

import msgspec
import pyarrow as pa

from ringmain.typed import _array_values, _model, _table_columns
from ringmain.typed._array_columns import array_builder, list_offsets
from ringmain.typed._arrow_types import arrow_type, is_json
from ringmain.typed._codec import Buffer
from ringmain.typed._codecs import codec_from_schema, is_builtin
from ringmain.typed._materialise import is_dict_like
from ringmain.typed._packed_columns import decode_packed
from ringmain.typed._schema import Schema

_NO_PAYLOAD = "no payload"
_REFUSALS = (pa.ArrowException, OverflowError, ValueError, TypeError)
_json = msgspec.json.Encoder(enc_hook=_array_values.to_json).encode


Values = list[Any]


def decode_rows(payload: pa.Array, schema: Schema, columns: pa.Schema) -> tuple[pa.StructArray, pa.StringArray]:
    """See `ringmain.typed.decode_column`."""
    if schema.codec == "bytes" or not is_builtin(schema.codec):
        return _unchanged(payload, columns)
    if schema.codec == "struct":
        from ringmain.typed._struct_columns import decode_structs

        return decode_structs(payload, schema, columns)
    packed = decode_packed(payload, schema, columns)
    if packed is None:
        return _decode_objects(payload, schema, columns)
    values = pa.StructArray.from_arrays(packed.arrays, fields=list(columns))
    if not packed.refused:
        return values, pa.nulls(len(payload), pa.string())
    others, whys = _decode_objects(payload.take(pa.array(packed.refused)), schema, columns)
    order = list(range(len(payload)))
    for at, row in enumerate(packed.refused, len(payload)):
        order[row] = at
    reasons = pa.concat_arrays([pa.nulls(len(payload), pa.string()), whys])
    return pa.concat_arrays([values, others]).take(pa.array(order)), reasons.take(pa.array(order))


def _decode_objects(payload: pa.Array, schema: Schema, columns: pa.Schema) -> tuple[pa.StructArray, pa.StringArray]:
    """The same, through a Python object for each message."""
    payloads: list[bytes | None] = payload.to_pylist()
    reasons: list[str | None] = [None] * len(payloads)
    decode, build = codec_from_schema(schema).decode, _builder(schema)
    try:
        values = list(map(decode, payloads))  # type: ignore[arg-type]
    except Exception:
        values = [_decode_one(decode, p, reasons, i) for i, p in enumerate(payloads)]
    try:
        arrays = build(values)
    except _REFUSALS:
        for i, value in enumerate(values):
            if (reason := _refusal(build, value)) is not None:
                values[i], reasons[i] = None, reason
        arrays = build(values)
    mask = pa.array([reason is not None for reason in reasons]) if any(reasons) else None
    return pa.StructArray.from_arrays(arrays, fields=list(columns), mask=mask), pa.array(reasons, pa.string())


def _unchanged(payload: pa.Array, columns: pa.Schema) -> tuple[pa.StructArray, pa.StringArray]:
    missing = payload.is_null()
    struct = pa.StructArray.from_arrays([payload.cast(pa.binary())], fields=list(columns), mask=missing)
    reasons = [_NO_PAYLOAD if gone else None for gone in missing.to_pylist()] if payload.null_count else None
    return struct, pa.array(reasons, pa.string()) if reasons else pa.nulls(len(payload), pa.string())


def _decode_one(decode: Callable[[Buffer], Any], payload: bytes | None, reasons: list[str | None], i: int) -> Any:
    if payload is None:
        reasons[i] = _NO_PAYLOAD
        return None
    try:
        return decode(payload)
    except Exception as error:  # any error that a codec raises is this row's reason
        reasons[i] = str(error) or type(error).__name__
        return None


def _refusal(build: Callable[[Values], list[pa.Array]], value: Any) -> str | None:
    try:
        build([value])
    except _REFUSALS as error:
        return f"no column takes it: {error}"
    return None


def _builder(schema: Schema) -> Callable[[Values], list[pa.Array]]:
    """The function that turns decoded messages into the columns."""
    if schema.codec == "ndarray":
        return array_builder(schema.params.get("dtype"), schema)
    if schema.codec == "arrow":
        return _table_columns.table_builder(schema)
    root = schema.root
    if isinstance(root, _model.Ref) and not is_json(root, schema):
        record = schema.records[root.record]
        return lambda values: _record_arrays(record, values, schema)
    return lambda values: [_array(root, values, schema)]


def _record_arrays(record: _model.Record, values: Values, schema: Schema) -> list[pa.Array]:
    if None in values:
        # A missing row is null in every column; the mask of the struct above marks it.
        there = [v for v in values if v is not None]
        index = pa.array(_running_index(values), pa.int32())
        return [array.take(index) for array in _record_arrays(record, there, schema)]
    named = is_dict_like(record)
    arrays = []
    for field in record.fields:
        column = [v.get(field.key) for v in values] if named else list(map(attrgetter(field.name), values))
        arrays.append(_array(field.type, column, schema))
    return arrays


def _running_index(values: Values) -> Iterator[int | None]:
    count = -1
    for value in values:
        if value is not None:
            count += 1
        yield None if value is None else count


def _array(word: _model.Type, values: Values, schema: Schema) -> pa.Array:
    if is_json(word, schema):
        return pa.array([None if v is None else _json(v).decode() for v in values], pa.string())
    match word:
        case _model.Scalar(name="time"):
            return pa.array([None if v is None else v.isoformat() for v in values], pa.string())
        case _model.Scalar(name="uuid" | "decimal"):
            return pa.array([None if v is None else str(v) for v in values], pa.string())
        case _model.Scalar(name="ndarray"):
            return _struct(array_builder(word.dtype, schema)(values), list(arrow_type(word, schema)), values)
        case _model.Scalar() | _model.Choice():
            return pa.array(values, arrow_type(word, schema))
        case _model.Array(of=of):
            offsets, there = list_offsets(values)
            child = _array(of, list(chain.from_iterable(there)), schema)
            return pa.ListArray.from_arrays(offsets, child)
        case _model.Map(key=key, value=value):
            offsets, there = list_offsets(values)
            keys = _array(key, list(chain.from_iterable(there)), schema)
            items = _array(value, list(chain.from_iterable(map(dict.values, there))), schema)
            return pa.MapArray.from_arrays(offsets, keys, items)
        case _model.Tuple(of=items):
            blank = (None,) * len(items)
            rows = [blank if v is None else v for v in values] if None in values else values
            parts = [_array(t, list(map(itemgetter(i), rows)), schema) for i, t in enumerate(items)]
            return _struct(parts, list(arrow_type(word, schema)), values)
        case _model.Union(of=items):
            present = [item for item in items if item != _model.NULL]
            if len(present) == 1:
                return _array(present[0], values, schema)
            return pa.array([None if v is None else float(v) for v in values], pa.float64())
        case _model.Ref(record=name):
            record = schema.records[name]
            return _struct(_record_arrays(record, values, schema), list(arrow_type(word, schema)), values)


def _struct(parts: list[pa.Array], fields: list[pa.Field], values: Values) -> pa.Array:
    missing = [v is None for v in values]  # not `None in values`: an array compares its elements
    mask = pa.array(missing, pa.bool_()) if any(missing) else None
    return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
