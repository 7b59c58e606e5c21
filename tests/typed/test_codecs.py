"""Codecs and schemas: objects survive the trip, strangers can read them, and bad bytes get a reason.

Each codec is driven through `codec_for` (with the class) and `codec_from_schema` (with the schema's bytes
alone), and columns are checked against the schema that promised them.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import pickle
import random
import re
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmain.errors import CodecNotFound, DecodeError, RingmainError, SchemaError
from ringmain.typed import (
    Schema,
    SimpleCodec,
    _codecs,
    arrow_schema,
    codec_for,
    codec_from_schema,
    decode_column,
    differences,
    register_codec,
    spark_ddl,
)

UTC = datetime.UTC


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(msgspec.Struct):
    x: float
    y: float = 0.0


class Ping(msgspec.Struct, tag="ping"):
    n: int


class Pong(msgspec.Struct, tag="pong"):
    text: str


class Node(msgspec.Struct):
    value: int
    children: list[Node] = []


class Everything(msgspec.Struct, omit_defaults=True, rename="camel"):
    whole: int
    real: float
    text: str
    raw: bytes
    is_on: bool
    point: Point
    points: list[Point]
    maybe: Point | None
    counts: dict[str, int]
    by_id: dict[int, Point]
    colour: Colour
    at: datetime.datetime
    day: datetime.date
    took: datetime.timedelta
    clock: datetime.time
    ident: uuid.UUID
    price: Decimal
    event: Ping | Pong
    tree: Node
    pair: tuple[int, str]
    number: int | float
    anything: Any
    unique: set[int]
    with_default: int = 7
    many: list[int] = []


EVERYTHING = Everything(
    1, 2.5, "t", b"b", True, Point(1, 2), [Point(1), Point(2)], None, {"a": 1}, {3: Point(4)}, Colour.BLUE,
    datetime.datetime(2024, 1, 1, tzinfo=UTC), datetime.date(2024, 1, 2), datetime.timedelta(seconds=3),
    datetime.time(1, 2), uuid.UUID(int=5), Decimal("1.50"), Pong("hi"), Node(1, [Node(2)]), (1, "x"), 2,
    {"z": [1]}, {1},
)  # fmt: skip


@dataclasses.dataclass
class Reading:
    sensor: str
    values: list[float]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Everything, EVERYTHING),
        (Reading, Reading("a", [1.0])),
        (dict, {"a": [1, None]}),
        (list, [1, "x"]),
        (list[Point], [Point(1)]),
        (str, "gr\u00fc\u00df"),
        (bytes, b"\x00\x01"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_is_sent_is_what_is_received(type_: Any, value: Any) -> None:
    codec = codec_for(type_)
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(memoryview(codec.encode(value))) == value
    stranger = codec_from_schema(Schema.from_bytes(codec.schema.to_bytes()))
    received = msgspec.to_builtins(stranger.decode(codec.encode(value)))
    if type_ is Everything:  # its defaults are not sent, and filled in from the schema
        assert (received.pop("withDefault"), received.pop("many")) == (7, [])
    assert received == msgspec.to_builtins(value)


def test_structs_are_encoded_by_msgspecs_own_methods() -> None:
    """No Python frame in between: what `encode` and `decode` hold are bound methods of msgspec's C types."""
    for codec in (codec_for(Point), codec_from_schema(codec_for(Point).schema)):
        assert isinstance(codec.encode.__self__, msgspec.msgpack.Encoder)  # type: ignore[attr-defined]
        assert isinstance(codec.decode.__self__, msgspec.msgpack.Decoder)  # type: ignore[attr-defined]


def test_schema_bytes_are_canonical() -> None:
    schema = codec_for(Everything).schema
    again = Schema.from_bytes(schema.to_bytes())
    assert again == schema
    assert again.to_bytes() == schema.to_bytes()
    assert again.fingerprint == schema.fingerprint
    assert schema.fingerprint != codec_for(Point).schema.fingerprint
    assert [f.name for f in codec_for(Point).schema.fields] == ["x", "y"]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a ringmain schema"),
        (b"[" * 100_000, "not a ringmain schema"),
        (b'{"codec":"msgpack","type_name":"T","ringmain":99}', "has format 99"),
        (b'{"codec":"msgpack","type_name":"T","ringmain":1,"root":{"k":"ref","record":"Gone"}}', "'Gone'"),
    ],
)
def test_a_bad_schema_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        Schema.from_bytes(data)


def test_damaged_schemas_never_do_worse_than_schema_error() -> None:
    """Flip and cut the bytes of a real schema: it loads and materialises, or says SchemaError."""
    good = codec_for(Everything).schema.to_bytes()
    for seed in range(400):
        chance = random.Random(seed)
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(len(bad))] = chance.choice(b'{}[]",:0a')
        try:
            codec_from_schema(Schema.from_bytes(bytes(bad)))
        except RingmainError:
            continue


