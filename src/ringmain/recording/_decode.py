"""Payloads to columns: one table for all the lives of a topic, whose schema may differ from life to life.

The invariant owned here: *a row in, a row out*. A payload that does not decode keeps its bytes and gets a reason in
`rm_decode_error`; one that does has its fields and no bytes. A field that a life did not have is null. Numbers widen.
Types without a common type become JSON text. Readers of recordings, Spark and the pipeline all use this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain import typed
from ringmain.errors import RingmainError
from ringmain.recording._format import HOST, LATCHED_COLUMN, SCHEMA, decoded_fields, decoded_name, field_columns

PAYLOAD = pa.field(decoded_name("payload"), pa.binary())  # kept only where it did not decode
ERROR = pa.field(decoded_name("decode_error"), pa.string())
_WIDER = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.large_string(): pa.string(), pa.large_binary(): pa.binary(),
}  # fmt: skip


@dataclass(frozen=True)
class Decoding:
    """How a topic's payloads become columns. Picklable: it is sent to the workers."""

    topic: str
    lives: Mapping[int, bytes]  # epoch -> schema
    fields: pa.Schema = field(default_factory=lambda: pa.schema([]))
    renamed: Mapping[bytes, Mapping[str, str]] = field(default_factory=dict)
    """By schema: which of `fields` a message's field is, where the names differ."""

    @classmethod
    def of(cls, topic: str, lives: Mapping[int, bytes]) -> Decoding:
        schemas = [typed.arrow_schema(typed.Schema.from_bytes(data)) for data in dict.fromkeys(lives.values()) if data]
        return cls(topic, dict(lives), merge_schemas(schemas))

    def columns(self, known: Collection[str] = ()) -> list[pa.Field]:
        """The fields as columns, of a table that has these columns already."""
        names = field_columns(self.fields.names, known)
        return [f.with_name(name) for f, name in zip(self.fields, names, strict=True)]

    def schema(self, more: Sequence[str] = ()) -> pa.Schema:
        """The envelope, the payload where it did not decode, the fields, why it did not, the host, and more columns
        that readers add."""
        last = decoded_fields([HOST, *(field for field in (LATCHED_COLUMN,) if field.name in more)])
        return pa.schema([*decoded_fields(list(SCHEMA)[:-1]), PAYLOAD, *self.columns(), ERROR, *last])

    def rows(self, batch: pa.RecordBatch, more: Sequence[str] = ()) -> pa.RecordBatch:
        """A batch that has all columns of a recording, the host and those, as rows of `schema()`."""
        fields, reasons = self.apply(batch)
        envelope, payload, last = (
            batch.columns[: len(SCHEMA) - 1],
            batch.column("payload"),
            batch.columns[len(SCHEMA) :],
        )
        kept = pc.if_else(reasons.is_valid(), payload, None)
        return pa.RecordBatch.from_arrays([*envelope, kept, *fields, reasons, *last], schema=self.schema(more))

    def apply(self, batch: pa.RecordBatch) -> tuple[list[pa.Array], pa.Array]:
        """(the fields' columns, why a row failed) of a batch that has `epoch` and `payload`."""
        epochs, payload = batch.column("epoch"), batch.column("payload")
        alike: dict[bytes | int, list[int]] = {}  # epochs by schema, or each alone that has none
        for epoch in pc.unique(epochs).to_pylist():
            alike.setdefault(self.lives.get(epoch) or epoch, []).append(epoch)
        if len(alike) == 1:
            return self._decode(next(iter(alike.values()))[0], payload)
        order, parts = [], []
        for same in alike.values():
            where = pc.indices_nonzero(pc.is_in(epochs, pa.array(same, epochs.type)))
            order.append(where)
            parts.append(self._decode(same[0], payload.take(where)))
        back = pc.sort_indices(pa.concat_arrays(order))
        columns = [pa.concat_arrays([part[0][i] for part in parts]).take(back) for i in range(len(self.fields))]
        return columns, pa.concat_arrays([part[1] for part in parts]).take(back)

    def _decode(self, epoch: int, payload: pa.Array) -> tuple[list[pa.Array], pa.Array]:
        schema = self.lives.get(epoch, b"")
        why = f"topic {self.topic!r} had no schema in its life {epoch}"
        if schema:
            try:
                values, reasons = typed.decode_column(payload, typed.Schema.from_bytes(schema))
                return _children(values, self.fields, self.renamed.get(schema, {})), reasons
            except (RingmainError, pa.ArrowException) as error:  # a schema that this version cannot read
                why = str(error)
        return [pa.nulls(len(payload), f.type) for f in self.fields], pa.repeat(pa.scalar(why), len(payload))


def merge_schemas(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """All fields of all schemas, each with a type that can hold the values of all of them."""
    merged: dict[str, pa.DataType] = {}
    for schema in schemas:
        for f in schema:
            known = merged.get(f.name)
            merged[f.name] = plain(f.type) if known is None else merge_types(known, plain(f.type))
    return pa.schema([pa.field(name, type_) for name, type_ in merged.items()])


def plain(type_: pa.DataType) -> pa.DataType:
    """The nearest type that Spark supports."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(plain(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, plain(f.type)) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(plain(type_.key_type), plain(type_.item_type))
    if pa.types.is_dictionary(type_):
        return plain(type_.value_type)
    if pa.types.is_timestamp(type_) and type_.unit != "us":
        return pa.timestamp("us", type_.tz)
    return _WIDER.get(type_, type_)


def merge_types(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one.equals(other):
        return one
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(list(merge_schemas([pa.schema(list(one)), pa.schema(list(other))])))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(merge_types(one.value_type, other.value_type))
    integers = pa.types.is_integer(one) and pa.types.is_integer(other)
    if integers:
        return one if one.bit_width >= other.bit_width else other
    numbers = all(pa.types.is_integer(t) or pa.types.is_floating(t) for t in (one, other))
    return pa.float64() if numbers else pa.string()


def conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The same values with the type that the table has."""
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if array.type.equals(wanted):
        return array
    if pa.types.is_struct(wanted) and pa.types.is_struct(array.type):
        return pa.StructArray.from_arrays(_children(array, wanted), fields=list(wanted), mask=array.is_null())
    if pa.types.is_string(wanted) and not pa.types.is_large_string(array.type):
        texts = [None if v is None else v if isinstance(v, str) else _json(v) for v in array.to_pylist()]
        return pa.array(texts, pa.string())
    if pa.types.is_list(wanted) and pa.types.is_list(array.type):
        offsets = pc.if_else(array.is_null(), None, array.offsets[:-1])
        offsets = pa.concat_arrays([offsets, array.offsets[-1:]])
        return pa.ListArray.from_arrays(offsets, conform(array.values, wanted.value_type), type=wanted)
    return array.cast(wanted)


def _children(array: pa.Array, wanted: Iterable[pa.Field], renamed: Mapping[str, str] = {}) -> list[pa.Array]:
    """The wanted fields of an array of structs. Those that it does not have are null."""
    known = {renamed.get(f.name, f.name): at for at, f in enumerate(array.type)}
    return [
        conform(pc.struct_field(array, [known[f.name]]) if f.name in known else pa.nulls(len(array), f.type), f.type)
        for f in wanted
    ]


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
