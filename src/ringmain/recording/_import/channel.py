"""What a bag says of a topic, and how its payloads become those of a typed topic.

The invariant owned here: *no payload is dropped*. A payload that cannot be converted is recorded as it is in the bag,
and counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from ringmain import typed
from ringmain.errors import SchemaError
from ringmain.recording._import import json_schema, protobuf, ros
from ringmain.typed import _model
from ringmain.typed._materialise import materialise

RINGMAIN = "ringmain"  # the encoding of payloads and schemas that `export --mcap --raw` writes

Convert = Callable[[bytes], bytes]


class Channel(NamedTuple):
    """A channel of an MCAP file, or a connection of a ROS bag. `encoding` and `schema_encoding` are MCAP's words."""

    topic: str
    encoding: str
    type_name: str = ""
    schema_encoding: str = ""
    schema: bytes = b""
    sender: str = ""
    kind: str = ""
    contract: str = ""


class Conversion(NamedTuple):
    """The schema of the recorded topic; what converts a payload, None where it stays as it is; and why the topic is
    not typed, if it is not."""

    schema: bytes = b""
    convert: Convert | None = None
    why_raw: str = ""


def conversion_of(channel: Channel) -> Conversion:
    """JSON, protobuf and ROS messages become records in msgpack. Everything else is recorded as bytes."""
    known = (channel.encoding, channel.schema_encoding)
    try:
        match known:
            case (_, "ringmain"):
                typed.Schema.from_bytes(channel.schema)
                return Conversion(channel.schema)
            case ("json", "jsonschema" | ""):
                return _of_json(channel)
            case ("protobuf", "protobuf"):
                root, records, read = protobuf.describe(channel.type_name, channel.schema)
            case ("ros1" | "cdr", "ros1msg" | "ros2msg" | "ros2idl" | ""):
                root, records, read = ros.describe(*known, channel.type_name, channel.schema)
            case ("", _):
                return Conversion()
            case _:
                return Conversion(why_raw=f"ringmain does not decode {channel.encoding!r}")
        schema = typed.Schema("msgpack", channel.type_name, root, records)
        materialise(schema)
    except ImportError as error:
        return Conversion(why_raw=f"the package {error.name} is not installed: pip install 'ringmain[import]'")
    except (SchemaError, ValueError) as error:
        return Conversion(why_raw=" ".join(f"its schema cannot be used: {error}".split()))
    encode = msgspec.msgpack.Encoder().encode
    return Conversion(schema.to_bytes(), lambda data: encode(read(data)))


def _of_json(channel: Channel) -> Conversion:
    """All of a message is kept, also what its schema does not mention: columns come from the schema, and `any` JSON
    where there is none."""
    root, records = json_schema.describe(channel.type_name, channel.schema) if channel.schema else (_model.ANY, {})
    schema = typed.Schema("msgpack", channel.type_name or "JSON", root, records)
    check = msgspec.json.Decoder(materialise(schema)).decode
    read, encode = msgspec.json.Decoder().decode, msgspec.msgpack.Encoder().encode

    def convert(data: bytes) -> bytes:
        check(data)
        return encode(read(data))

    return Conversion(schema.to_bytes(), convert)
