"""The Arrow and Spark types of a schema's types; the table is in _columns.py."""

from __future__ import annotations

import pyarrow as pa

from ringmain.typed import _model
from ringmain.typed._array_columns import array_fields
from ringmain.typed._schema import Schema

_SCALARS = {
    "bool": pa.bool_(), "int": pa.int64(), "float": pa.float64(), "bytes": pa.binary(), "date": pa.date32(),
    "timedelta": pa.duration("us"),
}  # fmt: skip
_SPARK_SCALARS = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "string": "STRING", "large_string": "STRING", "binary": "BINARY",
    "large_binary": "BINARY", "date32[day]": "DATE", "duration[us]": "INTERVAL DAY TO SECOND",
}  # fmt: skip


def message_fields(schema: Schema) -> list[pa.Field]:
    """The columns of messages that msgspec decodes, and of a user's codec."""
    if schema.codec not in ("msgpack", "str", "bytes"):
        return [pa.field("value", pa.binary())]
    if isinstance(schema.root, _model.Ref) and not is_json(schema.root, schema):
        return record_fields(schema.records[schema.root.record], schema)
    return [pa.field("value", arrow_type(schema.root, schema))]


def record_fields(record: _model.Record, schema: Schema) -> list[pa.Field]:
    return [pa.field(field.name, arrow_type(field.type, schema)) for field in record.fields]


def spark_column(field: pa.Field) -> str:
    return f"{_quoted(field.name)} {_spark_type(field.type)}"


def arrow_type(word: _model.Type, schema: Schema) -> pa.DataType:
    """The Arrow type of a schema's type; `string` for those represented as JSON (see `is_json`)."""
    if is_json(word, schema):
        return pa.string()
    match word:
        case _model.Scalar(name="ndarray"):
            return pa.struct(array_fields(word.dtype, schema))
        case _model.Scalar():
            if word.name == "datetime":
                return pa.timestamp("us", None if word.limits.get("tz") is False else "UTC")
            return _SCALARS.get(word.name, pa.string())
        case _model.Choice(values=values):
            return pa.int64() if any(isinstance(v, int) for v in values) else pa.string()
        case _model.Array(of=of):
            return pa.list_(arrow_type(of, schema))
        case _model.Tuple(of=items):
            return pa.struct([pa.field(f"_{i}", arrow_type(t, schema)) for i, t in enumerate(items, 1)])
        case _model.Map(key=key, value=value):
            return pa.map_(arrow_type(key, schema), arrow_type(value, schema))
        case _model.Union(of=items):
            present = [item for item in items if item != _model.NULL]
            return arrow_type(present[0], schema) if len(present) == 1 else pa.float64()
        case _model.Ref(record=name):
            return pa.struct(record_fields(schema.records[name], schema))


def is_json(word: _model.Type, schema: Schema) -> bool:
    """Is a type represented as JSON, because Arrow or Spark has no type for it?"""
    match word:
        case _model.Scalar(name=name):
            return name in ("any", "ext")
        case _model.Choice(values=values):
            return len({type(v) for v in values if v is not None}) != 1
        case _model.Map(key=key):
            scalar_key = isinstance(key, _model.Scalar | _model.Choice) and not is_json(key, schema)
            return not scalar_key or (isinstance(key, _model.Choice) and None in key.values)
        case _model.Union(of=items):
            present = [item for item in items if item != _model.NULL]
            if len(present) == 1:
                return is_json(present[0], schema)
            return not all(isinstance(t, _model.Scalar) and t.name in ("int", "float") for t in present) or not present
        case _model.Tuple(of=items):
            return not items
        case _model.Ref(record=name):
            return _is_recursive(name, schema) or not schema.records[name].fields
    return False


def _is_recursive(name: str, schema: Schema) -> bool:
    """Does a record contain itself? Arrow has no type for that."""
    seen: set[str] = set()
    words = [field.type for field in schema.records[name].fields]
    while words:
        word = words.pop()
        words += _model.children(word)
        if isinstance(word, _model.Ref) and word.record not in seen:
            if word.record == name:
                return True
            seen.add(word.record)
            words += [field.type for field in schema.records[word.record].fields]
    return False


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def _spark_type(type_: pa.DataType) -> str:
    if pa.types.is_struct(type_):
        return f"STRUCT<{', '.join(f'{_quoted(f.name)}: {_spark_type(f.type)}' for f in type_)}>"
    if pa.types.is_map(type_):
        return f"MAP<{_spark_type(type_.key_type)}, {_spark_type(type_.item_type)}>"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return f"ARRAY<{_spark_type(type_.value_type)}>"
    if pa.types.is_timestamp(type_):
        return "TIMESTAMP" if type_.tz is not None else "TIMESTAMP_NTZ"
    if pa.types.is_decimal128(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    name = _SPARK_SCALARS.get(str(type_))
    if name is None:
        raise TypeError(f"Spark has no type for Arrow's {type_}: cast the column before publishing it")
    return name
