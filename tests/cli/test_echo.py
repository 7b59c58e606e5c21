"""`echo`: messages printed as what they are, filtered, counted; and what it says of what it could not show."""

from __future__ import annotations

import json
import re
import signal
from typing import NamedTuple

import msgspec
import numpy
import pyarrow
import pytest

import ringmain as rm
from tests.cli.conftest import PATIENCE_S, Imu


@pytest.fixture
def kept():
    """A topic whose messages stay in the ring for `--oldest` to find."""
    publishers = []

    def publish(messages, **options):
        pub = rm.Publisher("t", **options)
        publishers.append(pub)
        for message in messages:
            pub.send(message)
        return pub

    yield publish
    for pub in publishers:
        pub.close()


def test_typed_messages_are_printed_as_such(ringmain, kept):
    kept([Imu(1.5, (0, 0, 9.8), "left")], type=Imu, sender="me")
    out = ringmain("echo", "t", "--oldest", "--once").out.splitlines()
    assert out[0].startswith("#0  ")
    assert out[0].endswith("from me")
    assert out[1:] == ["time: 1.5", "acceleration: [0.0, 0.0, 9.8]", "label: left"]


def test_bytes_are_printed_as_hex_and_text(ringmain, kept):
    kept([b"hello\x00\xff" + b"x" * 12])
    out = ringmain("echo", "t", "--oldest", "--once", "--no-envelope").out.splitlines()
    assert out[0] == "00000000  68 65 6c 6c 6f 00 ff 78 78 78 78 78 78 78 78 78  |hello..xxxxxxxxx|"
    assert out[1].endswith("|xxx|")


def test_arrays_and_tables(ringmain, kept):
    kept([numpy.arange(6, dtype="f4").reshape(2, 3)], type=numpy.ndarray)
    out = ringmain("echo", "t", "--oldest", "--once", "--no-envelope").out.splitlines()
    assert out == ["float32[2, 3]", "[[0. 1. 2.]", " [3. 4. 5.]]"]
    told = json.loads(ringmain("echo", "t", "--oldest", "--once", "--json").out)
    assert told["data"] == {"dtype": "float32", "shape": [2, 3], "values": [[0, 1, 2], [3, 4, 5]]}


RECORDS = numpy.zeros(3, [("id", "i4"), ("scan", "f4", (2000,))])
RECORDS["id"], RECORDS["scan"][2] = (7, 8, 9), numpy.arange(2000)
"""Records with arrays inside, which numpy shortens by a rule of their own."""


STRUCT = numpy.dtype(
    [("t", "f8"), ("gyro", "f4", (3,)), ("pose", [("x", "f4"), ("y", "f4")]), ("name", "S8")], align=True
)


def test_structs_have_fields(ringmain, kept):
    kept([(1.5, (1, 2, 3), (4, 5), b"left")], type=STRUCT)
    out = ringmain("echo", "t", "--oldest", "--once", "--no-envelope").out.splitlines()
    assert out == ["t: 1.5", "gyro: [1.0, 2.0, 3.0]", "pose:", "  x: 4.0", "  y: 5.0", "name: left"]
    told = json.loads(ringmain("echo", "t", "--oldest", "--once", "--json").out)
    assert told["data"] == {"t": 1.5, "gyro": [1, 2, 3], "pose": {"x": 4, "y": 5}, "name": "left"}
    assert "t: 1.5" in ringmain("echo", "t", "--oldest", "--once", "--filter", "gyro[2] == 3 and pose.y > 4").out
    assert "has no field 'gyros'" in ringmain("echo", "t", "--filter", "gyros > 1").err
    described = ringmain("info", "t").out
    assert "  gyro: <f4[3] at 8" in described
    assert "    y: <f4 at 4" in described


def test_structs_are_published_by_field(ringmain, kept):
    pub = kept([(0, (0, 0, 0), (0, 0), b"")], type=STRUCT, contract="bus")
    message = {"t": 2, "gyro": [1, 2, 3], "pose": {"x": 4, "y": 5}, "name": "r"}
    with rm.Subscriber("t", type=STRUCT) as sub:
        assert ringmain("pub", "t", json.dumps(message)).code == 0
        assert sub.recv(timeout=PATIENCE_S)["pose"]["y"] == 5
    refused = ringmain("pub", "t", '{"t": 2}')
    assert refused.code == 2
    assert "needs field 'gyro'" in refused.err
    assert pub.schema.codec == "struct"


