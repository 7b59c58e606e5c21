"""Schemas as people read them, and as JSON."""

from __future__ import annotations

import json
from typing import Any

from ringmain.typed import Schema
from ringmain.typed._model import Record, show


def schema_dict(schema: Schema) -> dict[str, Any]:
    """The schema as it is kept with the topic."""
    plain: dict[str, Any] = json.loads(schema.to_bytes())
    return plain


def schema_lines(schema: Schema) -> list[str]:
    """The type and its fields, as one would write the class."""
    lines = [f"schema: {schema.type_name} ({schema.codec})"]
    for name, record in schema.records.items():
        lines += [f"  {name}:", *_fields(record)]
    lines += [f"  {key} = {value}" for key, value in schema.params.items() if len(value) <= 100]
    return lines


def _fields(record: Record) -> list[str]:
    lines = []
    for field in record.fields:
        default = "" if field.required else " = ..."
        if isinstance(field.default, bytes):
            default = f" = {bytes(field.default).decode()}"
        lines.append(f"    {field.name}: {show(field.type)}{default}")
    return lines
