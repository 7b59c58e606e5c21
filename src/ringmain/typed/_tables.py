"""pyarrow record batches and tables as payloads: an Arrow IPC stream, which contains its own schema.

Invariants: `decode` copies nothing, the columns refer to the buffer they were read from; and no offset or index in a
decoded table points outside its column, whatever a writer sent.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pyarrow

from ringmain.errors import SchemaError
from ringmain.typed import _model
from ringmain.typed._codec import Buffer, Codec, SimpleCodec
from ringmain.typed._schema import Schema


def table_codec(type_: Any) -> Codec:
    """The codec for `RecordBatch`, for `Table`, or for tables of one Arrow schema when given that schema."""
    if isinstance(type_, pyarrow.Schema):
        return _codec(pyarrow.Table, type_.remove_metadata())
    return _codec(type_, None)


def table_codec_from_schema(schema: Schema) -> Codec:
    class_ = pyarrow.RecordBatch if schema.params.get("class") == "RecordBatch" else pyarrow.Table
    return _codec(class_, fixed_schema(schema))


def fixed_schema(schema: Schema) -> Any:
    """The one Arrow schema that all messages have, or None if each has its own."""
    text = schema.params.get("schema")
    if text is None:
        return None
    try:
        return pyarrow.ipc.read_schema(pyarrow.py_buffer(base64.b64decode(text, validate=True)))
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise SchemaError(f"the schema of {schema.type_name!r} holds no Arrow schema: {error}") from error


def _codec(class_: Any, fixed: Any) -> Codec:
    # A reader of Tables takes both, so the schema names the class only for RecordBatch.
    params = {"class": "RecordBatch"} if class_ is pyarrow.RecordBatch else {}
    if fixed is not None:
        params["schema"] = base64.b64encode(fixed.serialize().to_pybytes()).decode()
    schema = Schema("arrow", class_.__name__, _model.ANY, params=params)
    return SimpleCodec(schema, _encoder(class_, fixed), _decoder(class_, fixed), (class_,), keeps_views=True)


def _encoder(class_: Any, fixed: Any) -> Callable[[Any], Buffer]:
    def encode(rows: Any) -> memoryview:
        if not isinstance(rows, class_):
            raise TypeError(f"expected a pyarrow.{class_.__name__}, got {type(rows).__name__}")
        if fixed is not None and not rows.schema.equals(fixed):
            raise TypeError(f"expected the columns\n{fixed}\ngot\n{rows.schema}")
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, rows.schema) as writer:
            writer.write(rows)
        return memoryview(sink.getvalue())

    return encode


def _decoder(class_: Any, fixed: Any) -> Callable[[Buffer], Any]:
    def decode(buffer: Buffer) -> Any:
        try:
            table = pyarrow.ipc.open_stream(pyarrow.py_buffer(buffer)).read_all()
            table.validate(full=True)  # offsets and indices too: Arrow itself follows them unchecked
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"not an Arrow IPC stream, or a damaged one: {error}") from error
        if fixed is not None and not table.schema.equals(fixed):
            raise ValueError(f"expected the columns\n{fixed}\ngot\n{table.schema}")
        return _as_batch(table) if class_ is pyarrow.RecordBatch else table

    return decode


def _as_batch(table: Any) -> Any:
    batches = table.to_batches()
    if len(batches) > 1:
        raise ValueError(f"expected one record batch, got {len(batches)}: subscribe with type=pyarrow.Table")
    return batches[0] if batches else pyarrow.RecordBatch.from_pylist([], schema=table.schema)
