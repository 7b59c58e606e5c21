"""The report's part about the data: a recording with known values goes through the pipeline (in one small batch, which
needs no Spark), and the page shows these values."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from ringmain import typed
from ringmain.frames import FrameLayout
from ringmain.lake import Lake
from ringmain.lake._report_data import FIELDS_OF_A_TOPIC, Span, data_of, png
from ringmain.pipeline import run
from ringmain.recording import RecordingWriter
from ringmain.recording._format import FRAMES, RING_SCHEMA
from ringmain.recording._frames import END, MARK, Trailer
from ringmain.recording._record.live_readers import READERS, ReaderFigures
from tests.pipeline.test_report import browser, open_page  # noqa: F401 -- a fixture

START_S = 1_767_323_000
SECONDS = 60


class Pose(msgspec.Struct):
    x: float
    y: float


class Arm(msgspec.Struct):
    temperature: float
    pose: Pose
    force: tuple[float, float]
    offsets: list[float]
    gripped: bool
    joint: str
    torques: list[float]


Wide = msgspec.defstruct("Wide", [(name, int) for name in "abcdefghij"], module=__name__)


def batch(payloads: list[bytes], every_s: float = 1.0) -> pa.RecordBatch:
    rows = len(payloads)
    columns = [
        pa.array(range(rows), pa.uint64()),
        pa.array([int((START_S + n * every_s) * 1e9) for n in range(rows)], pa.int64()),
        pa.repeat(pa.scalar(""), rows), pa.repeat(pa.scalar(""), rows), pa.repeat(pa.scalar(0, pa.uint64()), rows),
        pa.array([b""] * rows, pa.binary()), pa.array(payloads, pa.binary()),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=RING_SCHEMA)


def picture(brightness: int) -> bytes:
    layout = FrameLayout.of_image("rgb", 64, 48)
    pixels = np.full((48, 64, 3), brightness, "u1")
    pixels[:24, :, 0] = 255
    trailer = msgspec.msgpack.encode(Trailer(layout, 0, 0, 0, True, {}))
    return pixels.tobytes() + trailer + END.pack(len(trailer), MARK)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with RecordingWriter(folder / "drive", fsync="never", recorder="host-a") as writer:

        def add(topic: str, type_: Any, values: list[Any]) -> None:
            codec = typed.codec_for(type_)
            writer.declare(topic, epoch=1, contract="broadcast", schema=codec.schema.to_bytes())
            writer.append(topic, 1, batch([bytes(codec.encode(value)) for value in values]))

        arms = [
            Arm(20.0 + n, Pose(-n, 0.5), (1.0, 2.0), [0.0, float(n % 2)], n >= 30, "elbow", [0.1] * 50)
            for n in range(SECONDS)
        ]
        add("arm", Arm, arms)
        add("wide", Wide, [Wide(*range(10))] * SECONDS)
        add(
            READERS,
            ReaderFigures,
            [
                ReaderFigures("arm", "dashboard", "reader", 7, 1, 10, 3, 0),
                ReaderFigures("arm", "dashboard", "reader", 7, 1, 20, 40, 0),
                ReaderFigures("arm", "dashboard", "reader", 8, 2, 5, 2, 0),  # it was started again
                ReaderFigures("arm", "quick", "reader", 9, 1, 60, 0, 0),
            ],
        )
        writer.declare("camera/front", epoch=1, contract=FRAMES)
        writer.append("camera/front", 1, batch([picture(n) for n in range(30)], every_s=2.0))
        writer.declare("blob", epoch=1)
        writer.append("blob", 1, batch([b"no picture"] * 3))
    run(folder / "drive", folder / "lake", window_s=1.0, progress=lambda line: None, engine="local")
    return folder / "lake"


@pytest.fixture(scope="module")
def data(lake: Path) -> dict[str, Any]:
    return data_of(Lake(str(lake)), Span.of(START_S * 1000, 1000.0, SECONDS))


def field_of(data: dict[str, Any], topic: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in data["fields"] if (one["topic"], one["field"]) == (topic, name)]
    return dict(found)


def test_numeric_fields_over_time(data: dict[str, Any]) -> None:
    names = [one["field"] for one in data["fields"] if one["topic"] == "arm"]
    assert names == ["temperature", "pose.x", "pose.y", "force._1", "force._2", "offsets[0]", "offsets[1]", "gripped"]
    assert field_of(data, "arm", "temperature")["mean"] == [20.0 + n for n in range(SECONDS)]
    assert field_of(data, "arm", "pose.x")["mean"] == [float(-n) for n in range(SECONDS)]
    assert field_of(data, "arm", "gripped")["mean"] == [0.0] * 30 + [1.0] * 30
    assert field_of(data, "arm", "offsets[1]")["mean"] == [0.0, 1.0] * 30
    assert not any(one["topic"] == READERS for one in data["fields"])


def test_bins_have_the_least_and_the_most(lake: Path) -> None:
    span = Span.of(START_S * 1000, 20_000.0, 3)
    temperature = field_of(data_of(Lake(str(lake)), span), "arm", "temperature")
    assert temperature["low"] == [20.0, 40.0, 60.0]
    assert temperature["high"] == [39.0, 59.0, 79.0]
    assert temperature["mean"] == [29.5, 49.5, 69.5]


def test_a_long_time_has_no_more_bins() -> None:
    span = Span.of(0, 60_000.0, 240)
    assert span == Span(0, 120_000_000, 120)


def test_fields_that_are_left_out_are_counted(data: dict[str, Any]) -> None:
    assert len([one for one in data["fields"] if one["topic"] == "wide"]) == FIELDS_OF_A_TOPIC
    assert data["fields_left_out"] == 10 - FIELDS_OF_A_TOPIC


def test_the_last_picture_of_a_camera(data: dict[str, Any]) -> None:
    (found,) = data["pictures"]
    assert (found["topic"], found["at_ms"]) == ("camera/front", (START_S + 58) * 1000)
    assert found["src"].startswith("data:image/png;base64,")


def test_png() -> None:
    pixels = np.arange(4 * 3 * 3, dtype="u1").reshape(4, 3, 3)
    content = png(pixels)
    assert struct.unpack(">II", content[16:24]) == (3, 4)
    at = content.index(b"IDAT")
    (size,) = struct.unpack(">I", content[at - 4 : at])
    lines = np.frombuffer(zlib.decompress(content[at + 4 : at + 4 + size]), "u1").reshape(4, 10)
    assert (lines[:, 1:].reshape(4, 3, 3) == pixels).all()


def test_what_live_readers_lost(data: dict[str, Any]) -> None:
    assert data["live"] == [
        {"reader": "dashboard", "topic": "arm", "recorder": "host-a", "messages": 25, "lost": 42},
        {"reader": "quick", "topic": "arm", "recorder": "host-a", "messages": 60, "lost": 0},
    ]
