"""What a topic's messages are shown as, by their type alone: numbers as series, by the tree of fields; pictures, arrays
and texts as themselves; places by their usual names; and nothing is dropped without an event that says so."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

from ringmain.typed import Schema, codec_for
from ringmain.view._interpret import MOST_SERIES, Interpreter, Rows
from ringmain.view._shown import Encoded, Event, GeoPoints, Image, Pixels, Points, Poses, Series, Shown, Tensor, Texts


class Vector(msgspec.Struct):
    x: float
    y: float
    z: float


class Turn(msgspec.Struct):
    x: float
    y: float
    z: float
    w: float


class Pose(msgspec.Struct):
    position: Vector
    orientation: Turn


class State(msgspec.Struct):
    pose: Pose
    ranges: list[float]
    speed: tuple[float, int]
    mode: str
    battery: float | None = None


@dataclass
class Fix:
    latitude: float
    longitude: float
    satellites: int


class Detection(msgspec.Struct):
    picture: bytes
    mask: NDArray[numpy.uint8]


def rows(payloads: list[bytes], lost: list[int] | None = None) -> Rows:
    times = numpy.arange(len(payloads), dtype="i8") * 1000
    return Rows(times, numpy.array(lost or [0] * len(payloads)), pa.array(payloads, pa.binary()))


def shown(type_: Any, *values: Any) -> dict[tuple[type, tuple[str, ...]], Any]:
    codec = codec_for(type_)
    schema = Schema.from_bytes(codec.schema.to_bytes())
    return by_path(Interpreter(schema).shown(rows([bytes(codec.encode(value)) for value in values])))


def by_path(things: Any) -> dict[tuple[type, tuple[str, ...]], Any]:
    found: dict[tuple[type, tuple[str, ...]], Shown] = {}
    for thing in things:
        key = (type(thing), getattr(thing, "path", ()))
        assert key not in found, f"shown twice: {key}"
        found[key] = thing
    return found


def state(at: int, mode: str = "drive", battery: float | None = None) -> State:
    pose = Pose(Vector(at, 2.0, 3.0), Turn(0.0, 0.0, 0.6, 0.8))
    return State(pose, [1.0, 2.0] if at else [5.0], (0.5, at), mode, battery)


def test_numbers_are_series_by_the_tree_of_their_fields() -> None:
    found = shown(State, state(0), state(1, battery=0.5), state(2, "park"))
    series = {
        path: (each.times_ns.tolist(), each.values.tolist()) for (kind, path), each in found.items() if kind is Series
    }
    assert series == {
        ("pose", "position", "x"): ([0, 1000, 2000], [0.0, 1.0, 2.0]),
        ("pose", "position", "y"): ([0, 1000, 2000], [2.0] * 3),
        ("pose", "position", "z"): ([0, 1000, 2000], [3.0] * 3),
        ("pose", "orientation", "x"): ([0, 1000, 2000], [0.0] * 3),
        ("pose", "orientation", "y"): ([0, 1000, 2000], [0.0] * 3),
        ("pose", "orientation", "z"): ([0, 1000, 2000], [0.6] * 3),
        ("pose", "orientation", "w"): ([0, 1000, 2000], [0.8] * 3),
        ("ranges", "0"): ([0, 1000, 2000], [5.0, 1.0, 1.0]),
        ("ranges", "1"): ([1000, 2000], [2.0, 2.0]),
        ("speed", "0"): ([0, 1000, 2000], [0.5] * 3),
        ("speed", "1"): ([0, 1000, 2000], [0.0, 1.0, 2.0]),
        ("battery",): ([1000], [0.5]),
    }


def test_the_same_without_a_type() -> None:
    """A dict is read message by message, and a record by column: what is seen is the same."""
    states = [state(0), state(1, battery=0.5), state(2, "park")]
    one = shown(State, *states)
    other = shown(dict, *[msgspec.to_builtins(each) for each in states])
    assert one.keys() == other.keys()
    for key, thing in one.items():
        for name in ("values", "times_ns", "positions", "rotations"):
            if hasattr(thing, name):
                assert numpy.array_equal(getattr(thing, name), getattr(other[key], name)), (key, name)


def test_usual_names_are_positions() -> None:
    found = shown(State, state(0), state(1))
    poses = found[Poses, ("pose",)]
    assert poses.positions.tolist() == [[0.0, 2.0, 3.0], [1.0, 2.0, 3.0]]
    assert poses.rotations.tolist() == [[0.0, 0.0, 0.6, 0.8]] * 2
    assert found[Points, ("pose", "position")].positions.tolist() == poses.positions.tolist()
    assert (Points, ("pose", "orientation")) not in found
    there = shown(Fix, Fix(47.4, 8.5, 9))[GeoPoints, ()]
    assert there.positions.tolist() == [[47.4, 8.5]]
    assert shown(dict, {"x": 1.0, "y": 2.0})[Points, ()].positions.tolist() == [[1.0, 2.0]]
    assert (Points, ()) not in shown(dict, {"x": 1.0, "y": "north"})


def test_text_in_a_record_is_said_when_it_changes() -> None:
    found = shown(State, state(0), state(1), state(2, "park"), state(3, "park"))
    assert found[Texts, ("mode",)].texts == ["drive", "park"]
    assert found[Texts, ("mode",)].times_ns.tolist() == [0, 2000]
    assert shown(str, "a", "a")[Texts, ()].texts == ["a", "a"]


def jpeg() -> bytes:
    out = io.BytesIO()
    Pillow.new("RGB", (16, 16), (255, 0, 0)).save(out, "jpeg")
    return out.getvalue()


def test_pictures_and_arrays() -> None:
    grey = numpy.arange(400, dtype="u1").reshape(20, 20)
    found = shown(Detection, Detection(jpeg(), grey))
    picture, mask = found[Image, ("picture",)].picture, found[Image, ("mask",)].picture
    assert isinstance(picture, Encoded)
    assert (picture.data, picture.media_type) == (jpeg(), "image/jpeg")
    assert isinstance(mask, Pixels)
    assert (mask.format, mask.width, mask.height, mask.array.tolist()) == ("gray", 20, 20, grey.tolist())
    colour = shown(numpy.ndarray, numpy.zeros((9, 12, 3), "u1"))[Image, ()].picture
    assert (colour.format, colour.width, colour.height) == ("rgb", 12, 9)
    assert shown(numpy.ndarray, numpy.zeros((20, 20), "f4"))[Tensor, ()].array.shape == (20, 20)
    assert shown(numpy.ndarray, numpy.arange(3.0))[Series, ("2",)].values.tolist() == [2.0]
    assert shown(numpy.ndarray, numpy.zeros(MOST_SERIES + 1))[Tensor, ()].array.shape == (MOST_SERIES + 1,)
    assert shown(list[float], [0.0] * (MOST_SERIES + 1))[Tensor, ()].array.shape == (MOST_SERIES + 1,)


def test_a_structured_dtype() -> None:
    dtype = numpy.dtype([("lat", "f8"), ("lon", "f8"), ("gear", "i1")])
    found = shown(dtype, (47.0, 8.0, 3))
    assert found[GeoPoints, ()].positions.tolist() == [[47.0, 8.0]]
    assert found[Series, ("gear",)].values.tolist() == [3.0]


def test_bytes_are_pictures_texts_or_a_size() -> None:
    found = by_path(Interpreter(None).shown(rows([jpeg(), b"hello", b"\x00\x01\x02"])))
    assert found[Image, ()].picture.media_type == "image/jpeg"
    assert (found[Texts, ()].texts, found[Texts, ()].times_ns.tolist()) == (["hello"], [1000])
    assert found[Series, ("size_bytes",)].values.tolist() == [len(jpeg()), 5, 3]


@pytest.mark.parametrize("type_", [Vector, dict], ids=["by column", "by message"])
def test_what_does_not_decode_is_an_event(type_: Any) -> None:
    codec = codec_for(type_)
    good = bytes(codec.encode(Vector(1.0, 2.0, 3.0) if type_ is Vector else {"x": 1.0}))
    found = by_path(Interpreter(codec.schema).shown(rows([b"\xc1", good])))
    event = found[Event, ()]
    assert (event.level, event.time_ns) == ("ERROR", 0)
    assert "does not decode as" in event.text
    assert found[Series, ("x",)].times_ns.tolist() == [1000]


def test_a_loss_is_an_event_where_it_was() -> None:
    events = [e for e in Interpreter(None).shown(rows([b"a", b"b"], lost=[0, 1234])) if isinstance(e, Event)]
    assert [(e.time_ns, e.level, e.text) for e in events] == [(1000, "WARN", "this view lost 1,234 messages")]
