"""Bags into recordings: MCAP files and ROS bags made by their own libraries, every message a row with its times, typed
where the schema can be said, as bytes and reported where it cannot."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mcap", reason="the extra import is not installed")
pytest.importorskip("rosbags", reason="the extra import is not installed")

from google.protobuf import descriptor_pb2, timestamp_pb2
from mcap.writer import CompressionType, Writer
from rosbags.rosbag1 import Writer as Writer1
from rosbags.rosbag2 import StoragePlugin
from rosbags.rosbag2 import Writer as Writer2
from rosbags.typesys import Stores, get_typestore

import ringmain as rm
from ringmain.errors import RecordingError, RecordingNotFound
from ringmain.recording import ImportStatus, Recording, RecordingWriter, import_bag
from ringmain.recording._import import importer, sources
from ringmain.recording._import.json_schema import describe
from ringmain.recording._mcap import export_mcap
from ringmain.typed import Schema, _model
from tests.recording.conftest import START_NS, ring_batch

LOGGED_NS = START_NS + 5_000_000


def write_mcap(path: Path, fill: Callable[[Any], None], **options: Any) -> Path:
    with open(path, "wb") as file:
        writer = Writer(file, **options)
        writer.start(profile="", library="test")
        fill(writer)
        writer.finish()
    return path


def channel(writer: Any, topic: str, encoding: str, schema: bytes = b"", name: str = "", kind: str = "") -> int:
    schema_id = writer.register_schema(name=name, encoding=kind, data=schema) if kind else 0
    registered: int = writer.register_channel(topic=topic, message_encoding=encoding, schema_id=schema_id)
    return registered


def add(writer: Any, channel: int, number: int, data: bytes) -> None:
    writer.add_message(channel, log_time=LOGGED_NS + number, publish_time=START_NS + number, data=data, sequence=number)


@pytest.mark.parametrize("compression", list(CompressionType))
@pytest.mark.parametrize("chunks", [True, False])
def test_raw_messages_keep_their_bytes_and_times(tmp_path: Path, compression: CompressionType, chunks: bool) -> None:
    payloads = [bytes([n % 256]) * (n % 50) for n in range(500)]

    def fill(writer: Any) -> None:
        numbers = [channel(writer, topic, "") for topic in ("/a", "/deep/b")]
        for n, payload in enumerate(payloads):
            add(writer, numbers[n % 2], n, payload)

    path = write_mcap(tmp_path / "x.mcap", fill, compression=compression, use_chunking=chunks, chunk_size=1000)
    status = import_bag(path, tmp_path / "r")
    assert (status.messages, status.ends_early, status.share) == (500, "", 1.0)
    assert [(t.source, t.topic, t.type, t.messages) for t in status.topics] == [
        ("/a", "a", "bytes", 250),
        ("/deep/b", "deep/b", "bytes", 250),
    ]
    recording = Recording(tmp_path / "r")
    assert len(recording) == 500
    for first, topic in enumerate(("a", "deep/b")):
        found = list(recording.messages(topics=topic))
        assert [m.data for m in found] == payloads[first::2]
        assert [m.seq for m in found] == list(range(250))
        assert [m.time_ns for m in found] == [START_NS + n for n in range(first, 500, 2)], "exact to the nanosecond"
        assert [m.record_time_ns for m in found] == [(LOGGED_NS + n) // 1000 * 1000 for n in range(first, 500, 2)]
    assert recording.verify().ok


def test_json_with_a_schema_is_typed(tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "required": ["x"],
        "properties": {
            "x": {"type": "number"},
            "name": {"type": ["string", "null"]},
            "mode": {"enum": ["on", "off"]},
            "where": {"$ref": "#/$defs/Point"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object"},
        },
        "$defs": {"Point": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
    }
    messages = [
        {"x": 1, "name": None, "mode": "on", "where": {"lat": 2.5}, "tags": ["a"], "more": {"k": [1]}, "extra": 9},
        {"x": 1.5},
        {"x": "not a number"},
    ]

    def fill(writer: Any) -> None:
        number = channel(writer, "/fix", "json", json.dumps(schema).encode(), "Fix", "jsonschema")
        free = channel(writer, "/free", "json")
        for n, message in enumerate(messages):
            add(writer, number, n, json.dumps(message).encode())
            add(writer, free, n, json.dumps(message).encode())

    status = import_bag(write_mcap(tmp_path / "x.mcap", fill), tmp_path / "r")
    assert [(t.topic, t.type, t.unconverted) for t in status.topics] == [("fix", "Fix", 1), ("free", "JSON", 0)]
    table = Recording(tmp_path / "r").to_arrow("fix", decode=True)
    assert table.column("x").to_pylist() == [1.0, 1.5, None]
    assert table.column("where").to_pylist() == [{"lat": 2.5}, None, None]
    assert table.column("mode").to_pylist() == ["on", None, None]
    assert table.column("rm_payload").to_pylist()[2] == json.dumps(messages[2]).encode(), "kept as it was in the bag"
    assert table.column("rm_decode_error")[2].as_py()
    free = Recording(tmp_path / "r").to_arrow("free", decode=True)
    assert [json.loads(text) for text in free.column("value").to_pylist()] == messages


def test_what_a_json_schema_can_say() -> None:
    def root(schema: Any) -> _model.Type:
        return describe("T", json.dumps(schema).encode())[0]

    assert root({"type": "array", "items": {"type": "integer"}}) == _model.Array(_model.Scalar("int"))
    assert root({"type": "object", "additionalProperties": {"type": "boolean"}}) == _model.Map(
        _model.STR, _model.Scalar("bool")
    )
    assert root({"anyOf": [{"type": "string"}, {"type": "null"}]}) == _model.Union((_model.STR, _model.NULL))
    assert root({"oneOf": [{"type": "string"}, {"type": "number"}]}) == _model.ANY
    assert root({"enum": [1, "a"]}) == root({"type": "unheard of"}) == root({"$ref": "#/nowhere"}) == _model.ANY
    word, records = describe(
        "T", b'{"$ref":"#/$defs/Node","$defs":{"Node":{"properties":{"next":{"$ref":"#/$defs/Node"}}}}}'
    )
    assert word == _model.Ref("Node")
    assert records["Node"].fields[0].type == _model.Ref("Node")


def protobuf_schema() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="fix.proto", package="test", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    mode = file.enum_type.add(name="Mode")
    for number, name in enumerate(("OFF", "ON")):
        mode.value.add(name=name, number=number)
    fix = file.message_type.add(name="Fix")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind, type_name, repeated) in enumerate(
        (
            ("at", kinds.TYPE_MESSAGE, ".google.protobuf.Timestamp", False),
            ("lat", kinds.TYPE_DOUBLE, "", False),
            ("mode", kinds.TYPE_ENUM, ".test.Mode", False),
            ("ids", kinds.TYPE_UINT32, "", True),
            ("raw", kinds.TYPE_BYTES, "", False),
        ),
        1,
    ):
        label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
        fix.field.add(name=name, number=number, type=kind, type_name=type_name or None, label=label)
    files = descriptor_pb2.FileDescriptorSet()
    files.file.append(file)
    timestamp = files.file.add()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    return files.SerializeToString()


def test_protobuf_is_typed(tmp_path: Path) -> None:
    body = b"\x0a\x04\x08\x07\x10\x09" + b"\x11" + struct.pack("<d", 52.5) + b"\x18\x01\x22\x02\x05\x06\x2a\x01\xff"

    def fill(writer: Any) -> None:
        number = channel(writer, "/fix", "protobuf", protobuf_schema(), "test.Fix", "protobuf")
        unknown_mode = b"\x18\x2a"
        for n, data in enumerate((body, unknown_mode, b"\xff\xff broken")):
            add(writer, number, n, data)

    status = import_bag(write_mcap(tmp_path / "x.mcap", fill), tmp_path / "r")
    assert [(t.type, t.why_raw, t.unconverted) for t in status.topics] == [("test.Fix", "", 1)]
    table = Recording(tmp_path / "r").to_arrow("fix", decode=True)
    assert table.column("at").to_pylist()[:2] == [{"seconds": 7, "nanos": 9}, None]
    assert table.column("lat").to_pylist()[:2] == [52.5, 0.0]
    assert table.column("mode").to_pylist()[:2] == ["ON", "42"]
    assert table.column("ids").to_pylist()[:2] == [[5, 6], []]
    assert table.column("raw").to_pylist()[:2] == [b"\xff", b""]
    assert table.column("rm_payload").to_pylist()[2] == b"\xff\xff broken"


def test_what_cannot_be_decoded_is_bytes_and_says_why(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        for topic, encoding, schema, kind in (
            ("/flat", "flatbuffer", b"x", "flatbuffer"),
            ("/bad/json", "json", b"{", "jsonschema"),
            ("/bad/proto", "protobuf", b"\xff", "protobuf"),
            ("/bad/ros", "cdr", b"no such definition", "ros2msg"),
            ("/ein leerzeichen/../x", "", b"", ""),
        ):
            add(writer, channel(writer, topic, encoding, schema, "T/msg/T", kind), 1, b"payload")

    status = import_bag(write_mcap(tmp_path / "x.mcap", fill), tmp_path / "r")
    assert {t.topic: t.why_raw for t in status.topics}.keys() == {
        "flat", "bad/json", "bad/proto", "bad/ros", "ein_leerzeichen/_/x",
    }  # fmt: skip
    assert all(t.type == "bytes" for t in status.topics)
    assert sum(bool(t.why_raw) for t in status.topics) == 4
    assert [m.data for m in Recording(tmp_path / "r")] == [b"payload"] * 5


def ros_messages(store: Any) -> list[tuple[str, str, Any]]:
    types = store.types
    stamp = types["builtin_interfaces/msg/Time"](sec=7, nanosec=9)
    seq = {"seq": 3} if any(name == "seq" for name, _ in store.fielddefs["std_msgs/msg/Header"][1]) else {}
    header = types["std_msgs/msg/Header"](stamp=stamp, frame_id="map", **seq)
    image = types["sensor_msgs/msg/Image"](
        header=header, height=1, width=2, encoding="mono8", is_bigendian=0, step=2, data=np.array([1, 255], np.uint8)
    )
    twist = types["geometry_msgs/msg/Vector3"](x=1.0, y=2.0, z=3.0)
    floats = types["std_msgs/msg/Float32MultiArray"](
        layout=types["std_msgs/msg/MultiArrayLayout"](
            dim=[types["std_msgs/msg/MultiArrayDimension"](label="x", size=2, stride=2)], data_offset=0
        ),
        data=np.array([0.5, 1.5], np.float32),
    )
    return [
        ("/camera", "sensor_msgs/msg/Image", image),
        ("/twist", "geometry_msgs/msg/Vector3", twist),
        ("/array", "std_msgs/msg/Float32MultiArray", floats),
    ]


def write_ros1(path: Path) -> Path:
    store = get_typestore(Stores.ROS1_NOETIC)
    with Writer1(path.with_suffix(".bag")) as writer:
        for number, (topic, type_, message) in enumerate(ros_messages(store)):
            connection = writer.add_connection(topic, type_, typestore=store, callerid="/node")
            for n in range(10):
                writer.write(connection, START_NS + n * 10 + number, store.serialize_ros1(message, type_))
    return path.with_suffix(".bag")


def write_ros2(path: Path, storage: StoragePlugin) -> Path:
    store = get_typestore(Stores.LATEST)
    with Writer2(path, version=9, storage_plugin=storage) as writer:
        for number, (topic, type_, message) in enumerate(ros_messages(store)):
            connection = writer.add_connection(topic, type_, typestore=store)
            for n in range(10):
                writer.write(connection, START_NS + n * 10 + number, store.serialize_cdr(message, type_))
    return path


@pytest.mark.parametrize("kind", ["ros1", "sqlite3", "mcap", "mcap file"])
def test_ros_bags_are_typed(tmp_path: Path, kind: str) -> None:
    if kind == "ros1":
        bag = write_ros1(tmp_path / "bag")
    else:
        bag = write_ros2(tmp_path / "bag", StoragePlugin.SQLITE3 if kind == "sqlite3" else StoragePlugin.MCAP)
    if kind == "mcap file":
        (bag,) = bag.glob("*.mcap")
    status = import_bag(bag, tmp_path / "r")
    assert status.messages == 30
    assert {(t.topic, t.messages, t.why_raw, t.unconverted) for t in status.topics} == {
        (topic, 10, "", 0) for topic in ("camera", "twist", "array")
    }
    recording = Recording(tmp_path / "r")
    table = recording.to_arrow("camera", decode=True)
    assert table.column("rm_decode_error").null_count == 10
    assert table.column("data").to_pylist()[0] == b"\x01\xff"
    assert table.column("header").to_pylist()[0]["stamp"] == {"sec": 7, "nanosec": 9}
    assert [m.time_ns for m in recording.messages(topics="camera")] == [START_NS + n * 10 for n in range(10)]
    assert {m.sender for m in recording} == {"/node" if kind == "ros1" else ""}
    array = recording.to_arrow("array", decode=True)
    assert array.column("data").to_pylist()[0] == [0.5, 1.5]
    assert array.column("layout").to_pylist()[0]["dim"] == [{"label": "x", "size": 2, "stride": 2}]


def test_our_own_export_comes_back_with_types_senders_and_contracts(tmp_path: Path) -> None:
    with rm.Publisher("counts", type=list[int], contract="bus", sender="left") as pub:
        with rm.Recorder(tmp_path / "first", "counts", start="oldest"):
            for n in range(20):
                pub.send([n, n], kind="even" if n % 2 == 0 else "odd")
    first = Recording(tmp_path / "first")
    export_mcap(first, tmp_path / "x.mcap", raw=True)
    import_bag(tmp_path / "x.mcap", tmp_path / "second")
    second = Recording(tmp_path / "second")
    for name in ("topic", "time_ns", "sender", "kind", "data", "value"):
        assert [getattr(m, name) for m in second] == [getattr(m, name) for m in first], name
    (life,) = second.schemas().values()
    assert life.contract == "bus"
    assert Schema.from_bytes(life.schema).type_name == "list[int]"


def test_one_topic_with_two_schemas_has_two_lives(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        for n, field in enumerate(("old", "new")):
            schema = json.dumps({"type": "object", "properties": {field: {"type": "integer"}}}).encode()
            add(writer, channel(writer, "/t", "json", schema, "T", "jsonschema"), n, b'{"%s": 5}' % field.encode())

    import_bag(write_mcap(tmp_path / "x.mcap", fill), tmp_path / "r")
    recording = Recording(tmp_path / "r")
    assert len(recording.lives()) == 2
    assert recording.to_arrow("t", decode=True).select(["old", "new"]).to_pylist() == [
        {"old": 5, "new": None},
        {"old": None, "new": 5},
    ]


def big_mcap(path: Path, messages: int = 2000) -> Path:
    def fill(writer: Any) -> None:
        number = channel(writer, "/a", "")
        for n in range(messages):
            add(writer, number, n, bytes(10_000))

    return write_mcap(path, fill, chunk_size=100_000, compression=CompressionType.NONE)


def test_a_file_that_was_cut_off_gives_what_is_whole_and_says_so(tmp_path: Path) -> None:
    path = big_mcap(tmp_path / "x.mcap", 100)
    path.write_bytes(path.read_bytes()[:450_000])
    status = import_bag(path, tmp_path / "r")
    assert "ends before its end mark" in status.ends_early
    assert status.messages == len(Recording(tmp_path / "r")) == 40


@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        ("missing.mcap", None, RecordingNotFound, "nothing to import or play .* no such file"),
        ("x.mcap", b"not really", RecordingError, "not a readable MCAP file"),
        ("x.mcap", b"", RecordingError, "not a readable MCAP file"),
        ("x.bag", b"not a bag", RecordingError, "not a readable bag"),
        ("x.txt", b"", RecordingError, "expected an .mcap file"),
    ],
)
def test_no_bag_no_recording(tmp_path: Path, name: str, content: bytes | None, error: type, words: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=words):
        import_bag(tmp_path / name, tmp_path / "r")
    assert {path.name for path in tmp_path.iterdir()} <= {name}


def test_a_damaged_chunk_is_refused(tmp_path: Path) -> None:
    path = big_mcap(tmp_path / "x.mcap", 100)
    data = bytearray(path.read_bytes())
    data[200_000] ^= 1
    path.write_bytes(data)
    with pytest.raises(RecordingError, match="does not pass its checksum"):
        import_bag(path, tmp_path / "r")
    assert not (tmp_path / "r").exists()


def test_an_import_that_is_interrupted_leaves_no_recording(tmp_path: Path) -> None:
    seen: list[ImportStatus] = []

    def interrupt(status: ImportStatus) -> None:
        seen.append(status)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_bag(big_mcap(tmp_path / "x.mcap"), tmp_path / "r", progress=interrupt)
    assert 0 < seen[0].share < 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.mcap"]


def test_an_existing_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    with pytest.raises(RecordingError, match="exists"):
        import_bag(big_mcap(tmp_path / "x.mcap", 1), tmp_path / "r")


def test_the_same_bag_gives_the_same_rows_and_another_bag_others(tmp_path: Path) -> None:
    one, other = big_mcap(tmp_path / "x.mcap", 3), big_mcap(tmp_path / "y.mcap", 4)
    for bag, directory in ((one, "r1"), (one, "r2"), (other, "r3")):
        import_bag(bag, tmp_path / directory)
    key = ["recorder", "topic", "epoch", "seq"]
    first, again, another = (Recording(tmp_path / name).to_arrow(columns=key) for name in ("r1", "r2", "r3"))
    assert first.equals(again)
    assert first.column("recorder")[0] != another.column("recorder")[0]
    assert first.column("epoch")[0] != another.column("epoch")[0], "though their first messages have one time"


def test_topics_that_differ_only_in_characters_stay_apart(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        for n, topic in enumerate(("/a b", "/a_b", "a_b", "/")):
            add(writer, channel(writer, topic, ""), n, b"%d" % n)

    status = import_bag(write_mcap(tmp_path / "x.mcap", fill), tmp_path / "r")
    assert {t.source: t.topic for t in status.topics} == {
        "/a b": "a_b",
        "/a_b": "a_b-2",
        "a_b": "a_b-3",
        "/": "unnamed",
    }


def test_a_record_time_for_each_message(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r") as writer:
        writer.append("a", 1, ring_batch(0, 3), record_time_ns=[1_000, 2_000, 3_000])
        writer.append("a", 1, ring_batch(3, 2), record_time_ns=9_000)
        with pytest.raises(ValueError, match="2 record times for 3 messages"):
            writer.append("a", 1, ring_batch(5, 3), record_time_ns=[1, 2])
    assert [m.record_time_ns for m in Recording(tmp_path / "r")] == [1_000, 2_000, 3_000, 9_000, 9_000]


def test_batches_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are cut in pieces of chunks, of ten messages here."""
    monkeypatch.setattr(importer, "_BATCH_MESSAGES", 7)
    monkeypatch.setattr(sources, "_PIECE_MESSAGES", 7)
    seen: list[int] = []
    import_bag(big_mcap(tmp_path / "x.mcap", 30), tmp_path / "r", progress=lambda status: seen.append(status.messages))
    assert seen == [10, 20, 30]
    assert list(importer._parts([b"x"] * 10)) == [(0, 7), (7, 10)]
    monkeypatch.setattr(importer, "_BATCH_BYTES", 5)
    assert list(importer._parts([b"1234", b"1234", b"1", bytes(99), b""])) == [(0, 2), (2, 4), (4, 5)]


def test_a_topic_with_several_channels_keeps_its_order(tmp_path: Path) -> None:
    def fill(writer: Any) -> None:
        numbers = [channel(writer, topic, "") for topic in ("/a", "/b", "/a")]
        for n in range(30):
            add(writer, numbers[n % 3], n, b"%d" % n)

    import_bag(write_mcap(tmp_path / "x.mcap", fill), tmp_path / "r")
    recording = Recording(tmp_path / "r")
    assert [int(m.data) for m in recording.messages(topics="a")] == [n for n in range(30) if n % 3 != 1]
    assert [int(m.data) for m in recording.messages(topics="b")] == list(range(1, 30, 3))
