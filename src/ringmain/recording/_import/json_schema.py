"""JSON schemas in ringmain's schema language, as far as it goes; what it cannot say becomes `any`.

Strings stay strings: a date, or bytes in base64, is recorded as the text that it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ringmain.typed import _model

_SCALARS: dict[str, _model.Type] = {
    "string": _model.STR,
    "number": _model.Scalar("float"),
    "integer": _model.Scalar("int"),
    "boolean": _model.Scalar("bool"),
    "null": _model.NULL,
}


def describe(name: str, schema: bytes) -> tuple[_model.Type, dict[str, _model.Record]]:
    """The root type and its records. Raises ValueError for what is not a JSON schema."""
    document = msgspec.json.decode(schema)
    if not isinstance(document, dict):
        raise ValueError("a JSON schema is an object")
    description = _Description(document)
    return description.word(document, name or "Message"), description.records


class _Description:
    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document
        self._refs: dict[str, str] = {}  # $ref -> record; one that is being made is there already
        self.records: dict[str, _model.Record] = {}

    def word(self, schema: Any, name: str) -> _model.Type:
        if not isinstance(schema, dict):
            return _model.ANY
        if isinstance(ref := schema.get("$ref"), str):
            return self._ref(ref)
        choices = schema.get("enum")
        if isinstance(choices, list) and choices and len({type(value) for value in choices}) == 1:
            return _model.Choice(tuple(choices)) if type(choices[0]) in (str, int) else _model.ANY
        either = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(either, list):
            return self._union([self.word(part, name) for part in either])
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._union([self._typed({**schema, "type": one}, one, name) for one in kind])
        return self._typed(schema, kind, name)

    def _typed(self, schema: dict[str, Any], kind: Any, name: str) -> _model.Type:
        if kind == "array":
            return _model.Array(self.word(schema.get("items"), f"{name}.item"))
        if kind == "object" or (kind is None and "properties" in schema):
            properties = schema.get("properties")
            if isinstance(properties, dict) and properties:
                return _model.Ref(self._record(properties, schema.get("required"), name))
            return _model.Map(_model.STR, self.word(schema.get("additionalProperties"), f"{name}.value"))
        return _SCALARS.get(kind, _model.ANY) if isinstance(kind, str) else _model.ANY

    def _record(self, properties: dict[str, Any], required: Any, name: str) -> str:
        while name in self.records:
            name += "'"
        self.records[name] = _model.Record(name, ())  # taken, while its fields are made
        needed = set(required) if isinstance(required, list) else set()
        fields = [
            _model.Field(key, self.word(part, f"{name}.{key}"), required=key in needed, omittable=key not in needed)
            for key, part in properties.items()
        ]
        self.records[name] = _model.Record(name, tuple(fields))
        return name

    def _ref(self, ref: str) -> _model.Type:
        if ref in self._refs:
            return _model.Ref(self._refs[ref])
        found: Any = self._document
        for part in ref.removeprefix("#").split("/")[1:]:
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        properties = found.get("properties") if isinstance(found, dict) else None
        if not isinstance(properties, dict) or not properties:
            return _model.ANY if isinstance(found, dict) and "$ref" in found else self.word(found, ref)
        name = ref.rpartition("/")[2] or "Message"
        self._refs[ref] = name
        made = self._record(properties, found.get("required"), name)
        if made != name:  # another record had the name
            self.records[name] = self.records[made]
        return _model.Ref(made)

    @staticmethod
    def _union(words: list[_model.Type]) -> _model.Type:
        """T or null; other unions are `any`."""
        present = [word for word in words if word != _model.NULL]
        if len(present) == len(words) == 1:
            return present[0]
        return _model.Union((present[0], _model.NULL)) if len(present) == 1 else _model.ANY
