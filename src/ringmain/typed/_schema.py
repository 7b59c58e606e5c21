"""A topic's schema: which codec, and what its messages are made of.

Invariant: `to_bytes` is canonical. Equal schemas have the same bytes in every process and on every machine, so their
bytes can be compared, and the fingerprint identifies a schema.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from ringmain.errors import SchemaError
from ringmain.typed import _model

FORMAT = 1


class Schema(msgspec.Struct, frozen=True, omit_defaults=True):
    """`codec` and its `version`, the `type_name` to show, the `root` type and the `records` it refers to.

    `params` belongs to the codec: an array's dtype, a table's Arrow schema, anything for a user's codec.
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
    def about(self) -> str:
        """What the root record is about, for people."""
        return self.records[self.root.record].about if isinstance(self.root, _model.Ref) else ""

    def without_abouts(self) -> Schema:
        """What it says of the wire alone."""
        plain = msgspec.structs.replace
        records = {
            name: plain(record, about="", fields=tuple(plain(field, about="") for field in record.fields))
            for name, record in self.records.items()
        }
        return plain(self, records=records)

    def _words(self) -> Iterator[_model.Type]:
        """All types in it."""
        words = [self.root, *(f.type for r in self.records.values() for f in r.fields)]
        while words:
            word = words.pop()
            yield word
            words += _model.children(word)

    @property
    def scalars(self) -> set[str]:
        """The names of the scalars in it."""
        return {word.name for word in self._words() if isinstance(word, _model.Scalar)}

    @property
    def has_positional(self) -> bool:
        """Is any record sent as an array, without the names of its fields?"""
        return any(record.positional for record in self.records.values())

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits, equal if and only if the schemas are."""
        return hashlib.blake2b(self.to_bytes(), digest_size=16).hexdigest()

    def to_bytes(self) -> bytes:
        """Compact JSON, sorted keys."""
        return msgspec.json.encode(msgspec.structs.replace(self, format=FORMAT), order="sorted")

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Schema:
        """The schema that `to_bytes` wrote; `SchemaError` if the bytes are not one."""
        try:
            schema = _DECODER.decode(data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SchemaError(f"these {len(data)} bytes are not a ringmain schema: {error}") from error
        if schema.format != FORMAT:
            raise SchemaError(
                f"the schema of {schema.type_name!r} has format {schema.format}, this ringmain reads "
                f"{FORMAT}: use the same version of ringmain on both sides"
            )
        for word in schema._words():
            if isinstance(word, _model.Ref) and word.record not in schema.records:
                raise SchemaError(f"the schema of {schema.type_name!r} has no record {word.record!r}, but refers to it")
        return msgspec.structs.replace(schema, format=0)


_DECODER = msgspec.json.Decoder(Schema)
