"""C structs as payloads: the struct's bytes, nothing else. In Python, the type is a numpy structured dtype.

Invariant: `decode` copies nothing. It returns a `numpy.void`, a read-only record whose fields are read where the
payload is, and refuses a payload that is not exactly as large as the struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy

from ringmain.errors import CodecNotFound, SchemaError
from ringmain.typed._codec import Buffer, Codec, SimpleCodec
from ringmain.typed._schema import Schema
from ringmain.typed._struct_layout import NAME, Layout, StructField, layout_differences, layout_of

_UNNAMED = "struct"
"""The name of a type that has none: a dtype does not, a struct of C++ does."""


def struct_codec(dtype: numpy.dtype[Any]) -> Codec:
    """The codec for records of a structured dtype."""
    layout = _layout_of(dtype)
    return _codec(Schema("struct", _UNNAMED, params={"layout": layout.text}), _dtype_of(layout))


def struct_codec_from_schema(schema: Schema) -> Codec:
    return _codec(schema, dtype_of_schema(schema))


def dtype_of_schema(schema: Schema) -> numpy.dtype[Any]:
    """`SchemaError` if the schema has no layout that numpy has a dtype for."""
    return _dtype_of(layout_of(schema))


def _codec(schema: Schema, dtype: numpy.dtype[Any]) -> Codec:
    return SimpleCodec(
        schema, _encoder(dtype), _decoder(dtype), (numpy.void, numpy.ndarray, tuple), keeps_views=True
    )  # fmt: skip


def _encoder(dtype: numpy.dtype[Any]) -> Callable[[Any], Buffer]:
    def encode(record: Any) -> bytes:
        if isinstance(record, tuple):
            return numpy.array(record, dtype).tobytes()
        if not isinstance(record, numpy.void | numpy.ndarray) or record.shape != ():
            raise TypeError(
                f"expected one record of {dtype}, got {_shown(record)}: send array[0], or each record of an array"
            )
        if record.dtype != dtype:
            why = _first_difference(record, dtype)
            raise TypeError(f"expected a record of {dtype}, got one of {record.dtype}{why}")
        return record.tobytes()

    return encode


def _shown(value: Any) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, numpy.ndarray) else type(value).__name__


def _first_difference(record: Any, dtype: numpy.dtype[Any]) -> str:
    if record.dtype.names is None:
        return ""
    found = next(layout_differences(_layout_of(record.dtype), _layout_of(dtype)), None)
    return "" if found is None else f" ({found})"


def _decoder(dtype: numpy.dtype[Any]) -> Callable[[Buffer], Any]:
    size = dtype.itemsize

    def decode(buffer: Buffer) -> Any:
        if len(buffer) != size:
            raise ValueError(f"a record of {dtype} has {size} bytes, the payload has {len(buffer)}")
        return numpy.frombuffer(buffer, dtype)[0]

    return decode


def _layout_of(dtype: numpy.dtype[Any]) -> Layout:
    if dtype.names is None:
        raise CodecNotFound(
            f"no codec for {dtype!r}, which has no fields: use a structured dtype, or numpy.typing.NDArray for arrays"
        )
    assert dtype.fields is not None
    fields = []
    for name in dtype.names:
        type_, offset = dtype.fields[name][:2]
        if not NAME.fullmatch(name):
            raise CodecNotFound(f"no codec for {dtype!r}: field {name!r} has a name that no C struct could have")
        fields.append(StructField(name, *_type_of(type_, name), offset))
    if not dtype.itemsize or not fields:
        raise CodecNotFound(f"no codec for {dtype!r}, whose records have no bytes")
    return Layout(tuple(fields), dtype.itemsize)


def _type_of(dtype: numpy.dtype[Any], name: str) -> tuple[str | Layout, tuple[int, ...]]:
    base, shape = dtype.base, dtype.shape
    if base.names is not None and dtype.itemsize:
        return _layout_of(base), shape
    if (why := _refusal(dtype)) is not None:
        raise CodecNotFound(f"field {name!r} is {dtype}, {why}")
    return base.str, shape


def _refusal(dtype: numpy.dtype[Any]) -> str | None:
    """Why a field cannot be this."""
    base = dtype.base
    if base.hasobject or base.kind not in "biufcSUMmV":
        return "which cannot travel between processes: use numbers, bools, or strings of a fixed length"
    if base.char in "gG":
        return "whose bytes differ between machines: use float64 or complex128"
    return "which has no bytes" if dtype.itemsize == 0 else None


def _dtype_of(layout: Layout) -> numpy.dtype[Any]:
    formats = [_format_of(field) for field in layout.fields]
    offsets = [field.offset for field in layout.fields]
    names = [field.name for field in layout.fields]
    try:
        for field, format_ in zip(layout.fields, formats, strict=True):
            if field.offset + format_.itemsize > layout.size:
                raise ValueError(f"field {field.name!r} ends after the {layout.size} bytes of the struct")
        made = numpy.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": layout.size})
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"the layout of a struct does not fit together: {error}") from error
    return made


def _format_of(field: StructField) -> numpy.dtype[Any]:
    try:
        base = numpy.dtype(field.type) if isinstance(field.type, str) else _dtype_of(field.type)
        made = numpy.dtype((base, field.shape)) if field.shape else base
        if (why := _refusal(made)) is not None:
            raise ValueError(f"it is {made}, {why}")
        return made
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        what = f"{field.name[:80]!r} of a struct has no usable type {field.text[:80]!r}"
        raise SchemaError(f"field {what}: {error}") from error


def to_builtins(value: Any) -> Any:
    """A record as a dict: arrays are lists, numbers Python's; times are text, and bytes (`S`) where they are UTF-8."""
    if isinstance(value, numpy.ndarray):
        return [to_builtins(item) for item in value]
    if isinstance(value, numpy.void):
        if value.dtype.names is None:
            return value.tobytes()
        return {name: to_builtins(value[name]) for name in value.dtype.names}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return bytes(value)
    if isinstance(value, numpy.datetime64 | numpy.timedelta64 | numpy.complexfloating):
        return str(value)
    return value.item()


