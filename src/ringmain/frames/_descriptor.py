"""The descriptor of a frame, decoded in Python for tools that observe. `FrameSubscriber` decodes it natively;
docs/spec/frames.md has its fields."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import msgspec

_FIELDS = struct.Struct("<IHHIIQQQqqQ")
_MAGIC, _VALID = 0x454D5246, 1


class Descriptor(NamedTuple):
    """Which buffer of which pool the frame is in, and what the publisher set for it."""

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
    """None if the message is not a descriptor."""
    if message is None or len(message) < _FIELDS.size:
        return None
    magic, _version, flags, buffer, _reserved, pool, number, frame_id, start_ns, end_ns, size = _FIELDS.unpack_from(
        message
    )
    if magic != _MAGIC:
        return None
    try:
        meta = msgspec.msgpack.decode(message[_FIELDS.size :]) if len(message) > _FIELDS.size else {}
    except (msgspec.DecodeError, RecursionError):
        return None
    if not isinstance(meta, dict):
        return None
    return Descriptor(buffer, pool, number, frame_id, start_ns, end_ns, size, bool(flags & _VALID), meta)
