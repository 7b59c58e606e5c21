"""Messages as programs of robotics take them, in MCAP files and over Foxglove's protocol: records as JSON with a JSON
schema, frames under the names that Foxglove has for pixel formats, everything else as recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from ringmain.typed import Schema

RAW_ENCODING = "ringmain"
# Our pixel formats, and their names in `foxglove.RawImage`.
IMAGE_ENCODINGS = {"gray": "mono8", "rgb": "rgb8", "bgr": "bgr8", "rgba": "rgba8", "bgra": "bgra8"}


class JsonForm(NamedTuple):
    """How values of a type are written."""

    described: dict[str, Any]
    """The JSON schema."""
    encode: Callable[[Any], bytes]
    """Of a value, as the type's codec decodes it."""

    @property
    def schema(self) -> bytes:
        return msgspec.json.encode(self.described)


def json_form(schema: Schema) -> JsonForm | None:
    """None where JSON is not for it. Raises ValueError, LookupError, TypeError or ImportError where this version cannot
    tell."""
    from ringmain.typed._array_values import to_json
    from ringmain.typed._materialise import materialise

    encode = msgspec.json.Encoder(enc_hook=to_json).encode
    if schema.codec == "struct":
        from ringmain.typed import _structs

        described = _structs.json_schema(_structs.dtype_of_schema(schema))
        return JsonForm({"title": schema.type_name, **described}, lambda value: encode(_structs.to_builtins(value)))
    if schema.codec == "msgpack":
        described = json_schema(materialise(schema)) if schema.fields else {"type": "object"}
        return JsonForm({"title": schema.type_name, **described}, encode)
    if schema.codec == "ndarray":
        described = {"title": schema.type_name, "type": "object"}
        return JsonForm(described, lambda a: encode({"dtype": a.dtype.str, "shape": a.shape, "values": a}))
    return None


def json_schema(type_: Any) -> dict[str, Any]:
    """The JSON schema of a type, with its fields at the top level, where programs look for them."""
    schema = msgspec.json.schema(type_)
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    inner = schema.get("$defs", {})
    if name in inner:
        schema = {**inner[name], "$defs": inner}
    return schema