def from_builtins(value: Any, dtype: numpy.dtype[Any]) -> Any:
    """What `to_builtins` made of a record, as `numpy.array(..., dtype)` takes it. All fields must be there."""
    if dtype.subdtype is not None:
        return [from_builtins(item, _item(dtype)) for item in value]
    if dtype.names is None:
        return value.encode() if dtype.kind == "S" and isinstance(value, str) else value
    if not isinstance(value, Mapping):
        raise ValueError(f'a struct is written by field, like {{"{dtype.names[0]}": ...}}, not as {value!r}')
    unknown = [name for name in value if name not in dtype.names]
    missing = [name for name in dtype.names if name not in value]
    if unknown or missing:
        what = f"has no field {unknown[0]!r}" if unknown else f"needs field {missing[0]!r}"
        raise ValueError(f"the struct {what}; it has {', '.join(dtype.names)}")
    return tuple(from_builtins(value[name], dtype[name]) for name in dtype.names)


def _item(dtype: numpy.dtype[Any]) -> numpy.dtype[Any]:
    """Of a field that is an array: the type of its items, which may be arrays."""
    inner = dtype.shape[1:]
    return numpy.dtype((dtype.base, inner)) if inner else dtype.base


_JSON_TYPES = {"b": "boolean", "i": "integer", "u": "integer", "f": "number"}


def json_schema(dtype: numpy.dtype[Any]) -> dict[str, Any]:
    """The JSON schema of what `to_builtins` makes of a record."""
    if dtype.subdtype is not None:
        return {"type": "array", "items": json_schema(_item(dtype))}
    if dtype.names is not None:
        return {"type": "object", "properties": {name: json_schema(dtype[name]) for name in dtype.names}}
    return {"type": _JSON_TYPES.get(dtype.kind, "string")}
