"""The types of a table's columns, as Delta, our writer and other writers have them."""

from __future__ import annotations

import pyarrow as pa


def delta_type(type_: pa.DataType) -> pa.DataType:
    """The type that a Delta table has for it: a duration is whole microseconds."""
    if pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(delta_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, delta_type(f.type)) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(delta_type(type_.key_type), delta_type(type_.item_type))
    return type_


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """With exactly these columns; one that a file does not have is null."""
    there = set(rows.column_names)
    columns = [rows.column(f.name).cast(f.type) if f.name in there else pa.nulls(len(rows), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def without_views(type_: pa.DataType) -> pa.DataType:
    """The same type with texts and bytes as our own writer has them."""
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_struct(type_):
        return pa.struct([f.with_type(without_views(f.type)) for f in type_])
    if pa.types.is_list(type_):
        return pa.list_(type_.value_field.with_type(without_views(type_.value_type)))
    if pa.types.is_map(type_):
        return pa.map_(without_views(type_.key_type), without_views(type_.item_type))
    return type_
