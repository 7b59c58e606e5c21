"""The registry of codecs: finds one for a type, or for a schema.

Invariant: `encode` and `decode` are plain callables, made once. Where msgspec does the work they are its own bound
methods, so a typed topic costs what msgspec costs. The codecs of numpy and pyarrow, and with them these libraries, are
imported when one of their types is asked for.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import msgspec

from ringmain.errors import CodecNotFound, SchemaError
from ringmain.typed import _array_values, _model
from ringmain.typed._aliases import without_alias
from ringmain.typed._codec import Codec, SimpleCodec
from ringmain.typed._describe import describe
from ringmain.typed._materialise import materialise
from ringmain.typed._schema import Schema

Factory: TypeAlias = Callable[[Any], Codec]
Match: TypeAlias = type | Callable[[Any], bool]


_registered: list[tuple[Match, Factory]] = []
_from_schema: dict[str, Callable[[Schema], Codec]] = {}
_BUILTIN = frozenset({"bytes", "str", "msgpack", "ndarray", "struct", "arrow"})


def register_codec(
    match: Match,
    factory: Factory,
    *,
    name: str | None = None,
    from_schema: Callable[[Schema], Codec] | None = None,
) -> None:
    """Use `factory(type_)` for a type and its subclasses, or for every type for which a predicate returns True.

    The newest registration is tried first, and all before the built-in codecs. With `name` and `from_schema`, messages
    of that codec can also be decoded from their schema alone.
    """
    if (name is None) != (from_schema is None):
        raise TypeError("give both name and from_schema, or neither: a schema refers to its codec by name")
    if name in _BUILTIN:
        raise ValueError(f"{name!r} is a built-in codec; choose another name")
    if name is not None and from_schema is not None:
        _from_schema[name] = from_schema
    _registered.insert(0, (match, factory))


def _matches(match: Match, type_: Any) -> bool:
    if isinstance(match, type):
        return isinstance(type_, type) and issubclass(type_, match)
    return bool(match(type_))


def is_builtin(name: str) -> bool:
    """Is this one of ringmain's own codecs?"""
    return name in _BUILTIN


def codec_for(type_: Any) -> Codec:
    """The codec for a type: registered ones first, then those for bytes, str, numpy, pyarrow and msgspec's types."""
    type_ = without_alias(type_)
    for match, factory in _registered:
        if _matches(match, type_):
            return factory(type_)
    if type_ is bytes:
        return _bytes_codec()
    if type_ is str:
        return _str_codec()
    origin = typing.get_origin(type_) or type_
    # A type of numpy's or pyarrow's exists only where the library is already imported.
    if (numpy := sys.modules.get("numpy")) is not None:
        if origin is numpy.ndarray:
            from ringmain.typed._arrays import array_codec

            return array_codec(type_)
        if isinstance(type_, numpy.dtype):
            from ringmain.typed._structs import struct_codec

            return struct_codec(type_)
    if (arrow := sys.modules.get("pyarrow")) is not None and (
        type_ in (arrow.RecordBatch, arrow.Table) or isinstance(type_, arrow.Schema)
    ):
        from ringmain.typed._tables import table_codec

        return table_codec(type_)
    return _msgpack_codec(type_)


def codec_from_schema(schema: Schema) -> Codec:
    """A codec for messages of this schema that does not need the class they were made from.

    Records are decoded to Structs made from the schema; `msgspec.to_builtins` turns them into dicts.
    """
    name = schema.codec
    if name in _from_schema:
        return _from_schema[name](schema)
    if name not in _BUILTIN:
        raise CodecNotFound(
            f"messages of {schema.type_name!r} are encoded with codec {name!r}, which is not registered here: "
            f"call ringmain.typed.register_codec(..., name={name!r}, from_schema=...), or read the bytes"
        )
    if schema.version != 1:
        raise SchemaError(
            f"{schema.type_name!r} is encoded with version {schema.version} of codec {name!r}, this ringmain "
            "has version 1: use the same version of ringmain on both sides"
        )
    match name:
        case "bytes":
            return _bytes_codec()
        case "str":
            return _str_codec()
        case "ndarray":
            from ringmain.typed._arrays import array_codec_from_schema

            return array_codec_from_schema(schema)
        case "struct":
            from ringmain.typed._structs import struct_codec_from_schema

            return struct_codec_from_schema(schema)
        case "arrow":
            from ringmain.typed._tables import table_codec_from_schema

            return table_codec_from_schema(schema)
    made = materialise(schema)
    return _of_msgspec(schema, made, keeps_views=False)


def _bytes_codec() -> Codec:
    # memoryview instead of bytes: bytes(5) is five zeros, memoryview(5) is an error.
    return SimpleCodec(Schema("bytes", "bytes", _model.BYTES), memoryview, bytes)


def _str_codec() -> Codec:
    decode = partial(str, encoding="utf-8")
    return SimpleCodec(Schema("str", "str", _model.STR), str.encode, decode, (str,))


def _msgpack_codec(type_: Any) -> Codec:
    try:
        root, records, keeps_views = describe(type_)
        msgspec.msgpack.Decoder(type_)
    except TypeError as error:
        raise CodecNotFound(
            f"no codec for {type_!r}: {error}. Use a msgspec.Struct, a dataclass, dict, list, str, bytes, "
            "numpy.ndarray, a structured numpy.dtype, pyarrow.RecordBatch or Table, or register a codec for it"
        ) from error
    name = getattr(type_, "__name__", str(type_))
    if typing.get_args(type_):
        name = _model.show(root)
    return _of_msgspec(Schema("msgpack", name, root, records), type_, keeps_views)


def _of_msgspec(schema: Schema, type_: Any, keeps_views: bool) -> Codec:
    scalars = schema.scalars
    if not scalars & {"any", "ndarray"}:
        encode, decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(type_).decode
        return SimpleCodec(schema, encode, decode, _classes(type_), keeps_views)
    some = "ndarray" in scalars
    check = _array_values.dec_hook if some else None
    decoder = msgspec.msgpack.Decoder(type_, ext_hook=_array_values.ext_hook, dec_hook=check)
    return SimpleCodec(schema, _array_values.encoder(expected=some), decoder.decode, _classes(type_), keeps_views=True)


def _classes(type_: Any) -> tuple[type, ...] | None:
    """The classes whose instances are values of a type, if isinstance can check that; otherwise None."""
    origin = typing.get_origin(type_) or type_
    if origin is Any:
        return None
    if typing.is_typeddict(origin):
        return (dict,)
    if isinstance(origin, type) and origin is not float and getattr(origin, "__module__", "") != "types":
        return (origin,)
    return None
