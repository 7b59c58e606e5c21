"""Messages that native code turns into columns: the same columns, and the same reasons, as through Python's objects.

How: messages that fit a schema of all native types, that nearly fit it, and that are damaged are made from a seed. Both
ways decode them, and the results are compared.
"""

from __future__ import annotations

import datetime
import enum
import random
import struct
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pytest

from ringmain._recording import decode_messages
from ringmain.typed import Schema, arrow_schema, codec_for, decode_column
from ringmain.typed._packed_columns import decode_packed
from ringmain.typed._rows import _decode_objects


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Inner(msgspec.Struct):
    x: float
    tags: list[str] = []
    maybe: int | None = None


class Pair(NamedTuple):
    left: int
    right: str


class Sample(msgspec.Struct):
    flag: bool
    count: int
    value: float
    name: str
    raw: bytes
    numbers: list[float]
    point: tuple[float, int]
    inner: Inner
    pair: Pair
    level: Level
    word: Literal["a", "b", None]
    either: int | float | None
    nested: list[Inner | None]
    absent: str | None = None
    defaulted: int = 7
    renamed: int | None = msgspec.field(default=None, name="Other")


SCHEMA = Schema.from_bytes(codec_for(Sample).schema.to_bytes())
GOOD = Sample(
    True, -5, 1.5, "grüße", b"\xff", [1.0, 2.0], (0.5, 3), Inner(1.0, ["a"], 4), Pair(1, "r"), Level.HIGH, None, 3,
    [Inner(2.0), None], "there", 8, 9,
)  # fmt: skip
PLAIN = msgspec.msgpack.decode(msgspec.msgpack.encode(GOOD))
SCALARS: tuple[Callable[[random.Random], Any], ...] = (
    lambda r: None,
    lambda r: r.random() < 0.5,
    lambda r: r.randint(-200, 200),
    lambda r: r.choice([-(2**63), 2**63 - 1, 2**63, 2**64 - 1, 2**31, -(2**15) - 1, 70_000]),
    lambda r: r.choice([0.1, -1.0, 1e300, float("nan"), float("inf"), 3.0]),
    lambda r: r.choice(["", "a", "ascii text", "grüße", "\U0001f600", "x" * 40]),
    lambda r: r.randbytes(r.randint(0, 40)),
)


def anything(r: random.Random, depth: int = 0) -> Any:
    kind = r.randrange(9 if depth < 3 else 7)
    if kind == 7:
        return [anything(r, depth + 1) for _ in range(r.randint(0, 3))]
    if kind == 8:
        return {r.choice(["x", "tags", "k", 5]): anything(r, depth + 1) for _ in range(r.randint(0, 3))}
    return SCALARS[kind](r)


def nearly_good(r: random.Random) -> bytes:
    """A good message with some fields replaced, left out, added or in another order, and some bytes damaged."""
    message = dict(PLAIN)
    for _ in range(r.choice([0, 1, 1, 2])):
        name = r.choice([*PLAIN, "new"])
        message[name] = anything(r)
        if r.random() < 0.3:
            del message[name]
    names = r.sample(list(message), len(message)) if r.random() < 0.3 else list(message)
    packed = bytearray(msgspec.msgpack.encode({name: message[name] for name in names}))
    if r.random() < 0.3:
        packed[r.randrange(len(packed))] = r.randrange(256)
    if r.random() < 0.1:
        return bytes(packed[: r.randrange(len(packed))])
    return bytes(packed) + r.choice([b""] * 9 + [b"\x00"])


def test_both_ways_give_the_same_columns_and_reasons(seed: int) -> None:
    r = random.Random(seed)
    messages = [nearly_good(r) for _ in range(1000)]
    column = pa.array([b"skipped", *messages], pa.binary()).slice(1)
    made = decode_packed(column, SCHEMA, arrow_schema(SCHEMA))
    assert made is not None
    assert 100 < len(made.refused) < 900  # both kinds are there
    values, reasons = decode_column(column, SCHEMA)
    values.validate(full=True)
    wanted, whys = _decode_objects(column, SCHEMA, arrow_schema(SCHEMA))
    for message, *pair in zip(messages, values.to_pylist(), wanted.to_pylist(), reasons, whys, strict=True):
        assert repr(pair[0]) == repr(pair[1]), message.hex()  # NaN has one text
        assert pair[2] == pair[3], message.hex()


def test_what_fits_the_schema_is_not_refused() -> None:
    made = decode_packed(pa.array([msgspec.msgpack.encode(GOOD)], pa.binary()), SCHEMA, arrow_schema(SCHEMA))
    assert made is not None
    assert made.refused == []
    assert made.arrays[0].to_pylist() == [True]


@pytest.mark.parametrize(
    ("type_", "message", "is_native"),
    [
        (list[int], [1, 2], True),
        (int | None, None, True),
        (dict[str, int], {"a": 1}, False),
        (datetime.datetime, datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), False),
        (Any, {"a": 1}, False),
    ],
)
def test_messages_that_are_no_records(type_: Any, message: Any, is_native: bool) -> None:
    codec = codec_for(type_)
    column = pa.array([bytes(codec.encode(message)), b"\xc1"], pa.binary())
    assert (decode_packed(column, codec.schema, arrow_schema(codec.schema)) is not None) == is_native
    values, reasons = decode_column(column, codec.schema)
    assert values.equals(_decode_objects(column, codec.schema, arrow_schema(codec.schema))[0])
    assert [reason is None for reason in reasons.to_pylist()] == [True, False]


def test_offsets_and_plans_that_lie_are_refused() -> None:
    plan = msgspec.msgpack.encode(["i", False, False, "", []])
    assert decode_messages(plan, struct.pack("<ii", 0, 1), b"\x05", 0, 1)[1] == []
    for offsets in ((0, 2), (-1, 1), (1, 0), (0,)):
        with pytest.raises(ValueError, match="offsets"):
            decode_messages(plan, struct.pack(f"<{len(offsets)}i", *offsets), b"\x05", 0, 1)
    for wrong in (b"", plan[:-1], msgspec.msgpack.encode(["x", False, False, "", []]), plan[:-1] + b"\x91"):
        with pytest.raises(ValueError, match="plan"):
            decode_messages(wrong, struct.pack("<ii", 0, 1), b"\x05", 0, 1)
    deep: Any = ["i", False, False, "", []]
    for _ in range(50):
        deep = ["l", False, False, "", [deep]]
    with pytest.raises(ValueError, match="plan"):
        decode_messages(msgspec.msgpack.encode(deep), struct.pack("<ii", 0, 1), b"\x05", 0, 1)
