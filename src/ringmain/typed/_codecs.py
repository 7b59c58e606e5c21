"""Codecs: how an object becomes a payload and back, and the registry that finds one for a type.

Invariant: `encode` and `decode` are plain callables, made once; for all that msgspec does they are msgspec's
own bound methods, so a typed topic costs what msgspec costs. numpy and pyarrow are imported when a type of
theirs is asked for, not before.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import msgspec

from ringmain.errors import CodecNotFound, SchemaError
from ringmain.typed import _model
from ringmain.typed._describe import describe
from ringmain.typed._materialise import materialise
from ringmain.typed._schema import Schema

Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(Protocol):
    """What a typed topic needs to know of a type.

    `accepts` are the classes `encode` is meant for, or None for any object: a publisher checks it, because
    msgspec would encode whatever it is given. `keeps_views` says that what `decode` returns may point
    into the buffer, which must then live and stay unchanged as long as the object; else it may be reused.
    """

    @property
    def name(self) -> str: ...
    @property
    def schema(self) -> Schema: ...
    @property
    def accepts(self) -> tuple[type, ...] | None: ...
    @property
    def keeps_views(self) -> bool: ...
    @property
    def encode(self) -> Callable[[Any], Buffer]: ...
    @property
    def decode(self) -> Callable[[Buffer], Any]: ...


@dataclass(frozen=True)
class SimpleCodec:
    """A codec made of its parts; users' codecs may be one of these or any object of the same shape."""

    schema: Schema
    encode: Callable[[Any], Buffer]
    decode: Callable[[Buffer], Any]
    accepts: tuple[type, ...] | None = None
    keeps_views: bool = False

    @property
    def name(self) -> str:
        return self.schema.codec


Factory: TypeAlias = Callable[[Any], Codec]
Match: TypeAlias = type | Callable[[Any], bool]


@dataclass(frozen=True)
class _Registered:
    match: Match
    factory: Factory

    def matches(self, type_: Any) -> bool:
        if isinstance(self.match, type):
            return isinstance(type_, type) and issubclass(type_, self.match)
        return bool(self.match(type_))


_registered: list[_Registered] = []
_from_schema: dict[str, Callable[[Schema], Codec]] = {}
_BUILTIN = frozenset({"bytes", "str", "msgpack", "ndarray", "arrow"})


def register_codec(
    match: Match,
    factory: Factory,
    *,
    name: str | None = None,
    from_schema: Callable[[Schema], Codec] | None = None,
) -> None:
    """Use `factory(type_)` for a type and its subclasses, or for every type a predicate says yes to.

    The newest registration is asked first, and before the built-in codecs. With `name` and `from_schema`,
    messages of that codec can also be decoded by whoever has only the schema.
    """
    if (name is None) != (from_schema is None):
        raise TypeError("name and from_schema go together: the name is how a schema finds its codec")
    if name in _BUILTIN:
        raise ValueError(f"{name!r} is a built-in codec; give yours a name of its own")
    if name is not None and from_schema is not None:
        _from_schema[name] = from_schema
    _registered.insert(0, _Registered(match, factory))


def is_builtin(name: str) -> bool:
    """Whether a codec is one of ringmain's own."""
    return name in _BUILTIN


def codec_for(type_: Any) -> Codec:
    """The codec for a type: registered ones first, then bytes, str, numpy, pyarrow, what msgspec knows."""
    for registered in _registered:
        if registered.matches(type_):
            return registered.factory(type_)
    if type_ is bytes:
        return _bytes_codec()
    if type_ is str:
        return _str_codec()
    origin = typing.get_origin(type_) or type_
    # If numpy or pyarrow is not imported, the type cannot be one of theirs.
    if (numpy := sys.modules.get("numpy")) is not None and origin is numpy.ndarray:
        from ringmain.typed._arrays import array_codec

        return array_codec(type_)
    if (arrow := sys.modules.get("pyarrow")) is not None and (
        type_ in (arrow.RecordBatch, arrow.Table) or isinstance(type_, arrow.Schema)
    ):
        from ringmain.typed._tables import table_codec

        return table_codec(type_)
    return _msgpack_codec(type_)


def codec_from_schema(schema: Schema) -> Codec:
    """A codec for messages of this schema, without the class they were made from.

    Records decode to Structs made from the schema (`msgspec.to_builtins` makes dicts of them).
    """
    name = schema.codec
    if name in _from_schema:
        return _from_schema[name](schema)
    if name not in _BUILTIN:
        raise CodecNotFound(
            f"messages of {schema.type_name!r} are encoded with codec {name!r}, which is not known here: "
            f"call ringmain.typed.register_codec(..., name={name!r}, from_schema=...), or read the bytes"
        )
    if schema.version != 1:
        raise SchemaError(
            f"{schema.type_name!r} is encoded with version {schema.version} of codec {name!r}, this ringmain "
            "has version 1: use the same version of ringmain on both sides"
        )
    if name == "bytes":
        return _bytes_codec()
    if name == "str":
        return _str_codec()
    if name == "ndarray":
        from ringmain.typed._arrays import array_codec_from_schema

        return array_codec_from_schema(schema)
    if name == "arrow":
        from ringmain.typed._tables import table_codec_from_schema

        return table_codec_from_schema(schema)
    made = materialise(schema)
    return SimpleCodec(schema, msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(made).decode, _classes(made))


def _bytes_codec() -> Codec:
    # memoryview, not bytes: bytes(5) would be five zeros, memoryview(5) is an error.
    return SimpleCodec(Schema("bytes", "bytes", _model.BYTES), memoryview, bytes)


def _str_codec() -> Codec:
    decode = partial(str, encoding="utf-8")
    return SimpleCodec(Schema("str", "str", _model.STR), str.encode, decode, (str,))


def _msgpack_codec(type_: Any) -> Codec:
    try:
        root, records, keeps_views = describe(type_)
        decoder = msgspec.msgpack.Decoder(type_)
    except TypeError as error:
        raise CodecNotFound(
            f"no codec for {type_!r}: {error}. Use a msgspec.Struct, a dataclass, dict, list, str, bytes, "
            "numpy.ndarray, pyarrow.RecordBatch or Table, or register a codec for it"
        ) from error
    name = getattr(type_, "__name__", str(type_))
    if typing.get_args(type_):
        name = _model.show(root)
    schema = Schema("msgpack", name, root, records)
    return SimpleCodec(schema, msgspec.msgpack.Encoder().encode, decoder.decode, _classes(type_), keeps_views)


def _classes(type_: Any) -> tuple[type, ...] | None:
    """The classes whose instances a type means, where that is a plain isinstance check."""
    origin = typing.get_origin(type_) or type_
    if typing.is_typeddict(origin):
        return (dict,)
    if isinstance(origin, type) and origin is not float and getattr(origin, "__module__", "") != "types":
        return (origin,)
    return None
