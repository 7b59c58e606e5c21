"""MessagePack → Arrow arrays, natively: native/recorder/columns.hpp makes the buffers, for schemas of the types below.

Invariant: the arrays are those that _rows.py makes. A message that the native code refuses is one for _rows.py, which
decodes it or has the reason; a schema with other types has no plan and goes there whole.

| schema | kind |
|---|---|
| bool, int, float, str, bytes; Enum and Literal of one type; int \\| float | b, i, f, s, y |
| list, set, tuple[T, ...] | l, with one child |
| tuple[A, B]; a record that is sent as an array | t |
| a record that is sent as a map | r |
| T \\| None | that of T, nullable |
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa

from ringmain._recording import decode_messages
from ringmain.typed import _model
from ringmain.typed._arrow_types import is_json
from ringmain.typed._materialise import is_dict_like
from ringmain.typed._schema import Schema

_SCALARS = {"bool": "b", "int": "i", "float": "f", "str": "s", "bytes": "y"}
_MAX_FIELDS = 64


class Decoded(NamedTuple):
    arrays: list[pa.Array]
    refused: list[int]
    """Rows that are null in every array, and not decoded."""


class _Node(msgspec.Struct, array_like=True):
    """A column of the plan, as native/python/columns.cpp parses it."""

    kind: str
    nullable: bool = False
    optional: bool = False
    key: str = ""
    children: list[_Node] = []


def decode_packed(payload: pa.Array, schema: Schema, columns: pa.Schema) -> Decoded | None:
    """The columns of these payloads; None if only _rows.py can make them."""
    if schema.codec != "msgpack" or schema.version != 1 or not pa.types.is_binary(payload.type):
        return None
    plan = _plan(schema.to_bytes())
    if plan is None or payload.null_count or not len(payload):
        return None
    _, offsets, data = payload.buffers()
    made, refused = decode_messages(plan, offsets, data or b"", payload.offset, len(payload))
    parts = iter(made)
    if _has_record(schema):
        next(parts)  # the message itself, whose fields are the columns
    return Decoded([_array(f.type, parts) for f in columns], refused)


def _array(type_: pa.DataType, parts: Iterator[tuple[int, list[bytes | None]]]) -> pa.Array:
    rows, buffers = next(parts)
    inner = list(type_) if pa.types.is_struct(type_) else [type_.value_field] if pa.types.is_list(type_) else []
    children = [_array(f.type, parts) for f in inner]
    wrapped = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(type_, rows, wrapped, children=children)


def _has_record(schema: Schema) -> bool:
    return isinstance(schema.root, _model.Ref) and not is_json(schema.root, schema)


@functools.lru_cache(256)
def _plan(schema_bytes: bytes) -> bytes | None:
    schema = Schema.from_bytes(schema_bytes)
    node = _node(schema.root, schema)
    return None if node is None else msgspec.msgpack.encode(node)


def _node(word: _model.Type, schema: Schema) -> _Node | None:
    if is_json(word, schema):
        return None
    match word:
        case _model.Scalar(name=name) if name in _SCALARS:
            return _Node(_SCALARS[name])
        case _model.Choice(values=values):
            return _Node("i" if any(isinstance(v, int) for v in values) else "s", nullable=None in values)
        case _model.Array(of=of):
            return _parent("l", [_node(of, schema)])
        case _model.Tuple(of=items):
            return _parent("t", [_node(item, schema) for item in items])
        case _model.Union(of=items):
            present = [item for item in items if item != _model.NULL]
            node = _node(present[0], schema) if len(present) == 1 else _Node("f")
            if node is not None:
                node.nullable |= len(present) < len(items)
            return node
        case _model.Ref(record=name):
            record = schema.records[name]
            if is_dict_like(record) or record.tag is not None:
                return None
            return _parent("t" if record.positional else "r", [_field(field, schema) for field in record.fields])
    return None


def _field(field: _model.Field, schema: Schema) -> _Node | None:
    node = _node(field.type, schema)
    if node is not None and (field.omittable or not field.required):
        node.nullable = True
        node.optional = isinstance(field.default, msgspec.UnsetType) or bytes(field.default) == b"null"
    if node is not None:
        node.key = field.key
    return node


def _parent(kind: str, children: list[_Node | None]) -> _Node | None:
    found = [child for child in children if child is not None]
    complete = len(found) == len(children) <= _MAX_FIELDS
    return _Node(kind, children=found) if complete else None
