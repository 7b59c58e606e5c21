"""pyarrow record batches and tables as payloads: an Arrow IPC stream, which carries its own schema.

Invariant: `decode` copies nothing; the columns point into the buffer they were read from.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pyarrow

from ringmain.errors import SchemaError
from ringmain.typed import _model
from ringmain.typed._codecs import Buffer, Codec, SimpleCodec
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
    except (ValueError, OSError) as error:
        raise SchemaError(f"the schema of {schema.type_name!r} holds no Arrow schema: {error}") from error


def _codec(class_: Any, fixed: Any) -> Codec:
    # A Table reader takes both, so only RecordBatch asks for its class.
    params = {"class": "RecordBatch"} if class_ is pyarrow.RecordBatch else {}
    if fixed is not None:
        params["schema"] = base64.b64encode(fixed.serialize().to_pybytes()).decode()
    schema = Schema("arrow", class_.__name__, _model.ANY, params=params)
    decode = _decode_batch if class_ is pyarrow.RecordBatch else _decode_table
    accepts = (pyarrow.RecordBatch,) if class_ is pyarrow.RecordBatch else (pyarrow.Table,)
    return SimpleCodec(schema, _encoder(accepts[0], fixed), _checked(decode, fixed), accepts, keeps_views=True)


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


def _checked(decode: Callable[[Buffer], Any], fixed: Any) -> Callable[[Buffer], Any]:
    if fixed is None:
        return decode

    def decode_checked(buffer: Buffer) -> Any:
        rows = decode(buffer)
        if not rows.schema.equals(fixed):
            raise ValueError(f"expected the columns\n{fixed}\ngot\n{rows.schema}")
        return rows

    return decode_checked


def _open(buffer: Buffer) -> Any:
    try:
        return pyarrow.ipc.open_stream(pyarrow.py_buffer(buffer))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"not an Arrow IPC stream: {error}") from error


def _decode_table(buffer: Buffer) -> Any:
    reader = _open(buffer)
    try:
        table = reader.read_all()
        table.validate()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"a damaged Arrow IPC stream: {error}") from error
    return table


def _decode_batch(buffer: Buffer) -> Any:
    batches = _decode_table(buffer).to_batches()
    if len(batches) > 1:
        raise ValueError(f"expected one record batch, got {len(batches)}: subscribe with type=pyarrow.Table")
    if batches:
        return batches[0]
    return _open(buffer).read_next_batch()
