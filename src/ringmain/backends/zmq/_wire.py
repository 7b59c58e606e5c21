"""What a message looks like on ZeroMQ: two frames, a header and the payload.

    +0       +4       +5           +6         +7       +8    +16       +24
    | "RMZ2" | flags  | sender_size| kind_size| 0      | seq | time_ns | epoch | sender kind |

All little-endian. A *hello* (flag 1) is sent when a subscriber connects: its payload says what the topic is, and its
`seq` is the number of the next message. So a subscriber knows what it missed, and that it has the right address.
Before the kind there may be an extension, as in shared memory.
"""

from __future__ import annotations

import struct

import msgspec

from ringmain import _extension
from ringmain.backends._python.reference_ring import Record
from ringmain.backends.zmq._address import ZmqContract
from ringmain.errors import Corrupt

HEADER = struct.Struct("<4sBBBxQqQ")
MAGIC = b"RMZ2"
HELLO_FLAG = 1
MAX_NUMBER = 2**63 - 1


class Hello(msgspec.Struct):
    """What a publisher tells a new subscriber about its topic."""

    topic: str
    contract: ZmqContract
    capacity: int
    name: str
    schema: bytes = b""


def pack(record: Record, epoch: int) -> list[bytes]:
    sender, kind = record.sender.encode(), record.extension + record.kind.encode()
    head = HEADER.pack(MAGIC, 0, len(sender), len(kind), record.seq, record.time_ns, epoch)
    return [head + sender + kind, record.data]


def pack_hello(hello: Hello, next_sequence: int, time_ns: int, epoch: int) -> list[bytes]:
    return [HEADER.pack(MAGIC, HELLO_FLAG, 0, 0, next_sequence, time_ns, epoch), msgspec.json.encode(hello)]


def unpack(topic: str, frames: list[bytes]) -> tuple[Record | Hello, int, int]:
    """The message or hello, the topic's epoch, and the number in the header."""
    try:
        if len(frames) != 2:
            raise ValueError(f"it has {len(frames)} parts, not 2")
        head, data = frames
        magic, flags, sender_size, kind_size, seq, time_ns, epoch = HEADER.unpack_from(head)
        if magic != MAGIC or len(head) != HEADER.size + sender_size + kind_size:
            raise ValueError("another format")
        if seq > MAX_NUMBER:
            raise ValueError(f"number {seq}")
        if flags & HELLO_FLAG:
            return msgspec.json.decode(data, type=Hello), epoch, seq
        sender = head[HEADER.size : HEADER.size + sender_size].decode(errors="replace")
        extension, kind = _extension.parts(head[HEADER.size + sender_size :])
        return Record(0, 0, seq, time_ns, sender, kind, data, extension=extension), epoch, seq
    except (ValueError, struct.error, msgspec.DecodeError) as error:
        raise Corrupt(
            f"what arrived on topic '{topic}' is not a ringmain message ({error}): another program, or another version "
            "of ringmain, publishes at its address",
            topic=topic,
        ) from error