def test_types_that_cannot_travel_are_refused_by_name() -> None:
    class Holder(msgspec.Struct):
        inner: complex

    with pytest.raises(CodecNotFound, match="'inner'"):
        codec_for(Holder)


DTYPES = ["<f4", "<f8", ">i2", "|u1", "|b1", "<c8", "<M8[ns]", "<U3", [("a", "<i4"), ("b", "<f4", (2,))]]


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=4), st.booleans())
def test_arrays_of_any_dtype_and_shape(dtype: Any, shape: list[int], fortran: bool) -> None:
    count = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
    content = bytes(i % 251 for i in range(count))
    array = numpy.ndarray(shape, dtype, buffer=content) if count else numpy.zeros(shape, dtype)
    array = numpy.asfortranarray(array) if fortran else array
    codec = codec_for(numpy.ndarray)
    payload = bytes(codec.encode(array))
    back = codec.decode(bytearray(payload))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()
    assert not back.flags.writeable
    if count:
        assert (len(payload) - count) % 8 == 0


def test_an_array_is_a_view_of_its_buffer() -> None:
    codec = codec_for(numpy.ndarray)
    buffer = bytearray(codec.encode(numpy.zeros(3)))
    view = codec.decode(buffer)
    buffer[-8:] = numpy.float64(5.0).tobytes()
    assert view.tolist() == [0.0, 0.0, 5.0]
    assert codec.keeps_views


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_a_damaged_array_is_a_value_error(data: st.DataObject) -> None:
    codec = codec_for(numpy.ndarray)
    payload = bytearray(codec.encode(numpy.arange(6, dtype="<f4").reshape(2, 3)))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, 31))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    try:
        codec.decode(bytes(payload[:cut]))
    except ValueError:
        return


def test_arrays_that_hold_objects_or_have_another_dtype_are_refused() -> None:
    with pytest.raises(TypeError, match="cannot travel"):
        codec_for(numpy.ndarray).encode(numpy.array([object()]))
    fixed = codec_for(npt.NDArray[numpy.float32])
    with pytest.raises(TypeError, match="astype"):
        fixed.encode(numpy.zeros(2))
    other = codec_for(npt.NDArray[numpy.int32])
    assert differences(fixed.schema, other.schema) == ["dtype: written as <f4, read as <i4"]
    assert differences(fixed.schema, codec_for(numpy.ndarray).schema) == []


def test_tables_and_batches() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    for type_, value in ((pa.Table, table), (pa.RecordBatch, table.to_batches()[0]), (table.schema, table)):
        codec = codec_for(type_)
        stranger = codec_from_schema(Schema.from_bytes(codec.schema.to_bytes()))
        assert codec.decode(codec.encode(value)).equals(value)
        assert stranger.decode(bytes(codec.encode(value))).equals(value)
        with pytest.raises(ValueError, match="Arrow IPC"):
            codec.decode(b"not arrow")
    empty = table.slice(0, 0).combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
    assert codec_for(pa.RecordBatch).decode(codec_for(pa.RecordBatch).encode(empty[0])).num_rows == 0
    assert differences(codec_for(pa.RecordBatch).schema, codec_for(pa.Table).schema) == []
    assert differences(codec_for(pa.Table).schema, codec_for(pa.RecordBatch).schema) != []


def test_columns_are_those_promised_and_bad_rows_say_why() -> None:
    codec = codec_for(Everything)
    good = bytes(codec.encode(EVERYTHING))
    schema = Schema.from_bytes(codec.schema.to_bytes())
    columns, errors = decode_column(pa.array([good, b"\xc1", None, good]), schema)
    columns.validate(full=True)
    assert columns.type == pa.struct(list(arrow_schema(schema)))
    assert [reason is None for reason in errors.to_pylist()] == [True, False, False, True]
    assert errors[2].as_py() == "no payload"
    row, *_, last = columns.to_pylist()
    assert row == last
    assert (row["points"], row["maybe"], row["by_id"]) == (
        [{"x": 1.0, "y": 0.0}, {"x": 2.0, "y": 0.0}],
        None,
        [(3, {"x": 4.0, "y": 0.0})],
    )
    assert (row["event"], row["tree"]) == (
        '{"type":"pong","text":"hi"}',
        '{"value":1,"children":[{"value":2,"children":[]}]}',
    )
    assert (row["with_default"], row["many"], row["colour"], row["price"]) == (7, [], "blue", "1.50")


