"""Payloads that a writer made up: a reader gets an error with a reason, and what it gets otherwise is safe to use.

How: Arrow streams, arrays and MessagePack are damaged where it hurts (offsets, indices, shapes, depth), and at random
with a fixed seed. What still decodes is read to the end, in this process: a crash fails the test.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

import ringmain as rm
from ringmain.frames._descriptor import read_descriptor
from ringmain.typed import Schema, codec_for, codec_from_schema, decode_column


def _stream(batch: pa.RecordBatch, **options: Any) -> bytearray:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, **options) as writer:
        writer.write_batch(batch)
    return bytearray(sink.getvalue().to_pybytes())


def _with(raw: bytearray, before: bytes, after: bytes) -> bytes:
    at = raw.index(before)
    raw[at : at + len(after)] = after
    return bytes(raw)


ROWS = 20
LYING = {
    "offsets of text": (pa.array(["hello"] * ROWS), struct.pack("<iii", 0, 5, 10), struct.pack("<ii", 0, 1 << 30)),
    "offsets of lists": (pa.array([[1, 2]] * ROWS), struct.pack("<iii", 0, 2, 4), struct.pack("<ii", 0, 1 << 30)),
    "indices of a dictionary": (
        pa.DictionaryArray.from_arrays(pa.array([1, 2, 0, 1] * 5, pa.int32()), pa.array(["a", "b", "c"])),
        struct.pack("<iiii", 1, 2, 0, 1),
        struct.pack("<i", 1 << 30),
    ),
    "text that is not UTF-8": (pa.array(["hello"] * ROWS), b"hello", b"\xff\xff"),
}  # fmt: skip


@pytest.mark.parametrize("what", LYING)
@pytest.mark.parametrize("type_", [pa.RecordBatch, pa.Table])
def test_an_arrow_stream_that_lies_is_refused(what: str, type_: Any) -> None:
    column, before, after = LYING[what]
    payload = _with(_stream(pa.record_batch({"c": column})), before, after)
    with rm.Publisher("t", type=type_) as pub, rm.Subscriber("t", type=type_) as sub:
        pub._send_as(payload, -1, 0)
        pub._send_as(payload, -1, 0)
        with pytest.raises(rm.DecodeError, match="damaged"):
            sub.recv(timeout=0)
        with pytest.raises(rm.DecodeError, match="damaged"), sub.borrow(timeout=0) as message:
            _ = message.data
    schema = codec_for(type_).schema
    rows, reasons = decode_column(pa.array([payload]), schema)
    assert rows.null_count == 1
    assert "damaged" in reasons[0].as_py()
    with pytest.raises(ValueError, match="damaged"):
        codec_from_schema(Schema.from_bytes(schema.to_bytes())).decode(payload)


def test_damaged_arrow_streams_never_end_the_reader() -> None:
    batch = pa.record_batch({
        "text": pa.array(["hello", "wörld", None] * 7),
        "list": pa.array([[1, 2], [], None] * 7),
        "choice": pa.array(["a", "b", "a"] * 7).dictionary_encode(),
        "struct": pa.array([{"x": 1, "y": "q"}] * 21),
        "map": pa.array([[("k", 1)]] * 21, pa.map_(pa.string(), pa.int32())),
        "view": pa.array(["text that is longer than a view"] * 21, pa.string_view()),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([10, 21], pa.int32()), pa.array(["a", "b"])),
    })  # fmt: skip
    raw, chance, decode = _stream(batch), random.Random(17), codec_for(pa.Table).decode
    body = bytes(raw).index(b"hello") - 64
    taken = 0
    for _ in range(2000):
        damaged = bytearray(raw)
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(body if chance.random() < 0.7 else 0, len(damaged) - 8)
            damaged[at : at + 4] = chance.choice((b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", chance.randbytes(4)))
        try:
            table = decode(bytes(damaged))
        except ValueError:
            continue
        taken += 1
        table.to_pylist()
    assert 0 < taken < 2000


def _array(shape: tuple[int, ...], dtype: bytes, data: bytes = b"") -> bytes:
    unpadded = 8 + 8 * len(shape) + len(dtype)
    offset = -(-unpadded // 8) * 8
    prefix = struct.pack("<BBHI", 1, len(shape), len(dtype), offset) + struct.pack(f"<{len(shape)}q", *shape) + dtype
    return prefix + bytes(offset - unpadded) + data


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((1 << 62, 4), b"<i8"),
        ((1 << 62, 1 << 62, 0), b"<i8"),
        ((1 << 40,), b"|S0"),
        ((1 << 40,), b"|V0"),
        ((-1, -8), b"|u1"),
        ((1,), b"|O"),
        ((0,), b"|O"),
        ((0,), b"T"),
        ((0,), b'[["a","|O"]]'),
        ((0,), b"[" * 60_000),
        ((0,), b'[["a",' * 5000 + b'"<i4"' + b"]]" * 5000),
        ((0,), b"(" * 60_000 + b"1" + b")" * 5000),
    ],
)
def test_an_array_with_a_made_up_prefix_is_refused(shape: tuple[int, ...], dtype: bytes) -> None:
    with pytest.raises(ValueError):  # the text depends on what is wrong
        codec_for(np.ndarray).decode(_array(shape, dtype))


@pytest.mark.parametrize("type_", [dict, list, msgspec.Raw | None, dict[str, Any]])
def test_a_message_that_is_too_deep_is_refused(type_: Any) -> None:
    deep = b"\x81\xa1a" * 200_000 + b"\xc0"
    decode = codec_for(type_).decode
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        decode(b"\x91" * 200_000 + b"\xc0" if type_ is list else deep)


def test_the_meta_of_a_frame_that_is_too_deep_is_no_descriptor() -> None:
    descriptor = struct.pack("<IHHIIQQQqqQ", 0x454D5246, 1, 1, 0, 0, 1, 1, 0, 0, 0, 4)
    assert read_descriptor(descriptor) is not None
    for meta in (b"\x81\xa1a" * 200_000 + b"\xc0", b"\x91\xc0", b"\xc1"):
        assert read_descriptor(descriptor + meta) is None
