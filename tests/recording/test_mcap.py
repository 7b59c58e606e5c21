"""Export to MCAP, read back with the reference reader: every message, with its times, schema and metadata, in encodings
that Foxglove and PlotJuggler decode."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

pytest.importorskip("mcap", reason="the extra mcap is not installed")

from mcap.reader import make_reader

import ringmain as rm
from ringmain.recording import Recording, RecordingWriter
from ringmain.recording._mcap import export_mcap
from tests.recording.conftest import START_NS, payload_of, ring_batch


def test_round_trip(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.declare("typed", epoch=1, contract="bus", schema=b"the schema")
        writer.append("typed", 1, ring_batch(0, 6), record_time_ns=START_NS + 1_000_000)
        writer.append("bytes", 1, ring_batch(6, 6), record_time_ns=START_NS + 2_000_000)
    assert export_mcap(Recording(tmp_path / "r"), tmp_path / "out.mcap") == 12
    with open(tmp_path / "out.mcap", "rb") as file:
        found = sorted(make_reader(file).iter_messages(), key=lambda entry: entry[2].sequence)
    assert [m.data for _, _, m in found] == [payload_of(n) for n in range(12)]
    assert [m.publish_time for _, _, m in found] == [START_NS + n * 1001 for n in range(12)]
    assert [m.log_time for _, _, m in found][:6] == [(START_NS + 1_000_000) // 1000 * 1000] * 6
    schema, channel, _ = found[0]
    assert (schema.name, schema.data, channel.topic) == ("typed", b"the schema", "typed")
    assert channel.metadata == {"epoch": "1", "sender": "sender0", "kind": "even", "contract": "bus"}
    assert found[-1][0] is None
    assert found[-1][1].topic == "bytes"
    assert not list(tmp_path.glob("*.tmp"))


def test_filters_apply(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.append("a", 1, ring_batch(0, 10))
        writer.append("b", 1, ring_batch(10, 10))
    assert export_mcap(Recording(tmp_path / "r"), tmp_path / "out.mcap", topics="b", end_seq=15) == 5


class Vector(msgspec.Struct):
    x: float
    y: float


class Imu(msgspec.Struct):
    time: float
    acceleration: Vector
    label: str = ""


def read(path: Path) -> dict[str, list[tuple[object, object, bytes]]]:
    """(schema, channel, data) of each message, by topic."""
    found: dict[str, list[tuple[object, object, bytes]]] = {}
    with open(path, "rb") as file:
        for schema, channel, message in make_reader(file).iter_messages():
            found.setdefault(channel.topic, []).append((schema, channel, message.data))
    return found


def test_records_and_images_in_encodings_that_viewers_decode(
    tmp_path: Path, until: Callable[[Callable[[], object]], None]
) -> None:
    picture = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    with (
        rm.Publisher("imu", type=Imu) as imu,
        rm.Publisher("list", type=list[int]) as numbers,
        rm.FramePublisher("cam", layout=rm.FrameLayout.of_image("rgb", 4, 2)) as cam,
        rm.FramePublisher("cloud", (3, 2), "<f4") as cloud,
        rm.Recorder(tmp_path / "r", "*") as recorder,
    ):
        imu.send(Imu(1.5, Vector(2.0, 3.0), "a"))
        numbers.send([1, 2])
        with cam.frame() as frame:
            frame.array[:], frame.start_ns = picture, 3_000_000_007
        cloud.send(np.ones((3, 2), "<f4"))
        until(lambda: recorder.status().messages == 4)
    recording = Recording(tmp_path / "r")
    assert export_mcap(recording, tmp_path / "out.mcap") == 4
    found = read(tmp_path / "out.mcap")

    ((schema, channel, data),) = found["imu"]
    assert (channel.message_encoding, schema.encoding, schema.name) == ("json", "jsonschema", "Imu")
    assert json.loads(data) == {"time": 1.5, "acceleration": {"x": 2.0, "y": 3.0}, "label": "a"}
    described = json.loads(schema.data)
    assert described["type"] == "object"
    assert set(described["properties"]) == {"time", "acceleration", "label"}

    ((schema, channel, data),) = found["cam"]
    assert (channel.message_encoding, schema.encoding, schema.name) == ("json", "jsonschema", "foxglove.RawImage")
    image = json.loads(data)
    assert base64.b64decode(image.pop("data")) == picture.tobytes()
    assert image == {
        "timestamp": {"sec": 3, "nsec": 7}, "frame_id": "cam", "width": 4, "height": 2, "encoding": "rgb8", "step": 12,
    }  # fmt: skip

    ((schema, channel, data),) = found["list"]
    assert (schema.encoding, channel.message_encoding) == ("ringmain", "ringmain"), "not a record"
    assert data == msgspec.msgpack.encode([1, 2])
    ((schema, channel, data),) = found["cloud"]
    assert (schema, data[:24]) == (None, np.ones((3, 2), "<f4").tobytes())

    export_mcap(recording, tmp_path / "raw.mcap", raw=True)
    payloads = {topic: [data for *_, data in entries] for topic, entries in read(tmp_path / "raw.mcap").items()}
    assert payloads == {m.topic: [m.data] for m in recording}


def test_a_message_that_does_not_decode_keeps_its_bytes(
    tmp_path: Path, until: Callable[[Callable[[], object]], None]
) -> None:
    with rm.Publisher("imu", type=Imu) as pub:
        pub.send(Imu(1.0, Vector(0, 0)))
        schema = pub._schema()
    with RecordingWriter(tmp_path / "r") as writer:
        writer.declare("imu", epoch=1, schema=schema)
        writer.append("imu", 1, ring_batch(0, 2))
    assert export_mcap(Recording(tmp_path / "r"), tmp_path / "out.mcap") == 2
    entries = read(tmp_path / "out.mcap")["imu"]
    assert [data for *_, data in entries] == [payload_of(0), payload_of(1)]
    assert {channel.message_encoding for _, channel, _ in entries} == {"ringmain"}


def test_structs_are_json(tmp_path: Path) -> None:
    struct = np.dtype([("t", "f8"), ("gyro", "f4", (2,)), ("pose", [("x", "i4")])])
    with rm.Recorder(tmp_path / "r", "imu", messages=1), rm.Publisher("imu", type=struct, min_readers=1) as pub:
        pub.send((1.5, (1, 2), (3,)), timeout=30)
    export_mcap(Recording(tmp_path / "r"), tmp_path / "out.mcap")
    with open(tmp_path / "out.mcap", "rb") as file:
        ((schema, channel, message),) = make_reader(file).iter_messages()
    assert channel.message_encoding == "json"
    assert json.loads(schema.data)["properties"]["pose"]["properties"] == {"x": {"type": "integer"}}
    assert json.loads(message.data) == {"t": 1.5, "gyro": [1, 2], "pose": {"x": 3}}
