"""Recorded payloads as Arrow columns, and the columns that a schema leads to, in Arrow and in Spark.

Invariant: `decode_column` returns the columns that `arrow_schema` announces, with one row per payload. A payload that
cannot be decoded becomes a null row with a reason; it neither raises nor removes a row.

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
| any, other unions, tagged unions, recursive types, dicts with other keys | JSON, an array as a list | STRING |
| numpy.ndarray | struct with the columns of an array, see below | STRUCT |

A struct (a structured `numpy.dtype`) has a column for each field, as wide as the field: float32 is float, int16 is
int16. Spark has no unsigned numbers and no half floats: they are the next wider type (uint64: decimal(20, 0)). Nested
structs are structs, arrays are lists, `S` is binary without its zeros at the end, `U` is string, complex numbers are
structs of `real` and `imag`, times are in microseconds.

A root that is not a record is one column, `value`. Arrays give `dtype`, `shape` and `data` (`values`, a list,
if the dtype is fixed); tables give `num_rows` and `ipc` (`rows`, structs, if the Arrow schema is fixed).
A user's codec gives `value`, the payload unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringmain.typed._schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


def arrow_schema(schema: Schema) -> pa.Schema:
    """The columns that `decode_column` makes of this schema's messages; all of them nullable."""
    import pyarrow as pa

    from ringmain.typed import _array_columns, _arrow_types, _table_columns

    if schema.codec == "ndarray":
        return pa.schema(_array_columns.array_fields(schema.params.get("dtype"), schema))
    if schema.codec == "struct":
        from ringmain.typed import _struct_columns

        return pa.schema(_struct_columns.struct_fields(schema))
    if schema.codec == "arrow":
        return pa.schema(_table_columns.table_fields(schema))
    return pa.schema(_arrow_types.message_fields(schema))


def spark_ddl(schema: Schema) -> str:
    """The same columns in Spark's notation, for `mapInArrow`: `"t BIGINT, name STRING"`."""
    from ringmain.typed import _arrow_types

    return ", ".join(map(_arrow_types.spark_column, arrow_schema(schema)))


def decode_column(payload: pa.Array | pa.ChunkedArray, schema: Schema) -> tuple[pa.StructArray, pa.StringArray]:
    """The payloads of one topic → a struct array with the columns of `arrow_schema`, and the reasons of failed rows.

    The second array is null where the row was decoded. A payload that is null gives a null row with the reason
    "no payload".
    """
    import pyarrow as pa

    from ringmain.typed import _rows

    if isinstance(payload, pa.ChunkedArray):
        payload = payload.combine_chunks() if payload.num_chunks != 1 else payload.chunk(0)
    return _rows.decode_rows(payload, schema, arrow_schema(schema))
