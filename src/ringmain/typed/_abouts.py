"""What a type and its fields are about, in the words of who wrote the type: they become the comments of tables and
columns.

    class Imu(msgspec.Struct):
        "The sensor of the arm."

        ax: Annotated[float, Meta(description="acceleration forward", extra={"unit": "m/s²"})]

A dataclass may say it in `field(metadata={"description": ..., "unit": ...})`. Docstrings of fields are not looked for:
only the source has them, and a schema would then depend on whether a program is installed with its source.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from msgspec import inspect

_LONGEST = 200


def about_class(cls: Any) -> str:
    """The first line of the class's docstring, if somebody wrote it."""
    text = (cls.__dict__.get("__doc__") or "").strip()
    name = getattr(cls, "__name__", "")
    return "" if text.startswith(f"{name}(") else text.partition("\n")[0].strip()[:_LONGEST]


def abouts(info: Any) -> dict[str, str]:
    """What is said of the fields of a Struct, dataclass, TypedDict or NamedTuple, by their names."""
    said = {field.name: _text(_of_annotation(field.type)) for field in info.fields}
    if isinstance(info, inspect.DataclassType) and dataclasses.is_dataclass(info.cls):
        for one in dataclasses.fields(info.cls):
            said[one.name] = _text(one.metadata) or said.get(one.name, "")
    return {name: about for name, about in said.items() if about}


def _of_annotation(type_: inspect.Type) -> Mapping[str, Any]:
    """What `Meta` says, directly or beside None."""
    if isinstance(type_, inspect.UnionType):
        return next(filter(None, map(_of_annotation, type_.types)), {})
    if not isinstance(type_, inspect.Metadata):
        return {}
    return {**(type_.extra_json_schema or {}), **(type_.extra or {})}


def _text(said: Mapping[str, Any]) -> str:
    """`acceleration forward, in m/s²`"""
    text, unit = said.get("description") or said.get("title") or "", said.get("unit") or ""
    if not isinstance(text, str) or not isinstance(unit, str):
        return ""
    text = " ".join(text.split())
    return (f"{text}, in {unit}" if text and unit else text or (f"in {unit}" if unit else ""))[:_LONGEST]