def test_what_is_left_out_of_an_array_is_said(ringmain, kept):
    kept([RECORDS], type=numpy.ndarray)
    brief = ringmain("echo", "t", "--oldest", "--once", "--no-envelope").out
    assert "..." in brief
    assert brief.endswith("... (--full shows all)\n")
    full = ringmain("echo", "t", "--oldest", "--once", "--no-envelope", "--full").out
    assert "..." not in full
    assert [float(word) for word in re.findall(r"[\d.]+e\+\d+", full)[-2000:]] == list(range(2000))
    told = json.loads(ringmain("echo", "t", "--oldest", "--once", "--json").out)
    assert told["data"]["values"] == [[record["id"], record["scan"].tolist()] for record in RECORDS]


def test_what_json_cannot_hold_is_one_sentence(ringmain, kept):
    kept([{None: 1}], type=dict)
    ended = ringmain("echo", "t", "--oldest", "--once", "--json")
    assert ended.code == 1
    assert ended.err.startswith("ringmain echo: message 0 has no form as JSON")
    assert ended.err.count("\n") == 1


def test_arrow_tables(ringmain, kept):
    kept([pyarrow.table({"a": [1, 2]})], type=pyarrow.Table)
    out = ringmain("echo", "t", "--oldest", "--once", "--no-envelope").out.splitlines()
    assert out == ["2 rows of a: int64", "{a: 1}", "{a: 2}"]


def test_nested_records(ringmain, kept):
    kept([{"a": [{"b": 1, "c": 2}, {"b": 3}], "empty": {}, "none": None}], type=dict)
    out = ringmain("echo", "t", "--oldest", "--once", "--no-envelope").out.splitlines()
    assert out == ["a:", "  - b: 1", "    c: 2", "  - b: 3", "empty: {}", "none: null"]


def test_json_lines(ringmain, kept):
    kept([b"text", b"\xff\xfe"], sender="s")
    lines = ringmain("echo", "t", "--oldest", "--count", "2", "--json").out.splitlines()
    first, second = map(json.loads, lines)
    assert (first["seq"], first["sender"], first["text"]) == (0, "s", "text")
    assert second["base64"] == "//4="


def test_raw_is_the_payload_byte_for_byte(kept, started):
    kept([b"\x00\xff"])
    process = started("echo", "t", "--oldest", "--once", "--raw")
    assert process.stdout.buffer.read() == b"\x00\xff"
    assert process.wait(PATIENCE_S) == 0


def test_filter(ringmain, kept):
    kept([Imu(float(i), (i, 0, 0)) for i in range(10)], type=Imu)
    out = ringmain(
        "echo", "t", "--oldest", "--count", "2", "--json", "--filter", "acceleration[0] >= 3 and time % 2 == 0"
    ).out
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [4, 6]


def test_a_mistyped_field_is_refused_not_silent(ringmain, kept):
    kept([Imu(1, (0, 0, 0))], type=Imu)
    ended = ringmain("echo", "t", "--oldest", "--filter", "acelleration[0] > 1")
    assert ended.code == 2
    assert "Imu has no field 'acelleration'; it has acceleration, label, time" in ended.err


def test_a_filter_that_cannot_be_applied_says_so(ringmain, kept):
    """Dicts have no schema to check the filter against, so it shows only with the messages."""
    kept([{"x": None}, {"y": 1}, {"x": 5}], type=dict)
    ended = ringmain("echo", "t", "--oldest", "--once", "--json", "--filter", "x > 3")
    assert json.loads(ended.out)["data"] == {"x": 5}
    assert "could not be applied to 2 messages" in ended.err


def test_what_does_not_decode_is_shown_as_bytes(ringmain):
    with rm.Publisher("t", type=Imu), rm.Publisher("t", takeover=True) as liar:
        liar.send(b"\xc1 not an Imu")
        ended = ringmain("echo", "t", "--oldest", "--once")
        assert "does not decode as Imu" in ended.err
        assert "|. not an Imu|" in ended.out


