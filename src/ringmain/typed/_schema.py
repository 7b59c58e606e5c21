"""A topic's schema: which codec, and what its messages are made of.

Invariant: `to_bytes` is canonical. Two schemas that say the same have the same bytes, in every process and on
every machine, so bytes can be compared and the fingerprint is an identity.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from ringmain.errors import SchemaError
from ringmain.typed import _model

FORMAT = 1


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """`codec` and its `version`, the `type_name` for people, the `root` type and the `records` it refers to.

    `params` is the codec's own (an array's dtype, a table's Arrow schema, a user codec's what it likes).
    """

    codec: str
    type_name: str
    root: _model.Type = _model.ANY
    records: dict[str, _model.Record] = {}
    params: dict[str, str] = {}
    version: int = 1
    format: int = msgspec.field(default=0, name="ringmain")

    @property
    def fields(self) -> tuple[_model.Field, ...]:
        """The fields of the root record; empty if messages are not records."""
        return self.records[self.root.record].fields if isinstance(self.root, _model.Ref) else ()

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits that are equal exactly when the schemas are."""
        return hashlib.blake2b(self.to_bytes(), digest_size=16).hexdigest()

    def to_bytes(self) -> bytes:
        """Compact JSON, sorted keys."""
        marked = msgspec.structs.replace(self, format=FORMAT)
        return msgspec.json.encode(_canonical(msgspec.json.decode(msgspec.json.encode(marked))))

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Schema:
        """The schema that `to_bytes` wrote; `SchemaError` if it did not."""
        try:
            schema = _DECODER.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SchemaError(f"these {len(data)} bytes are not a ringmain schema: {error}") from error
        if schema.format != FORMAT:
            raise SchemaError(
                f"the schema of {schema.type_name!r} has format {schema.format}, this ringmain reads "
                f"{FORMAT}: use the same version of ringmain on both sides"
            )
        for word in [schema.root, *(f.type for r in schema.records.values() for f in r.fields)]:
            _check_refs(word, schema)
        return msgspec.structs.replace(schema, format=0)


_DECODER = msgspec.json.Decoder(Schema)


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(value[key]) for key in sorted(value)}
    return [_canonical(item) for item in value] if isinstance(value, list) else value


def _check_refs(word: _model.Type, schema: Schema) -> None:
    match word:
        case _model.Ref(record=record):
            if record not in schema.records:
                raise SchemaError(f"the schema of {schema.type_name!r} refers to {record!r}, which it does not have")
        case _model.Array(of=of):
            _check_refs(of, schema)
        case _model.Tuple(of=items) | _model.Union(of=items):
            for item in items:
                _check_refs(item, schema)
        case _model.Map(key=key, value=value):
            _check_refs(key, schema)
            _check_refs(value, schema)
        case _model.Scalar() | _model.Choice():
            pass
