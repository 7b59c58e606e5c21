"""The types a schema is made of: plain data that describes what may be on the wire.

Invariant: every `Ref` names a record of its schema, and all of it can be written as JSON. So a schema can be stored in
shared memory, in a recording and in Spark, and read without the user's classes.

Each is a tagged msgspec Struct, so that msgspec validates a schema from another process when it decodes it. Constraints
(`limits`) have msgspec's `Meta` names: gt, ge, lt, le, multiple_of, min_length, max_length, pattern, tz; and dtype.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

Limit: TypeAlias = bool | int | float | str
ScalarName: TypeAlias = Literal[
    "any", "null", "bool", "int", "float", "str", "bytes", "datetime", "date", "time", "timedelta", "uuid",
    "decimal", "ext", "ndarray",
]  # fmt: skip


class Word(msgspec.Struct, frozen=True, tag_field="k", omit_defaults=True):
    """The base class; the tag `k` on the wire tells which type it is."""


class Scalar(Word, tag="scalar", frozen=True):
    name: ScalarName
    limits: dict[str, Limit] = {}

    @property
    def dtype(self) -> str | None:
        """Of a numpy array, as `numpy.dtype.str`; None: any."""
        text = self.limits.get("dtype")
        return text if isinstance(text, str) else None


class Array(Word, tag="array", frozen=True):
    """A list, set, frozenset or tuple of any length; `unique` for the sets."""

    of: Type
    unique: bool = False
    limits: dict[str, Limit] = {}


class Tuple(Word, tag="tuple", frozen=True):
    of: tuple[Type, ...]


class Map(Word, tag="map", frozen=True):
    key: Type
    value: Type
    limits: dict[str, Limit] = {}


class Union(Word, tag="union", frozen=True):
    of: tuple[Type, ...]


class Choice(Word, tag="choice", frozen=True):
    """An Enum or a Literal: one of these values, as they are on the wire."""

    values: tuple[str | int | None, ...]
    name: str = "Literal"


class Ref(Word, tag="ref", frozen=True):
    record: str


Type: TypeAlias = Scalar | Array | Tuple | Map | Union | Choice | Ref


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """A field. `wire_name` is set if it differs from the name; `omittable` if a writer may leave the field out. `about`
    is for people, and says nothing of the wire."""

    name: str
    type: Type
    required: bool = False
    wire_name: str | None = None
    omittable: bool = False
    default: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    about: str = ""

    @property
    def key(self) -> str:
        return self.name if self.wire_name is None else self.wire_name


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Struct, dataclass, TypedDict or NamedTuple. `closed`: unknown fields are an error."""

    name: str
    fields: tuple[Field, ...]
    positional: bool = False
    closed: bool = False
    tag_field: str | None = None
    tag: str | int | None = None
    about: str = ""


ANY = Scalar("any")
NULL = Scalar("null")
STR = Scalar("str")
BYTES = Scalar("bytes")


def children(word: Type) -> tuple[Type, ...]:
    """The types directly inside a type. A `Ref` has none: its record is looked up in the schema."""
    match word:
        case Array(of=of):
            return (of,)
        case Tuple(of=items) | Union(of=items):
            return items
        case Map(key=key, value=value):
            return (key, value)
    return ()


def show(word: Type) -> str:
    """The type in Python's notation, for error messages."""
    match word:
        case Scalar(name="null"):
            return "None"
        case Scalar(name=name, limits=limits):
            return name + _show_limits(limits)
        case Array(of=of, unique=unique, limits=limits):
            return f"{'set' if unique else 'list'}[{show(of)}]{_show_limits(limits)}"
        case Tuple(of=of):
            return f"tuple[{', '.join(map(show, of))}]"
        case Map(key=key, value=value, limits=limits):
            return f"dict[{show(key)}, {show(value)}]{_show_limits(limits)}"
        case Union(of=of):
            return " | ".join(map(show, of))
        case Choice(name=name, values=values):
            return f"{name}[{', '.join(map(repr, values))}]"
        case Ref(record=record):
            return record


def _show_limits(limits: dict[str, Limit]) -> str:
    return f"({', '.join(f'{k}={v!r}' for k, v in sorted(limits.items()))})" if limits else ""
