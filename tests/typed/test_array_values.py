"""numpy arrays inside of dicts and Structs: they survive the trip, are read in place, and become columns."""

from __future__ import annotations

import struct
import sys
import typing
from typing import Any

import msgspec
import numpy
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

import ringmain as rm
from ringmain.typed import Schema, codec_for, codec_from_schema, decode_column, differences, spark_ddl
from tests.conftest import PATIENCE_S


class Step(msgspec.Struct):
    image: npt.NDArray[numpy.uint8]
    reward: float
    action: numpy.ndarray[Any, Any]
    mask: npt.NDArray[numpy.bool_] | None = None


class Loose(msgspec.Struct):
    image: numpy.ndarray[Any, Any]
    action: Any = None


def a_step() -> Step:
    return Step(numpy.arange(12, dtype="u1").reshape(3, 4), 0.5, numpy.array([1.0, 2.0]))


def same(left: Any, right: Any) -> bool:
    return left.dtype == right.dtype and left.shape == right.shape and bool((left == right).all())


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["<f4", "<i8", "|b1", ">u2", "<M8[ns]"]), st.lists(st.integers(0, 4), max_size=3))
    )
)
def test_dicts_of_arrays_survive_at_any_depth_and_are_aligned(made: list[tuple[str, list[int]]]) -> None:
    arrays = [numpy.zeros(shape, dtype) for dtype, shape in made]
    value = {"arrays": arrays, "by name": {str(i): (a, i) for i, a in enumerate(arrays)}, "x" * len(made): b"\xd8N"}
    codec = codec_for(dict)
    payload = bytearray(codec.encode(value))
    received = codec.decode(payload)
    assert all(map(same, received["arrays"], arrays))
    assert all(same(received["by name"][str(i)][0], a) for i, a in enumerate(arrays))
    base = numpy.frombuffer(payload, "u1").ctypes.data
    for array in received["arrays"]:
        assert not array.flags.writeable
        assert array.nbytes == 0 or (array.ctypes.data - base) % 8 == 0


def test_scalars_of_numpy_travel_as_numbers() -> None:
    codec = codec_for(dict)
    sent = {"reward": numpy.float32(0.5), "done": numpy.bool_(True), "step": numpy.int64(7), "f": numpy.float64(1.5)}
    assert codec.decode(codec.encode(sent)) == {"reward": 0.5, "done": True, "step": 7, "f": 1.5}


def test_a_transposed_array_arrives_in_order() -> None:
    array = numpy.arange(6).reshape(2, 3).T
    codec = codec_for(dict)
    assert same(codec.decode(codec.encode({"a": array}))["a"], array)


def test_structs_with_arrays_also_without_the_class() -> None:
    step = a_step()
    codec = codec_for(Step)
    received = codec.decode(codec.encode(step))
    assert isinstance(received, Step)
    assert same(received.image, step.image)
    assert same(received.action, step.action)
    assert (received.reward, received.mask) == (0.5, None)
    stranger = codec_from_schema(Schema.from_bytes(codec.schema.to_bytes())).decode(codec.encode(step))
    assert same(stranger.image, step.image)
    assert "ndarray(dtype='|u1')" in str(differences(codec.schema, codec_for(dict[str, int]).schema))


def test_the_schema_says_which_arrays_a_reader_can_read() -> None:
    class Other(msgspec.Struct):
        image: npt.NDArray[numpy.float32]

    assert differences(codec_for(Step).schema, codec_for(Loose).schema) == []
    assert differences(codec_for(Step).schema, codec_for(dict).schema) == []
    assert differences(codec_for(Step).schema, codec_for(Other).schema) == [
        "field 'image': written as ndarray(dtype='|u1'), read as ndarray(dtype='<f4')"
    ]


def test_an_alias_is_what_it_stands_for() -> None:
    """`type Image = ...` of Python 3.12, here as typing_extensions has it; numpy 2.5's `NDArray` is one, too."""
    image = TypeAliasType("image", npt.NDArray[numpy.uint8])
    for type_ in (image, TypeAliasType("of_an_alias", image)):
        codec = codec_for(type_)
        assert codec.schema == codec_for(npt.NDArray[numpy.uint8]).schema
        assert codec.schema.params == {"dtype": "|u1"}
        with pytest.raises(TypeError, match="expected an array of uint8, got float32"):
            codec.encode(numpy.zeros(2, "f4"))
    assert codec_for(TypeAliasType("text", str)).schema.codec == "str"


