"""The note that travels in the topic for each frame, read in Python: for tools that watch. Readers of frames have it
read natively; docs/spec/frames.md has the table."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec

_FIELDS = struct.Struct("<IHHIIQQQqqQ")
_MAGIC, _VALID = 0x454D5246, 1


class Descriptor(NamedTuple):
    """Which buffer of which pool, and what the publisher said of the frame."""

    buffer: int
    pool: int
    """The pool's epoch."""
    number: int
    id: int
    start_ns: int
    end_ns: int
    size: int
    valid: bool
    meta: dict[str, Any]


def read_descriptor(message: bytes | None) -> Descriptor | None:
    """None if it is none."""
    if message is None or len(message) < _FIELDS.size:
        return None
    magic, _version, flags, buffer, _reserved, pool, number, frame_id, start_ns, end_ns, size = _FIELDS.unpack_from(
        message
    )
    if magic != _MAGIC:
        return None
    try:
        meta = msgspec.msgpack.decode(message[_FIELDS.size :]) if len(message) > _FIELDS.size else {}
    except msgspec.DecodeError:
        return None
    return Descriptor(buffer, pool, number, frame_id, start_ns, end_ns, size, bool(flags & _VALID), meta)
