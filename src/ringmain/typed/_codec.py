"""What a codec is: the protocol that a typed topic uses, and a plain implementation of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from ringmain.typed._schema import Schema

Buffer: TypeAlias = bytes | bytearray | memoryview


class Codec(Protocol):
    """What a typed topic needs to know of a type.

    `accepts` are the classes that `encode` is for, or None for any object: a publisher checks it, because msgspec
    encodes any object it can. `keeps_views` says that the result of `decode` may refer to the buffer, which must then
    stay unchanged for as long as the object exists; otherwise the buffer may be reused.
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
    """A codec made of its parts. A user's codec may be one of these, or any object that follows `Codec`."""

    schema: Schema
    encode: Callable[[Any], Buffer]
    decode: Callable[[Buffer], Any]
    accepts: tuple[type, ...] | None = None
    keeps_views: bool = False

    @property
    def name(self) -> str:
        return self.schema.codec
