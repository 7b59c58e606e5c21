"""From recorded payloads to Arrow columns, and from a schema to the columns it will give.

Invariant: `decode_column` returns the columns that `arrow_schema` promised, and as many rows as it was given.
A payload that does not decode is a null row and a reason, never an exception and never a missing row.

| schema | Arrow | Spark |
|---|---|---|
| bool, int, float | bool, int64, double | BOOLEAN, BIGINT, DOUBLE |
| str, bytes | string, binary | STRING, BINARY |
| datetime | timestamp[us, UTC]; timestamp[us] if always naive (`Meta(tz=False)`) | TIMESTAMP, TIMESTAMP_NTZ |
| date, timedelta | date32, duration[us] | DATE, INTERVAL DAY TO SECOND |
| time, uuid, decimal | string | STRING |
| Enum, Literal | of its values: string or int64 | STRING, BIGINT |
| list, set, tuple[T, ...] | list | ARRAY |
| tuple[A, B] | struct with fields _1, _2 | STRUCT |
| dict with scalar keys | map | MAP |
| Struct, dataclass, TypedDict, NamedTuple | struct; the root's fields are the columns | STRUCT |
| T \\| None | T, null | T |
| int \\| float | double | DOUBLE |
| any, other unions, tagged unions, recursive types, dicts with other keys | string of JSON | STRING |

A root that is not a record is one column, `value`. Arrays give `dtype`, `shape` and `data` (`values`, a list,
if the dtype is fixed); tables give `num_rows` and `ipc` (`rows`, structs, if the Arrow schema is fixed).
A codec of the user's gives `value`, the payload as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringmain.typed import _model
from ringmain.typed._schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_SPARK_SCALARS = {
    "bool": "BOOLEAN", "int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT",
    "float": "FLOAT", "double": "DOUBLE", "string": "STRING", "large_string": "STRING", "binary": "BINARY",
    "large_binary": "BINARY", "date32[day]": "DATE", "duration[us]": "INTERVAL DAY TO SECOND",
}  # fmt: skip


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns that `decode_column` makes of this schema's messages; all of them nullable."""
    import pyarrow as pa

    if schema.codec == "ndarray":
        from ringmain.typed import _foreign_columns

        return pa.schema(_foreign_columns.array_fields(schema))
    if schema.codec == "arrow":
        from ringmain.typed import _foreign_columns

        return pa.schema(_foreign_columns.table_fields(schema))
    if schema.codec not in ("msgpack", "str", "bytes"):
        return pa.schema([pa.field("value", pa.binary())])
    if isinstance(schema.root, _model.Ref) and not is_json(schema.root, schema):
        return pa.schema(_record_fields(schema.records[schema.root.record], schema))
    return pa.schema([pa.field("value", arrow_type(schema.root, schema))])


def spark_ddl(schema: Schema) -> str:
    """The same columns as Spark writes them, for `mapInArrow`: `"t BIGINT, name STRING"`."""
    return ", ".join(f"{_quoted(field.name)} {_spark_type(field.type)}" for field in arrow_schema(schema))


def decode_column(payload: pa.Array | pa.ChunkedArray, schema: Schema) -> tuple[pa.StructArray, pa.StringArray]:
    """The payloads of one topic → a struct array with the columns of `arrow_schema`, and why a row failed.

    The second array is null where the row decoded. A payload that is null gives a null row and the reason
    "no payload".
    """
    import pyarrow as pa

    from ringmain.typed._rows import decode_rows

    if isinstance(payload, pa.ChunkedArray):
        payload = payload.combine_chunks() if payload.num_chunks != 1 else payload.chunk(0)
    return decode_rows(payload, schema, arrow_schema(schema))


def arrow_type(word: _model.Type, schema: Schema) -> pa.DataType:
    """The Arrow type of one word; `string` also for what has to be carried as JSON (see `is_json`)."""
    import pyarrow as pa

    if is_json(word, schema):
        return pa.string()
    match word:
        case _model.Scalar():
            return _scalar_type(word)
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
            return pa.struct(_record_fields(schema.records[name], schema))


def is_json(word: _model.Type, schema: Schema) -> bool:
    """Whether a word has no column of its own and is carried as JSON."""
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


def _record_fields(record: _model.Record, schema: Schema) -> list[pa.Field]:
    import pyarrow as pa

    return [pa.field(field.name, arrow_type(field.type, schema)) for field in record.fields]


def _scalar_type(word: _model.Scalar) -> pa.DataType:
    import pyarrow as pa

    match word.name:
        case "null" | "str" | "time" | "uuid" | "decimal":
            return pa.string()
        case "bool":
            return pa.bool_()
        case "int":
            return pa.int64()
        case "float":
            return pa.float64()
        case "bytes":
            return pa.binary()
        case "datetime":
            return pa.timestamp("us", None if word.limits.get("tz") is False else "UTC")
        case "date":
            return pa.date32()
        case "timedelta":
            return pa.duration("us")
    return pa.string()


def _is_recursive(name: str, schema: Schema) -> bool:
    """Does a record reach itself? Arrow types are trees."""
    seen: set[str] = set()
    waiting = [field.type for field in schema.records[name].fields]
    while waiting:
        match waiting.pop():
            case _model.Ref(record=found):
                if found == name:
                    return True
                if found not in seen:
                    seen.add(found)
                    waiting += [field.type for field in schema.records[found].fields]
            case _model.Array(of=of):
                waiting.append(of)
            case _model.Tuple(of=items) | _model.Union(of=items):
                waiting += items
            case _model.Map(key=key, value=value):
                waiting += [key, value]
            case _:
                pass
    return False


def _quoted(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else "`" + name.replace("`", "``") + "`"


def _spark_type(type_: pa.DataType) -> str:
    import pyarrow as pa

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
        raise TypeError(f"Spark has no type for Arrow's {type_}: cast the column before it is published")
    return name
