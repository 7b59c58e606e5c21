"""C structs as messages, in Python numpy's structured dtypes: the layout, records in place, columns.

Layouts are made at random and go there and back; hostile ones come from a topic's schema, which any process can write.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ringmain as rm
from ringmain.errors import CodecNotFound, SchemaError
from ringmain.typed import Schema, codec_for, codec_from_schema, decode_column, differences, spark_ddl
from ringmain.typed._struct_layout import layout_of, parse_layout
from ringmain.typed._structs import from_builtins, to_builtins
from tests.conftest import PATIENCE_S

POSE = numpy.dtype([("x", "<f4"), ("y", "<f4")], align=True)
IMU = numpy.dtype(
    [("t", "<f8"), ("gyro", "<f4", (3,)), ("id", "<u2"), ("pose", POSE), ("path", POSE, (2,)), ("name", "S5")],
    align=True,
)
A_RECORD = (1.5, (1, 2, 3), 7, (4, 5), [(6, 7), (8, 9)], b"left")


def an_imu() -> Any:
    return numpy.array(A_RECORD, IMU)[()]


# ------------------------------------------------------------------------------------------------ the layout

scalars = st.sampled_from(["<f8", ">f4", "<f2", "|i1", "<i2", "<u4", "<u8", "|b1", "|S3", "<U2", "<c8", "<M8[ms]"])


def structs(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    shapes = st.lists(st.integers(1, 3), max_size=2).map(tuple)
    fields = st.lists(st.tuples(inner, shapes), min_size=1, max_size=4)
    return st.builds(
        lambda made, align: numpy.dtype([(f"f{i}", t, s) for i, (t, s) in enumerate(made)], align=align),
        fields, st.booleans(),
    )  # fmt: skip


any_struct = structs(st.recursive(scalars, structs, max_leaves=6))


@settings(deadline=None)
@given(any_struct)
def test_a_layout_goes_there_and_back(dtype: Any) -> None:
    schema = codec_for(dtype).schema
    again = Schema.from_bytes(schema.to_bytes())
    assert again == schema
    assert parse_layout(layout_of(schema).text) == layout_of(schema)
    codec = codec_from_schema(again)
    record = codec.decode(bytes(dtype.itemsize))
    assert record.dtype == dtype
    assert codec.encode(record) == bytes(dtype.itemsize)
    columns, errors = decode_column(pa.array([bytes(dtype.itemsize)] * 2), again)
    assert len(columns) == 2
    assert errors.null_count == 2
    spark_ddl(again)


def test_the_text_of_a_layout_is_as_the_guide_says() -> None:
    """C++ writes the same text: it must not change by itself."""
    assert codec_for(IMU).schema.to_bytes() == (
        b'{"codec":"struct","params":{"layout":"{t:<f8@0,gyro:<f4[3]@8,id:<u2@20,pose:{x:<f4@0,y:<f4@4}8@24,'
        b'path:{x:<f4@0,y:<f4@4}8[2]@32,name:|S5@48}56"},"ringmain":1,"type_name":"struct"}'
    )


@pytest.mark.parametrize(
    ("other", "line"),
    [
        ([("a", "<f4"), ("b", "<f8")], "field 'b': written as <f4 at byte 4, read as <f8 at byte 4"),
        ([("a", "<f4"), ("c", "<f4")], "field 'c': read, and not written"),
        ([("a", "<f4")], "field 'b': written, and not read"),
        ([("b", "<f4"), ("a", "<f4")], "field 'b': written as <f4 at byte 4, read as <f4 at byte 0"),
        ([("a", ">f4"), ("b", "<f4")], "field 'a': written as <f4 at byte 0, read as >f4 at byte 0"),
        ([("a", "<f4"), ("b", "<f4", (2,))], "field 'b': written as <f4 at byte 4, read as <f4[2] at byte 4"),
        ({"names": ["a", "b"], "formats": ["<f4"] * 2, "itemsize": 16}, "struct: 8 bytes written, 16 read"),
    ],
)
def test_another_layout_is_refused_by_the_name_of_the_field(other: Any, line: str) -> None:
    written, read = codec_for(numpy.dtype([("a", "<f4"), ("b", "<f4")])).schema, codec_for(numpy.dtype(other)).schema
    assert line in differences(written, read)
    with (
        rm.Publisher("s", type=numpy.dtype([("a", "<f4"), ("b", "<f4")])),
        pytest.raises(rm.SchemaMismatch, match=line.split(":")[0]) as error,
    ):
        rm.Subscriber("s", type=numpy.dtype(other))
    assert line in error.value.differences


def test_differences_inside_of_a_nested_struct_have_a_path() -> None:
    inner = numpy.dtype([("x", "<f4"), ("y", "<i4")])
    written = codec_for(numpy.dtype([("pose", POSE), ("path", POSE, (2,))])).schema
    read = codec_for(numpy.dtype([("pose", inner), ("path", inner, (3,))])).schema
    found = differences(written, read)
    assert "field 'pose.y': written as <f4 at byte 4, read as <i4 at byte 4" in found
    assert "field 'path': [2] written, [3] read" in found


@pytest.mark.parametrize(
    "dtype",
    [
        numpy.dtype("f4"), numpy.dtype([("o", "O")]), numpy.dtype([("g", "g")]), numpy.dtype([("a:b", "f4")]),
        numpy.dtype([("a", "S0")]), numpy.dtype([]), numpy.dtype([("a", "f4", (0,))]), numpy.dtype([("a", [])]),
    ],
)  # fmt: skip
def test_what_no_struct_of_c_could_be_is_refused(dtype: Any) -> None:
    with pytest.raises(CodecNotFound):
        codec_for(dtype)


@pytest.mark.parametrize(
    "layout",
    [
        "", "{", "{}0", "{a}4", "{a:<f4}4", "{a:<f4@0}", "{a:<f4@0}4 ", "{a:<f4@4}4", "{a:|O8@0}8",
        "{a:<f4@0,a:<f4@0}4",
        "{a:<f4[0]@0}4", "{a:<f4[9999999,9999999,9999999]@0}4", "{a:<f4[]@0}4", "{a:<x4@0}4", "{a:<f3@0}4", "{:<f4@0}4",
        "{a:" * 200, "{a:" * 50 + "<f4" + "@0}4" * 50, "{a:<f4@0}99999999999999999999", "{a:<f4@99999999999999999}4",
        "{a:|V99999999999@0}99999999999",
    ],
)  # fmt: skip
def test_a_layout_that_lies_is_a_schema_error(layout: str) -> None:
    schema = Schema("struct", "Hostile", params={"layout": layout})
    with pytest.raises(SchemaError):
        codec_from_schema(schema)
    fine = codec_for(IMU).schema
    with contextlib.suppress(SchemaError):
        assert differences(schema, fine)


@settings(deadline=None)
@given(st.text(alphabet="{}[]:,@<>|fiuSVa0123456789", max_size=60))
def test_no_text_does_worse_than_a_schema_error(text: str) -> None:
    try:
        codec = codec_from_schema(Schema("struct", "Any", params={"layout": text}))
    except SchemaError:
        return
    with pytest.raises(ValueError, match="bytes"):
        codec.decode(b"")


# ------------------------------------------------------------------------------------------------ records


def test_records_and_tuples_are_sent_and_records_are_received() -> None:
    with rm.Publisher("imu", type=IMU, contract="pipe") as pub, rm.Subscriber("imu", type=IMU) as sub:
        record = numpy.zeros((), IMU)  # an array of no dimension is a record too
        record["t"] = 2
        for sent in (an_imu(), A_RECORD, record, numpy.array([A_RECORD], IMU)[0]):
            pub.send(sent)
        first = sub.recv(timeout=PATIENCE_S)
        assert isinstance(first, numpy.void)
        assert first == an_imu()
        assert first["pose"]["y"] == 5
        assert first["gyro"].tolist() == [1, 2, 3]
        with pytest.raises(ValueError, match="read-only"):
            first["t"] = 0
        assert sub.recv(timeout=PATIENCE_S) == first
        assert sub.recv(timeout=PATIENCE_S)["t"] == 2
        assert sub.recv(timeout=PATIENCE_S)["name"] == b"left"


def test_a_borrowed_record_is_in_the_ring() -> None:
    with rm.Publisher("b", type=IMU, capacity=4096) as pub, rm.Subscriber("b", type=IMU) as sub:
        pub.send(A_RECORD)
        with pytest.raises(rm.Lapped), sub.borrow(timeout=0) as message:
            record = message.data
            for _ in range(100):
                pub.send((9.0, *A_RECORD[1:]))
            overwritten = record["t"] != 1.5
            del record
    assert overwritten


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (numpy.zeros(2, IMU), "one record"),
        (numpy.zeros((), POSE), "field 't'"),
        (numpy.float64(1), "takes void or ndarray or tuple"),
        ((1, 2), "length 2"),
    ],
)
def test_what_is_no_record_is_refused(value: Any, sentence: str) -> None:
    with rm.Publisher("w", type=IMU) as pub, pytest.raises((TypeError, ValueError), match=sentence):
        pub.send(value)


def test_a_payload_of_another_size_does_not_decode() -> None:
    with rm.Publisher("p", type=IMU) as pub, rm.Subscriber("p", type=IMU) as sub:
        with pub.reserve(3) as buffer:
            buffer[:] = b"abc"
        with pytest.raises(rm.DecodeError, match="56 bytes, the payload has 3"):
            sub.recv(timeout=PATIENCE_S)


def test_a_dtype_keeps_the_name_that_the_topic_has() -> None:
    """A struct of C++ has a name. A Python publisher that joins has none, and does not take it away."""
    named = Schema("struct", "Imu", params=dict(codec_for(IMU).schema.params))
    with rm.Publisher("n", contract="bus", type=IMU) as first:
        first._set_schema(named.to_bytes())
        with rm.Publisher("n", contract="bus", type=IMU) as second:
            assert second.schema is not None
            assert second.schema.type_name == "Imu"


def test_the_fields_can_be_written_as_json_and_back() -> None:
    plain = to_builtins(an_imu())
    assert plain == {
        "t": 1.5, "gyro": [1, 2, 3], "id": 7, "pose": {"x": 4, "y": 5}, "path": [{"x": 6, "y": 7}, {"x": 8, "y": 9}],
        "name": "left",
    }  # fmt: skip
    assert numpy.array(from_builtins(json.loads(json.dumps(plain)), IMU), IMU)[()] == an_imu()
    for wrong, sentence in (
        ({**plain, "a": 1}, "has no field 'a'"),
        ({"t": 1}, "needs field 'gyro'"),
        ([1], "by field"),
    ):
        with pytest.raises(ValueError, match=sentence):
            from_builtins(wrong, IMU)


# ------------------------------------------------------------------------------------------------ columns


def test_columns_have_the_types_of_the_fields() -> None:
    codec = codec_for(IMU)
    assert spark_ddl(codec.schema) == (
        "t DOUBLE, gyro ARRAY<FLOAT>, id INT, pose STRUCT<x: FLOAT, y: FLOAT>, path ARRAY<STRUCT<x: FLOAT, y: FLOAT>>, "
        "name BINARY"
    )
    payload = bytes(codec.encode(an_imu()))
    rows, errors = decode_column(pa.array([payload, b"short", None, payload]), codec.schema)
    first, second, third, last = rows.to_pylist()
    assert first == last == {
        "t": 1.5, "gyro": [1, 2, 3], "id": 7, "pose": {"x": 4, "y": 5}, "path": [{"x": 6, "y": 7}, {"x": 8, "y": 9}],
        "name": b"left",
    }  # fmt: skip
    assert second is None
    assert third is None
    assert errors.to_pylist() == [None, "the struct has 56 bytes, the payload has 5", "no payload", None]


def test_columns_of_a_slice_and_of_large_binary() -> None:
    codec = codec_for(numpy.dtype([("n", "<i4")]))
    payloads = [bytes(codec.encode((n,))) for n in range(10)]
    for type_ in (pa.binary(), pa.large_binary()):
        rows, _ = decode_column(pa.array(payloads, type_)[3:7], codec.schema)
        assert rows.field("n").to_pylist() == [3, 4, 5, 6]
    rows, errors = decode_column(pa.array([], pa.binary()), codec.schema)
    assert (len(rows), len(errors)) == (0, 0)


def test_numbers_that_spark_lacks_are_widened_without_loss() -> None:
    dtype = numpy.dtype([
        ("a", "|u1"), ("b", ">u2"), ("c", "<u4"), ("d", "<u8"), ("e", "<f2"), ("f", "<c8"), ("g", "<U3"),
        ("h", "<M8[s]"), ("i", "<m8[ms]"), ("j", "|V2"), ("k", "|b1"), ("m", "<i2", (2, 2)),
    ])  # fmt: skip
    record = numpy.zeros((), dtype)
    for name in "abcd":
        record[name] = numpy.iinfo(dtype[name]).max
    record["e"], record["f"], record["g"], record["h"], record["i"] = 0.5, 1 + 2j, "né", 1, 2
    record["j"], record["k"], record["m"] = b"xy", True, [[1, 2], [3, 4]]
    codec = codec_for(dtype)
    (row,) = decode_column(pa.array([codec.encode(record)]), codec.schema)[0].to_pylist()
    assert row == {
        "a": 255, "b": 65535, "c": 2**32 - 1, "d": Decimal(2**64 - 1), "e": 0.5, "f": {"real": 1, "imag": 2}, "g": "né",
        "h": datetime.datetime(1970, 1, 1, 0, 0, 1), "i": datetime.timedelta(milliseconds=2), "j": b"xy", "k": True,
        "m": [[1, 2], [3, 4]],
    }  # fmt: skip
    assert "STRUCT<real: FLOAT, imag: FLOAT>" in spark_ddl(codec.schema)


def test_a_recording_of_structs_is_a_table(tmp_path: Path) -> None:
    with rm.Recorder(tmp_path / "r", "imu", messages=5), rm.Publisher("imu", type=IMU, min_readers=1) as pub:
        for n in range(5):
            pub.send((n, *A_RECORD[1:]), timeout=PATIENCE_S)
    found = rm.Recording(tmp_path / "r")
    assert [message.value["t"] for message in found.messages()] == [0, 1, 2, 3, 4]
    table = found.to_arrow("imu", decode=True)
    assert table.column("t").to_pylist() == [0, 1, 2, 3, 4]
    assert table.column("pose").to_pylist()[0] == {"x": 4, "y": 5}
    assert table.column("rm_decode_error").null_count == 5
