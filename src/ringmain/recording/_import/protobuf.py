"""Protobuf messages as records. Needs the package protobuf.

Enums are recorded by name, as protobuf's own JSON has them; a value without a name as its number in text. A field that
tells whether it was set (a message, `optional`, a `oneof`) is None where it was not.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ringmain.typed import _model

Described = tuple[_model.Type, dict[str, _model.Record], Callable[[bytes], Any]]
Read = Callable[[Any], Any]


def describe(name: str, descriptors: bytes) -> Described:
    """The type of a message, its records, and what makes plain data of a payload. Raises ValueError."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptors)
        pool = descriptor_pool.DescriptorPool()
        for file in _in_order(list(files.file)):
            pool.Add(file)
        root = pool.FindMessageTypeByName(name)
    except (message.DecodeError, KeyError, TypeError) as error:
        raise ValueError(f"no protobuf descriptor of {name!r}: {error}") from error
    description = _Description()
    word, read = description.message(root)
    parse = message_factory.GetMessageClass(root).FromString

    def decode(data: bytes) -> Any:
        try:
            return read(parse(bytes(data)))
        except message.DecodeError as error:
            raise ValueError(str(error)) from error

    return word, description.records, decode


def _in_order(files: list[Any]) -> list[Any]:
    """A file after those that it imports."""
    by_name = {file.name: file for file in files}
    ordered: dict[str, Any] = {}

    def add(name: str) -> None:
        if name in by_name and name not in ordered:
            file = by_name.pop(name)
            for dependency in file.dependency:
                add(dependency)
            ordered[name] = file

    for file in files:
        add(file.name)
    return list(ordered.values())


class _Description:
    def __init__(self) -> None:
        self.records: dict[str, _model.Record] = {}
        self._readers: dict[str, Read] = {}

    def message(self, descriptor: Any) -> tuple[_model.Type, Read]:
        name = descriptor.full_name
        if name not in self.records:
            self.records[name] = _model.Record(name, ())
            fields = [(field, *self._field(field)) for field in descriptor.fields]
            self.records[name] = _model.Record(
                name, tuple(_model.Field(field.name, word, required=True) for field, word, _ in fields)
            )
            readers = [(field.name, read) for field, _, read in fields]
            self._readers[name] = lambda message: {key: read(message) for key, read in readers}
        return _model.Ref(name), lambda message: self._readers[name](message)

    def _field(self, field: Any) -> tuple[_model.Type, Read]:
        """The type of a field, and what reads it from its message."""
        name = field.name
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
            (key_word, _), (word, read) = self._item(key), self._item(value)
            return _model.Map(key_word, word), lambda m: {k: read(v) for k, v in getattr(m, name).items()}
        word, read = self._item(field)
        if field.is_repeated:
            return _model.Array(word), lambda m: [read(item) for item in getattr(m, name)]
        if field.has_presence:
            return (
                _model.Union((word, _model.NULL)),
                lambda m: read(getattr(m, name)) if m.HasField(name) else None,
            )
        return word, lambda m: read(getattr(m, name))

    def _item(self, field: Any) -> tuple[_model.Type, Read]:
        kinds = {
            field.CPPTYPE_BOOL: "bool", field.CPPTYPE_FLOAT: "float", field.CPPTYPE_DOUBLE: "float",
        }  # fmt: skip
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            return self.message(field.message_type)
        if field.cpp_type == field.CPPTYPE_ENUM:
            return _model.STR, functools.partial(_enum_name, field.enum_type)
        if field.cpp_type == field.CPPTYPE_STRING:
            return (_model.BYTES if field.type == field.TYPE_BYTES else _model.STR), _same
        return _model.Scalar(kinds.get(field.cpp_type, "int")), _same  # type: ignore[arg-type]


def _enum_name(enum: Any, number: int) -> str:
    known = enum.values_by_number.get(number)
    return known.name if known is not None else str(number)


def _same(value: Any) -> Any:
    return value
