"""ROS 1 and ROS 2 messages as records. Needs the package rosbags.

A sequence of bytes (uint8, byte, char) is recorded as bytes, other numbers as lists. A bag of ROS 2 that has no message
definitions, as older ones have, is read with those of the latest release.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import error as struct_error
from typing import Any

from ringmain.typed import _model

_BYTES = frozenset({"uint8", "byte", "octet", "char"})
_SCALARS = {"bool": "bool", "float32": "float", "float64": "float", "float128": "float", "string": "str"}

Described = tuple[_model.Type, dict[str, _model.Record], Callable[[bytes], Any]]
Read = Callable[[Any], Any]


def describe(encoding: str, schema_encoding: str, type_name: str, definition: bytes) -> Described:
    """The type of a message, its records, and what makes plain data of a payload. Raises ValueError."""
    from rosbags.serde import SerdeError
    from rosbags.typesys import TypesysError
    from rosbags.typesys.msg import normalize_msgtype

    name = normalize_msgtype(type_name)
    try:
        store = _store(schema_encoding, name, definition.decode())
        description = _Description(store)
        word, read = description.message(name)
    except (TypesysError, KeyError, UnicodeDecodeError) as error:
        raise ValueError(f"no definition of {type_name!r}: {error}") from error
    deserialize = store.deserialize_ros1 if encoding == "ros1" else store.deserialize_cdr

    def decode(data: bytes) -> Any:
        try:
            return read(deserialize(bytes(data), name))
        except (SerdeError, ValueError, IndexError, AssertionError, struct_error) as error:
            raise ValueError(f"not a message of {type_name}: {error}") from error

    return word, description.records, decode


def _store(schema_encoding: str, name: str, definition: str) -> Any:
    from rosbags.typesys import Stores, get_types_from_idl, get_types_from_msg, get_typestore

    if not definition:
        return get_typestore(Stores.LATEST)
    store = get_typestore(Stores.EMPTY)
    if schema_encoding != "ros2idl":
        store.register(get_types_from_msg(definition, name))
        return store
    line = "=" * 80 + "\n"
    for part in definition.split(line):
        text = part.partition("\n")[2] if part.startswith("IDL: ") else part
        if text.strip():
            store.register(get_types_from_idl(text))
    return store


class _Description:
    def __init__(self, store: Any) -> None:
        self._store = store
        self.records: dict[str, _model.Record] = {}
        self._readers: dict[str, Read] = {}

    def message(self, name: str) -> tuple[_model.Type, Read]:
        if name not in self.records:
            self.records[name] = _model.Record(name, ())
            made = [(field, *self._field(kind)) for field, kind in self._store.get_msgdef(name).fields]
            self.records[name] = _model.Record(
                name, tuple(_model.Field(field, word, required=True) for field, word, _ in made)
            )
            readers = [(field, read) for field, _, read in made]
            self._readers[name] = lambda message: {field: read(getattr(message, field)) for field, read in readers}
        return _model.Ref(name), self._readers[name]

    def _field(self, kind: Any) -> tuple[_model.Type, Read]:
        from rosbags.interfaces import Nodetype

        node, details = kind
        if node == Nodetype.NAME:
            return self.message(details)
        if node == Nodetype.BASE:
            return _model.Scalar(_scalar(details[0])), _same
        word, read = self._field(details[0])
        item_node, item = details[0]
        if item_node != Nodetype.BASE:
            return _model.Array(word), lambda items: [read(item) for item in items]
        if item[0] in _BYTES:
            return _model.BYTES, bytes
        return _model.Array(word), list if word == _model.STR else _numbers


def _scalar(name: str) -> Any:
    return _SCALARS.get(name, "str" if name == "wstring" else "int")


def _numbers(array: Any) -> list[Any]:
    numbers: list[Any] = array.tolist()
    return numbers


def _same(value: Any) -> Any:
    return value