if sys.version_info >= (3, 12):  # before, msgspec knows no aliases

    def test_a_field_may_be_an_alias() -> None:
        image = typing.TypeAliasType("image", npt.NDArray[numpy.uint8])  # type: ignore[attr-defined]
        maybe = typing.TypeAliasType("maybe", image | None)  # type: ignore[attr-defined]
        frame = msgspec.defstruct("Frame", [("image", image), ("mask", maybe, None)])
        array = npt.NDArray[numpy.uint8]
        plain = msgspec.defstruct("Frame", [("image", array), ("mask", array | None, None)])
        codec = codec_for(frame)
        assert codec.schema == codec_for(plain).schema
        for field in ("image", "mask"):
            wrong = frame(**{"image": numpy.zeros(2, "u1"), field: numpy.zeros(2, "f4")})
            with pytest.raises(msgspec.ValidationError, match=rf"expected an array of uint8, got float32.*\$.{field}"):
                codec.decode(codec.encode(wrong))


def test_what_is_no_array_of_that_dtype_does_not_decode() -> None:
    codec = codec_for(Step)
    wrong = Step(numpy.zeros(2, "f4"), 0.0, numpy.zeros(1))
    with pytest.raises(msgspec.ValidationError, match=r"expected an array of uint8, got float32.*\$.image"):
        codec.decode(codec.encode(wrong))
    for bad in (b"", b"\x01", struct.pack("<BBHI", 1, 200, 3, 8), bytes(40)):
        payload = msgspec.msgpack.encode({"image": msgspec.msgpack.Ext(78, bad), "reward": 0, "action": 1})
        with pytest.raises((ValueError, msgspec.DecodeError)):
            codec.decode(payload)
        with pytest.raises((ValueError, msgspec.DecodeError)):
            codec_for(dict).decode(payload)


def test_objects_and_other_types_are_refused_as_before() -> None:
    codec = codec_for(dict)
    with pytest.raises(TypeError, match="cannot travel between processes"):
        codec.encode({"a": numpy.array([object()])})
    with pytest.raises(TypeError, match="complex is unsupported"):
        codec.encode({"a": 1j})
    ext = {"a": msgspec.msgpack.Ext(5, b"mine")}
    assert codec.decode(codec.encode(ext)) == ext


def test_columns_of_arrays() -> None:
    codec = codec_for(Step)
    assert spark_ddl(codec.schema) == (
        "image STRUCT<dtype: STRING, shape: ARRAY<BIGINT>, data: BINARY>, reward DOUBLE, "
        "action STRUCT<dtype: STRING, shape: ARRAY<BIGINT>, data: BINARY>, "
        "mask STRUCT<dtype: STRING, shape: ARRAY<BIGINT>, values: ARRAY<BOOLEAN>>"
    )
    rows, errors = decode_column(pa.array([codec.encode(a_step()), b"\xc1"]), codec.schema)
    assert rows.field("action").to_pylist()[0]["shape"] == [2]
    assert rows.field("mask").to_pylist() == [None, None]
    assert errors.to_pylist()[0] is None
    assert errors.to_pylist()[1] is not None
    dicts = codec_for(dict)
    payload = dicts.encode({"a": numpy.eye(2)})
    columns, errors = decode_column(pa.array([payload]), dicts.schema)
    assert columns.field("value").to_pylist() == ['{"a":[[1.0,0.0],[0.0,1.0]]}']
    assert errors.to_pylist() == [None]


@pytest.mark.parametrize("backend", ["shm", "zmq"])
def test_arrays_on_a_topic(backend: Any) -> None:
    with (
        rm.Publisher("steps", type=dict, contract="pipe", backend=backend) as pub,
        rm.Subscriber("steps", type=dict, backend=backend) as sub,
    ):
        pub.wait_for_readers(1, timeout=PATIENCE_S)
        for _ in range(2):
            pub.send({"obs": numpy.arange(5.0), "done": False})
        assert sub.recv(timeout=PATIENCE_S)["obs"].tolist() == [0, 1, 2, 3, 4]
        with sub.borrow(timeout=PATIENCE_S) as message:
            obs = message.data["obs"]
            assert obs.flags.aligned
            assert obs.base is not None
            assert obs.tolist() == [0, 1, 2, 3, 4]
            del obs


def test_a_borrowed_array_is_not_a_copy() -> None:
    """The array lies in the ring: what the writer of the next lap writes there is seen by one that broke the rule."""
    with rm.Publisher("b", type=dict, capacity=4096) as pub, rm.Subscriber("b", type=dict) as sub:
        pub.send({"a": numpy.full(100, 1)})
        with pytest.raises(rm.Lapped), sub.borrow(timeout=0) as message:
            array = message.data["a"]
            for _ in range(20):
                pub.send({"a": numpy.full(100, 2)})
            assert array[50] == 2
            del array
