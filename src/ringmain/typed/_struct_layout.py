"""How a C struct lies in memory, as a text that C++ can write too.

    struct = '{' field (',' field)* '}' size
    field  = name ':' (scalar | struct) ['[' length (',' length)* ']'] '@' offset
    scalar = as numpy writes it: byte order, kind, size ('<f8', '|u1', '|S16')

`{t:<f8@0,gyro:<f4[3]@8,pose:{x:<f4@0,y:<f4@4}8@24}32` is 32 bytes, of which a nested struct has the last 8. Bytes that
no field has are padding.

Invariant: equal layouts have equal texts, so a reader of another layout is found by comparing texts, and what differs
by comparing fields. Nothing here needs numpy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ringmain.errors import SchemaError
from ringmain.typed._schema import Schema

NAME = re.compile(r"[^\x00-\x20\x7f\"\\{}\[\]:,@]+")
_SCALAR = re.compile(r"[<>|][a-zA-Z]\d+(\[\d*[a-zA-Z]+\])?")
_SHAPE = re.compile(r"\[(\d+(?:,\d+)*)\]")
_NUMBER = re.compile(r"\d{1,18}")
_DEEPEST = 32


@dataclass(frozen=True)
class StructField:
    name: str
    type: str | Layout
    shape: tuple[int, ...]
    offset: int

    @property
    def shape_text(self) -> str:
        return f"[{','.join(map(str, self.shape))}]" if self.shape else ""

    @property
    def text(self) -> str:
        """Its type, as the layout has it."""
        return (self.type if isinstance(self.type, str) else self.type.text) + self.shape_text


@dataclass(frozen=True)
class Layout:
    fields: tuple[StructField, ...]
    size: int

    @property
    def text(self) -> str:
        fields = ",".join(f"{field.name}:{field.text}@{field.offset}" for field in self.fields)
        return f"{{{fields}}}{self.size}"


def parse_layout(text: str) -> Layout:
    """`SchemaError` if the text is not a layout."""
    parser = _Parser(text)
    layout = parser.struct()
    if parser.at != len(text):
        raise parser.error("nothing more")
    return layout


def layout_of(schema: Schema) -> Layout:
    """Of a schema whose codec is `struct`."""
    return parse_layout(schema.params.get("layout", ""))


def layout_differences(writer: Layout, reader: Layout, path: str = "") -> Iterator[str]:
    """What is not the same, a line for each field."""
    written = {field.name: field for field in writer.fields}
    for field in reader.fields:
        name, there = path + field.name, written.pop(field.name, None)
        if there is None:
            yield f"field {name!r}: read, and not written"
        elif isinstance(field.type, Layout) and isinstance(there.type, Layout) and field.text != there.text:
            yield from layout_differences(there.type, field.type, f"{name}.")
            if field.shape != there.shape:
                yield f"field {name!r}: {there.shape_text or 'one'} written, {field.shape_text or 'one'} read"
        elif (field.text, field.offset) != (there.text, there.offset):
            yield f"field {name!r}: written as {_described(there)}, read as {_described(field)}"
    yield from (f"field {path + name!r}: written, and not read" for name in written)
    if writer.size != reader.size:
        what = f"field {path[:-1]!r}" if path else "struct"
        yield f"{what}: {writer.size} bytes written, {reader.size} read"


def _described(field: StructField) -> str:
    return f"{field.text} at byte {field.offset}"


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self.at = 0

    def error(self, expected: str) -> SchemaError:
        return SchemaError(f"not the layout of a struct: expected {expected} at {self._text[self.at : self.at + 20]!r}")

    def _take(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        found = pattern.match(self._text, self.at)
        if found is None:
            raise self.error(expected)
        self.at = found.end()
        return found

    def _sign(self, sign: str) -> None:
        if not self._text.startswith(sign, self.at):
            raise self.error(repr(sign))
        self.at += 1

    def struct(self) -> Layout:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self.error(f"at most {_DEEPEST} structs inside of each other")
        self._sign("{")
        fields = [self._field()]
        while self._text.startswith(",", self.at):
            self.at += 1
            fields.append(self._field())
        self._sign("}")
        self._depth -= 1
        return Layout(tuple(fields), int(self._take(_NUMBER, "a size")[0]))

    def _field(self) -> StructField:
        name = self._take(NAME, "the name of a field")[0]
        self._sign(":")
        type_ = self.struct() if self._text.startswith("{", self.at) else self._take(_SCALAR, "a type")[0]
        shape: tuple[int, ...] = ()
        if self._text.startswith("[", self.at):
            shape = tuple(map(int, self._take(_SHAPE, "a shape")[1].split(",")))
        self._sign("@")
        return StructField(name, type_, shape, int(self._take(_NUMBER, "an offset")[0]))
