"""Describes a Python type in a schema's types, by means of `msgspec.inspect`.

Invariant: the description is what msgspec writes with a default Encoder. A type that msgspec encodes only with a hook
is refused, because other readers would not have the hook.
"""

from __future__ import annotations

import enum
import math
import sys
import typing
from typing import Any

import msgspec
from msgspec import inspect

from ringmain.typed import _model
from ringmain.typed._abouts import about_class, abouts
from ringmain.typed._aliases import without_alias

_LIMITS = ("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern", "tz")
_SCALARS: dict[type[inspect.Type], _model.ScalarName] = {
    inspect.AnyType: "any",
    inspect.RawType: "any",
    inspect.NoneType: "null",
    inspect.BoolType: "bool",
    inspect.IntType: "int",
    inspect.FloatType: "float",
    inspect.StrType: "str",
    inspect.BytesType: "bytes",
    inspect.ByteArrayType: "bytes",
    inspect.MemoryViewType: "bytes",
    inspect.DateTimeType: "datetime",
    inspect.DateType: "date",
    inspect.TimeType: "time",
    inspect.TimeDeltaType: "timedelta",
    inspect.UUIDType: "uuid",
    inspect.DecimalType: "decimal",
    inspect.ExtType: "ext",
}
_Fielded = inspect.StructType | inspect.DataclassType | inspect.TypedDictType | inspect.NamedTupleType


def describe(type_: Any) -> tuple[_model.Type, dict[str, _model.Record], bool]:
    """The root type, the records it refers to, and whether decoded objects keep views of the buffer."""
    description = _Description()
    return description.word(inspect.type_info(type_), "", type_), description.records, description.keeps_views


class _Description:
    def __init__(self) -> None:
        self.records: dict[str, _model.Record] = {}
        self.keeps_views = False
        self._names: dict[Any, str] = {}

    def word(self, info: inspect.Type, path: str, hint: Any = None) -> _model.Type:
        """`hint`: the type itself, where it is known; msgspec's description of an array leaves its dtype out."""
        if isinstance(info, inspect.Metadata):
            return self.word(info.type, path, hint)
        if isinstance(info, inspect.RawType | inspect.MemoryViewType | inspect.AnyType):
            self.keeps_views = True
        if (name := _SCALARS.get(type(info))) is not None:
            return _model.Scalar(name, _limits(info))
        match info:
            case inspect.CustomType(cls=cls) if _is_array(cls):
                self.keeps_views = True
                return _model.Scalar("ndarray", _dtype_limit(hint))
            case inspect.UnionType(types=types):
                hints = map(without_alias, typing.get_args(without_alias(hint)))
                one = next((t for t in hints if _is_array(typing.get_origin(t))), None)
                return _model.Union(tuple(self.word(t, path, one) for t in types))
            case inspect.EnumType(cls=cls):
                # Values of a Flag can be combined, so its members are not all that may be sent.
                if issubclass(cls, enum.Flag):
                    return _model.Scalar("int")
                return _model.Choice(tuple(member.value for member in cls), cls.__name__)
            case inspect.LiteralType(values=values):
                return _model.Choice(tuple(sorted(values, key=repr)))
            case inspect.TupleType(item_types=types):
                return _model.Tuple(tuple(self.word(t, f"{path}[{i}]") for i, t in enumerate(types)))
            case inspect.CollectionType(item_type=item):
                unique = isinstance(info, inspect.SetType | inspect.FrozenSetType)
                return _model.Array(self.word(item, f"{path}[]"), unique, _limits(info))
        if isinstance(info, _Fielded):
            return _model.Ref(self._record(info, path))
        if hasattr(info, "key_type") and hasattr(info, "value_type"):  # dict, and frozendict where Python has it
            key, value = self.word(info.key_type, path), self.word(info.value_type, f"{path}{{}}")
            return _model.Map(key, value, _limits(info))
        where = f"field {path.lstrip('.')!r} has type" if path else "type"
        raise TypeError(
            f"{where} {getattr(info, 'cls', info)!r}, which msgspec encodes only with a hook: use a type that "
            "it encodes by itself (bytes, list, a Struct), or ringmain.typed.register_codec"
        )

    def _record(self, info: _Fielded, path: str) -> str:
        cls = info.cls
        if cls in self._names:
            return self._names[cls]
        base = getattr(cls, "__name__", str(cls))
        name, count = base, 1
        while name in self._names.values():
            count += 1
            name = f"{base}#{count}"
        self._names[cls] = name
        optional = _omittable(info)
        hints = typing.get_type_hints(cls) if any(map(_has_array, info.fields)) else {}
        about = abouts(info)
        fields = tuple(
            _model.Field(
                name=field.name,
                type=self.word(field.type, f"{path}.{field.name}", hints.get(field.name)),
                required=field.required,
                wire_name=field.encode_name if field.encode_name != field.name else None,
                omittable=field.name in optional,
                default=_default(field),
                about=about.get(field.name, ""),
            )
            for field in info.fields
        )
        if isinstance(info, inspect.StructType):
            self.records[name] = _model.Record(
                base, fields, info.array_like, info.forbid_unknown_fields, info.tag_field, info.tag, about_class(cls)
            )
        else:
            named_tuple = isinstance(info, inspect.NamedTupleType)
            self.records[name] = _model.Record(
                base, fields, positional=named_tuple, closed=named_tuple, about=about_class(cls)
            )
        return name


def _is_array(cls: Any) -> bool:
    numpy = sys.modules.get("numpy")  # a type of numpy's exists only where the library is already imported
    return numpy is not None and cls is numpy.ndarray


def _has_array(field: inspect.Field) -> bool:
    """Directly, or beside None."""
    types = field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
    return any(isinstance(t, inspect.CustomType) and _is_array(t.cls) for t in types)


def _dtype_limit(hint: Any) -> dict[str, _model.Limit]:
    from ringmain.typed._arrays import dtype_text, fixed_dtype

    dtype = fixed_dtype(hint)
    return {} if dtype is None else {"dtype": dtype_text(dtype).decode()}


def _limits(info: inspect.Type) -> dict[str, _model.Limit]:
    found = ((name, getattr(info, name, None)) for name in _LIMITS)
    return {name: limit for name, limit in found if limit is not None}


def _omittable(info: _Fielded) -> set[str]:
    """The fields that an encoder may leave out of a message."""
    if isinstance(info, inspect.TypedDictType):
        return {field.name for field in info.fields if not field.required}
    if isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False):
        return set()
    hints = typing.get_type_hints(info.cls)
    names = {name for name, hint in hints.items() if msgspec.UnsetType in (hint, *typing.get_args(without_alias(hint)))}
    if isinstance(info, inspect.StructType) and info.cls.__struct_config__.omit_defaults:
        names |= {
            field.name
            for field in info.fields
            if field.default is not msgspec.NODEFAULT or field.default_factory in (list, dict, set)
        }
    return names


def _default(field: inspect.Field) -> msgspec.Raw | msgspec.UnsetType:
    """The default as JSON, if JSON can express it; a reader without the class uses it for missing fields."""
    value = field.default
    if field.default_factory in (list, dict, set):
        value = field.default_factory()
    if value is msgspec.NODEFAULT or value is msgspec.UNSET:
        return msgspec.UNSET
    if isinstance(value, float) and not math.isfinite(value):
        return msgspec.UNSET
    try:
        return msgspec.Raw(msgspec.json.encode(value, order="sorted"))
    except (TypeError, ValueError, OverflowError):
        return msgspec.UNSET
