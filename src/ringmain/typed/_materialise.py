"""Makes a Python type from a schema, for readers that do not have the user's class.

Invariant: the type reads everything that the schema's writer may send. It is less strict than the original where no
data is lost: constraints are not checked, an Enum becomes its value, a set becomes a list.

Records become frozen Structs, which can also be keys. A record with field names that are not identifiers becomes a
dict, because a Struct cannot have such fields.
"""

from __future__ import annotations

import datetime
import decimal
import functools
import keyword
import types
import typing
import uuid
from typing import Any

import msgspec

from ringmain.errors import SchemaError
from ringmain.typed import _model
from ringmain.typed._schema import Schema

_SCALARS: dict[str, Any] = {
    "any": Any,
    "null": None,
    "bool": bool,
    "int": int,
    "float": float,
    "str": str,
    "bytes": bytes,
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "uuid": uuid.UUID,
    "decimal": decimal.Decimal,
    "ext": msgspec.msgpack.Ext,
}


def materialise(schema: Schema, *, by_field: bool = False) -> Any:
    """A type that msgspec decodes the schema's messages into. `by_field`: a type of the same fields that reads records
    by their names, also those that are sent as arrays."""
    maker = _Maker(schema, by_field)
    try:
        made = maker.type(schema.root)
        maker.settle()
        msgspec.msgpack.Decoder(made)  # resolves the forward references now, so that errors are raised here
    except SchemaError:
        raise
    except (TypeError, ValueError, NameError, RecursionError) as error:
        raise SchemaError(f"the schema of {schema.type_name!r} cannot be made a type: {error}") from error
    return made


def is_dict_like(record: _model.Record) -> bool:
    """Does a record become a dict, because its field names cannot be attributes?"""
    return not record.positional and any(
        not field.name.isidentifier() or keyword.iskeyword(field.name) or field.name.startswith("__")
        for field in record.fields
    )


class _Maker:
    def __init__(self, schema: Schema, by_field: bool) -> None:
        self._schema, self._by_field = schema, by_field
        self._made: dict[tuple[str, bool], Any] = {}
        # A record being made → its forward reference. A record inside a key is made separately, with tuples instead of
        # lists, because it must be hashable.
        self._pending: dict[tuple[str, bool], str] = {}

    def type(self, word: _model.Type, *, as_key: bool = False) -> Any:
        match word:
            case _model.Scalar(name="ndarray"):
                import numpy

                return numpy.ndarray
            case _model.Scalar(name=name):
                return _SCALARS[name]
            case _model.Array(of=of):
                item = self.type(of, as_key=as_key)
                return types.GenericAlias(tuple, (item, ...)) if as_key else types.GenericAlias(list, item)
            case _model.Tuple(of=items):
                return types.GenericAlias(tuple, tuple(self.type(item, as_key=as_key) for item in items))
            case _model.Map(key=key, value=value):
                return types.GenericAlias(dict, (self.type(key, as_key=True), self.type(value, as_key=as_key)))
            case _model.Union(of=items):
                return typing.Union[tuple(self.type(item, as_key=as_key) for item in items)]  # noqa: UP007
            case _model.Choice(values=values):
                kinds = tuple(dict.fromkeys(None if value is None else type(value) for value in values))
                return typing.Union[kinds]  # noqa: UP007
            case _model.Ref(record=name):
                return self._record(name, as_key)

    def settle(self) -> None:
        """Set the forward references as attributes of each record: msgspec looks them up in the class."""
        for made in self._made.values():
            if isinstance(made, type) and issubclass(made, msgspec.Struct):
                for name, alias in self._pending.items():
                    setattr(made, alias, self._made[name])

    def _record(self, name: str, as_key: bool) -> Any:
        this = (name, as_key)
        if this not in self._made:
            if this in self._pending:
                return typing.ForwardRef(self._pending[this])
            self._pending[this] = f"_ringmain_ref_{len(self._pending)}"
            record = self._schema.records[name]
            self._made[this] = self._dict(record) if is_dict_like(record) else self._struct(record, as_key)
        return self._made[this]

    def _dict(self, record: _model.Record) -> Any:
        if record.tag is not None:
            raise SchemaError(f"record {record.name!r} has a tag and field names that are not identifiers")
        items = {field.key: (field, self.type(field.type)) for field in record.fields}
        # A field may refer to the record itself; a TypedDict made here has no namespace to resolve that.
        if any(isinstance(made, typing.ForwardRef) for _, made in items.values()):
            return dict[str, Any]
        hints = {key: made if field.required else typing.NotRequired[made] for key, (field, made) in items.items()}
        return typing.TypedDict(record.name, hints)  # type: ignore[operator]

    def _struct(self, record: _model.Record, as_key: bool) -> Any:
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for field in record.fields:
            made = self.type(field.type, as_key=as_key)
            if field.required and not field.omittable:
                fields.append((field.name, made))
            else:
                fields.append((field.name, typing.Union[made, None], _default(field, made)))  # noqa: UP007
        return msgspec.defstruct(
            record.name,
            fields,
            frozen=True,
            kw_only=True,
            array_like=record.positional and not self._by_field,
            tag_field=record.tag_field,
            tag=record.tag,
            rename={field.name: field.key for field in record.fields},
            module=__name__,
        )


def _default(field: _model.Field, made: Any) -> Any:
    """The writer's default, if the schema has it; otherwise None, which then means that nothing was sent."""
    if isinstance(field.default, msgspec.UnsetType):
        return None
    raw = bytes(field.default)
    value = msgspec.json.decode(raw)
    if isinstance(value, bool | None) or (isinstance(value, int | float | str) and made in (int, float, str)):
        return value
    return msgspec.field(default_factory=functools.partial(_decode_default, raw, made))


def _decode_default(raw: bytes, made: Any) -> Any:
    return msgspec.json.decode(raw, type=made)
