"""Payloads from what a user types: text or hex for bytes, JSON for typed topics."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import msgspec

from ringmain._cli.exit_codes import CommandError, UsageError
from ringmain.typed import Schema, codec_for, codec_from_schema
from ringmain.typed._materialise import materialise


class Encoder:
    """Turns a text into a payload."""

    def __init__(self, schema: Schema | None, *, as_hex: bool = False) -> None:
        self.schema = schema
        self._hex = as_hex
        self._made: Any = None
        self._by_field: Any = None
        if schema is not None and schema.codec == "msgpack":
            self._made = materialise(schema)
            if schema.has_positional:
                self._by_field = materialise(schema, by_field=True)
        elif schema is not None and schema.codec not in ("bytes", "str", "ndarray", "struct"):
            raise CommandError(
                f"messages of {schema.type_name} ({schema.codec}) cannot be written as text: send them from a program"
            )

    def encode(self, text: str) -> bytes:
        """The payload. `UsageError` if the text is not a message of this topic."""
        schema = self.schema
        if self._hex:
            try:
                return bytes.fromhex(text)
            except ValueError as error:
                raise UsageError(f"{text!r} is not hex: {error}") from None
        if schema is None or schema.codec in ("bytes", "str"):
            return os.fsencode(text)
        try:
            value = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise UsageError(f"the topic takes {schema.type_name} as JSON, and this is not JSON: {error}") from None
        try:
            if schema.codec == "ndarray":
                return self._array(value)
            if schema.codec == "struct":
                return self._struct(value)
            return bytes(codec_from_schema(schema).encode(self._record(value)))
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise UsageError(f"the message does not fit the type {schema.type_name}: {error}") from None

    def _record(self, value: Any) -> Any:
        """A record that is sent as an array may be written as one, or by field, as `echo` prints it."""
        try:
            return msgspec.convert(value, self._made)
        except msgspec.ValidationError:
            if self._by_field is None:
                raise
        return msgspec.convert(msgspec.convert(value, self._by_field), self._made, from_attributes=True)

    def _array(self, value: Any) -> bytes:
        import numpy

        assert self.schema is not None
        dtype = self.schema.params.get("dtype")
        return bytes(codec_from_schema(self.schema).encode(numpy.array(value, dtype=dtype or None)))

    def _struct(self, value: Any) -> bytes:
        from ringmain.typed._structs import dtype_of_schema, from_builtins

        assert self.schema is not None
        record = from_builtins(value, dtype_of_schema(self.schema))
        return bytes(codec_from_schema(self.schema).encode(record))


def schema_of_type(path: str) -> Schema:
    """The schema of a class given as 'module:Class'."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise UsageError(f"--type is written module:Class, like robot.messages:Imu, not {path!r}")
    sys.path.insert(0, os.getcwd())
    try:
        return codec_for(getattr(importlib.import_module(module), name)).schema
    except (ImportError, AttributeError) as error:
        raise UsageError(f"--type {path}: {error}") from None
    finally:
        sys.path.pop(0)