def test_a_frame_is_told_by_what_is_known_of_it(ringmain):
    with rm.FramePublisher("camera", size=100) as pub:
        with pub.frame(0) as draft:
            draft.id, draft.size, draft.meta = 7, 50, {"iso": 100}
        out = ringmain("echo", "camera", "--oldest", "--once", "--no-envelope").out
        assert {"id: 7", "size: 50", "valid: true", "  iso: 100"} <= set(out.splitlines())
        told = json.loads(ringmain("echo", "camera", "--oldest", "--once", "--json").out)["data"]
        assert (told["id"], told["meta"]) == (7, {"iso": 100})
        assert ringmain("echo", "camera", "--oldest", "--once", "--filter", "id == 7").code == 0


def test_timeout(ringmain):
    with rm.Publisher("t"):
        ended = ringmain("echo", "t", "--once", "--timeout", "0.05")
        assert ended.code == 4
        assert "'t'" in ended.err


def test_ctrl_c_is_a_good_end(started, until):
    with rm.Publisher("t") as pub:
        process = started("echo", "t", "--no-envelope")
        until(lambda: rm.info("t").readers)
        pub.send(b"seen")
        assert "seen" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr.read() == ""


def test_a_topic_made_anew_is_followed_with_its_new_type(started, until):
    process = started("echo", "t", "--no-envelope")
    with rm.Publisher("t") as pub:
        until(lambda: rm.info("t").readers)
        pub.send(b"as bytes")
        assert "|as bytes|" in process.stdout.readline()
        rm.unlink("t", force=True)
    with rm.Publisher("t", type=dict) as pub:
        until(lambda: rm.info("t").readers)
        pub.send({"now": "typed"})
        assert process.stdout.readline() == "now: typed\n"


def test_arrays_inside_of_a_message(ringmain):
    with rm.Publisher("obs", type=dict) as pub:
        pub.send({"lidar": numpy.arange(6.0).reshape(2, 3), "step": 3})
        assert "lidar: [[0. 1. 2.] [3. 4. 5.]]" in ringmain("echo", "obs", "--oldest", "--count", "1").out
        told = json.loads(ringmain("echo", "obs", "--oldest", "--count", "1", "--json").out)
        assert told["data"] == {"lidar": [[0, 1, 2], [3, 4, 5]], "step": 3}


class Tick(msgspec.Struct, array_like=True):
    symbol: str
    price: float


class Book(msgspec.Struct):
    """Records sent as arrays, inside of others."""

    best: Tick
    ticks: list[Tick]
    by_name: dict[str, Tick]


class Pair(NamedTuple):
    left: int
    right: Tick


@pytest.mark.parametrize(
    ("message", "lines", "condition"),
    [
        (Tick("A", 1.5), ["symbol: A", "price: 1.5"], 'symbol == "A" and price > 1'),
        (
            Book(Tick("A", 1.5), [Tick("B", 2.5)], {"c": Tick("C", 3.5)}),
            [
                "best:",
                "  symbol: A",
                "  price: 1.5",
                "ticks:",
                "  - symbol: B",
                "    price: 2.5",
                "by_name:",
                "  c:",
                "    symbol: C",
                "    price: 3.5",
            ],
            'best.symbol == "A" and ticks[0].price > 2',
        ),
        (Pair(1, Tick("A", 1.5)), ["left: 1", "right:", "  symbol: A", "  price: 1.5"], "right.price < 2"),
    ],
)
def test_records_that_are_sent_as_arrays_have_fields(ringmain, kept, message, lines, condition):
    kept([message], type=type(message))
    options = ("echo", "t", "--oldest", "--once", "--timeout", "0")
    ended = ringmain(*options, "--filter", condition, "--no-envelope")
    assert (ended.code, ended.out.splitlines(), ended.err) == (0, lines, "")
    told = json.loads(ringmain(*options, "--json").out)["data"]
    assert list(told) == [line.partition(":")[0] for line in lines if line[0] not in " -"]
    assert ringmain("echo", "t", "--filter", "nosuch == 1").code == 2


def test_a_topic_that_is_not_there_is_named_at_once(ringmain, kept):
    kept([])
    with rm.Publisher("ticks"):
        for command in ("echo", "delay"):
            ended = ringmain(command, "tiks", "--timeout", "0.01")
            assert ended.code == 4
            first = f"ringmain {command}: there is no topic 'tiks' yet; did you mean 'ticks'?"
            assert ended.err.splitlines()[0] == first