def test_an_integer_too_large_for_a_column_costs_its_row_only() -> None:
    class Count(msgspec.Struct):
        n: int

    codec = codec_for(Count)
    payloads = pa.chunked_array([[codec.encode(Count(1))], [codec.encode(Count(2**64 - 1)), codec.encode(Count(3))]])
    columns, errors = decode_column(payloads, codec.schema)
    assert columns.to_pylist() == [{"n": 1}, None, {"n": 3}]
    assert errors[1].as_py().startswith("no column takes it")


def test_the_columns_of_the_other_codecs() -> None:
    array = numpy.arange(4, dtype="f4").reshape(2, 2)
    fixed = codec_for(npt.NDArray[numpy.float32])
    columns, errors = decode_column(pa.array([fixed.encode(array), b"x"]), fixed.schema)
    assert columns.to_pylist() == [{"dtype": "<f4", "shape": [2, 2], "values": [0.0, 1.0, 2.0, 3.0]}, None]
    assert errors.null_count == 1
    table = pa.table({"a": [1, 2]})
    typed = codec_for(table.schema)
    columns, _ = decode_column(pa.array([bytes(typed.encode(table)), None]), typed.schema)
    assert columns.to_pylist() == [{"num_rows": 2, "rows": [{"a": 1}, {"a": 2}]}, None]
    columns, _ = decode_column(pa.array([b"raw", None]), codec_for(bytes).schema)
    assert columns.to_pylist() == [{"value": b"raw"}, None]
    columns, errors = decode_column(pa.array([b"ok", b"\xff"]), codec_for(str).schema)
    assert columns.to_pylist() == [{"value": "ok"}, None]
    columns, _ = decode_column(pa.array([], pa.binary()), codec_for(Everything).schema)
    assert len(columns) == 0


def test_spark_names_for_the_columns() -> None:
    assert spark_ddl(codec_for(Reading).schema) == "sensor STRING, values ARRAY<DOUBLE>"
    assert "by_id MAP<BIGINT, STRUCT<x: DOUBLE, y: DOUBLE>>" in spark_ddl(codec_for(Everything).schema)


class Version:
    """Something with its own bytes, as a protobuf message has."""

    def __init__(self, major: int, minor: int) -> None:
        self.major, self.minor = major, minor

    def SerializeToString(self) -> bytes:
        return bytes((self.major, self.minor))

    @classmethod
    def FromString(cls, data: bytes) -> Version:
        return cls(*data)


def test_a_codec_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_codecs, "_registered", [])
    monkeypatch.setattr(_codecs, "_from_schema", {})

    def make(type_: Any) -> SimpleCodec:
        schema = Schema("protobuf-like", type_.__name__)
        return SimpleCodec(schema, type_.SerializeToString, lambda b: type_.FromString(bytes(b)), (type_,))

    register_codec(lambda t: hasattr(t, "SerializeToString"), make)
    codec = codec_for(Version)
    assert codec.decode(codec.encode(Version(3, 1))).minor == 1
    with pytest.raises(CodecNotFound, match="protobuf-like"):
        codec_from_schema(codec.schema)
    register_codec(Version, make, name="protobuf-like", from_schema=lambda schema: make(Version))
    assert codec_from_schema(codec.schema).decode(b"\x03\x01").major == 3
    columns, _ = decode_column(pa.array([b"\x03\x01"]), codec.schema)
    assert columns.to_pylist() == [{"value": b"\x03\x01"}]
    with pytest.raises(ValueError, match="built-in"):
        register_codec(Version, make, name="msgpack", from_schema=lambda schema: make(Version))


def test_decode_error_says_which_message() -> None:
    error = pickle.loads(pickle.dumps(DecodeError("imu", 7, "truncated")))
    assert isinstance(error, ValueError)
    assert (error.topic, error.seq) == ("imu", 7)
    assert "message 7 of topic 'imu'" in str(error)


def test_importing_the_module_imports_neither_numpy_nor_pyarrow() -> None:
    check = (
        f"import sys; sys.path[:0] = {sys.path!r}; import ringmain.typed; ringmain.typed.codec_for(dict);"
        "sys.exit(any(m in sys.modules for m in ('numpy', 'pyarrow', 'pyspark')))"
    )
    assert subprocess.run([sys.executable, "-c", check], timeout=60).returncode == 0


def test_the_guide_runs() -> None:
    """Every Python block of the guide, in order, in one fresh process, with warnings as errors."""
    guide = Path(__file__).parents[2] / "docs" / "guide" / "typed.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", guide.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 9
    script = f"import sys; sys.path[:0] = {sys.path!r}\n" + "\n".join(blocks)
    command = [sys.executable, "-W", "error", "-c", script]
    done = subprocess.run(command, timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
