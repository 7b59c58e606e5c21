"""What is said of a message beside its kind: the kind stays the user's, on every backend and everywhere it is seen."""

from __future__ import annotations

import random
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringmain as rm
from ringmain import _extension
from ringmain._extension import Said
from ringmain.recording import Recording, RecordingWriter

TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
LIKE_A_TRACE = ["lidar;" + TRACE, "lidar;00-" + "front-left-" * 4 + "upper-ab", "call until 5ns", "17 failed"]
BACKENDS = ["shm", "fake", "zmq"]
SPEC = (Path(__file__).parents[1] / "docs/spec/shared-memory.md").read_text()


def both_said() -> Said:
    """The terms of a request, and a trace."""
    said = _extension.with_trace(_extension.of_request(81_234_500_000_000, True), TRACE)
    assert isinstance(said, Said)
    return Said(said + b"picture")


def test_it_is_as_the_spec_says() -> None:
    rows = re.findall(r"^\| (\d) \| (\w+) \| (\d+) \|", SPEC.partition("## Extension\n")[2], re.M)
    sizes = {int(number): int(size) for number, _, size in rows}
    assert sizes == _extension._BYTES
    said = both_said()
    assert said[:2] == b"\xff" + bytes([sizes[1] + sizes[3]])
    assert said[2:12] == struct.pack("<BqB", 1, 81_234_500_000_000, 1)
    assert said[12:38] == bytes.fromhex("03" + TRACE.replace("-", "")[2:])
    assert _extension.of_reply(7, "gone") == b"\xff\x0a" + struct.pack("<BQB", 2, 7, 2)


def test_what_is_written_is_read() -> None:
    extension, kind = _extension.parts(both_said())
    assert (kind, _extension.trace_of(extension), _extension.answer_of(extension)) == ("picture", TRACE, None)
    assert _extension.with_trace(both_said(), TRACE.replace("4", "5")) == both_said(), "it has one"
    assert _extension.without_terms(extension) == _extension.parts_of(_extension.with_trace("", TRACE))[0]
    assert _extension.without_terms(_extension.of_request(5, False)) == b""
    assert _extension.of_request(None, False) == ""
    for outcome in ("", "failed", "gone"):
        assert _extension.answer_of(_extension.of_reply(2**64 - 1, outcome)) == (2**64 - 1, outcome)
    assert _extension.with_trace("k", "01-" + TRACE[3:]) == "k"
    assert _extension.with_trace("é" * 120, TRACE) == "é" * 120, "no room"


def test_bytes_of_a_hostile_peer_are_no_extension_and_stay_inside() -> None:
    chance = random.Random(0)
    made = [both_said(), bytes(_extension.of_reply(1, "")), b"\xff", b"\xff\xff", b"\xff\x00"]
    for _ in range(3000):
        bad = bytearray(chance.choice(made))
        for _ in range(chance.randrange(4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        bad = bad[: chance.randrange(len(bad) + 1)]
        extension, kind = _extension.parts(bytes(bad))
        assert bytes(bad).startswith(extension)
        assert len(kind) <= len(bad)
        assert len(_extension.trace_of(extension)) in (0, 55)
        _extension.answer_of(extension)
        assert len(_extension.without_terms(extension)) <= len(extension)


@pytest.mark.parametrize("extension", [b"\xff", b"\xff\x05ab", b"\xff\xffab", b"\xff" * 255])
def test_one_that_contradicts_itself_is_none(extension: bytes) -> None:
    with rm.Publisher("t", contract="bus", keep_last_per_kind=True) as pub, rm.Subscriber("t") as sub:
        for _ in range(4):
            pub._send_as(b"x", -1, 0, Said(extension), 10)
        message = sub.recv_message(timeout=10)
        assert (message.kind, message.extension, message.trace, message.data) == ("", b"", "", b"x")
        with sub.borrow(timeout=10) as lease:
            assert (lease.kind, lease.extension, lease.trace) == ("", b"", "")
        assert pa.record_batch(sub.recv_batch())["kind"].to_pylist() == ["", ""]
        with rm.Subscriber("t", start="newest") as late:
            assert [m.seq for m in late.recv_messages(9)] == [3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_way_to_receive_gives_the_bare_kind_and_the_trace(backend: Any) -> None:
    with rm.Publisher("t", backend=backend) as pub, rm.Subscriber("t", backend=backend) as sub:
        pub.wait_for_readers(timeout=30)
        for _ in range(6):
            pub._send_as(b"x", -1, 0, both_said(), 10)
        pub.send(b"y", kind="picture")
        got = [sub.recv_message(timeout=30), *sub.recv_messages(1, timeout=30), *sub.recv_messages(1, timeout=30)]
        assert [(m.kind, m.trace, m.extension) for m in got] == [("picture", TRACE, bytes(both_said()[:-7]))] * 3
        with sub.borrow(timeout=30) as lease:
            assert (lease.kind, lease.trace, lease.extension) == ("picture", TRACE, bytes(both_said()[:-7]))
        found = pa.Table.from_batches(
            [pa.record_batch(sub.recv_batch(1, timeout=30)), pa.record_batch(sub.recv_batch(1, timeout=30))]
        )
        assert found["kind"].to_pylist() == ["picture"] * 2
        assert found["extension"].to_pylist() == [bytes(both_said()[:-7])] * 2
        last = sub.recv_message(timeout=30)
        assert (last.kind, last.trace, last.extension, last.data) == ("picture", "", b"", b"y")


def test_batches_with_and_without() -> None:
    with rm.Publisher("t") as pub, rm.Subscriber("t") as sub:
        for number in range(2000):
            said = _extension.with_trace(f"k{number % 7}", f"00-{number + 1:032x}-{number + 1:016x}-01")
            pub._send_as(b"%d" % number, -1, 0, said if number % 3 == 0 else f"k{number % 7}", 10)
        rows = pa.record_batch(sub.recv_batch(max_messages=3000)).to_pylist()
    assert [row["kind"] for row in rows] == [f"k{n % 7}" for n in range(2000)]
    traces = [_extension.trace_of(row["extension"]) for row in rows]
    assert traces == [f"00-{n + 1:032x}-{n + 1:016x}-01" if n % 3 == 0 else "" for n in range(2000)]


@pytest.mark.parametrize("kind", LIKE_A_TRACE)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kind_that_looks_like_ours_is_the_users(kind: str, backend: Any) -> None:
    with (
        rm.Publisher("t", backend=backend) as pub,
        rm.Subscriber("t", only_kinds=[kind], backend=backend) as only,
        rm.Subscriber("t", ignore_kinds=["lidar"], backend=backend) as ignoring,
    ):
        pub.wait_for_readers(2, timeout=30)
        pub.send(b"x", kind=kind)
        for sub in (only, ignoring):
            message = sub.recv_message(timeout=30)
            assert (message.kind, message.trace, message.data) == (kind, "", b"x")


def test_such_a_kind_is_kept_for_itself() -> None:
    with rm.Publisher("k", contract="bus", capacity=65536, keep_last_per_kind=True) as pub:
        for kind in ["lidar", *LIKE_A_TRACE]:
            pub.send(b"x", kind=kind)
        for _ in range(3000):
            pub.send(bytes(40), kind="filler")
        with rm.Subscriber("k", start="newest") as sub:
            found = {m.kind for m in iter(sub.try_recv_message, None)}
    assert found == {"lidar", "filler", *LIKE_A_TRACE}


@pytest.mark.parametrize("kind", [b"picture", b"\xff\x00picture", 7])
def test_a_kind_is_a_str(kind: Any) -> None:
    for backend in ("shm", "fake"):
        with rm.Publisher("t", backend=backend) as pub:  # type: ignore[arg-type]
            for call in (
                lambda: pub.send(b"x", kind=kind),
                lambda: pub.send_many([b"x"], kind=kind),
                lambda: pub.send_many([b"x"], kinds=[kind]),
                lambda: pub.reserve(1, kind=kind),
            ):
                with pytest.raises(TypeError, match="str"):
                    call()


def test_a_dead_letter_keeps_it() -> None:
    with (
        rm.Publisher("w", contract="work") as pub,
        rm.Subscriber("w", max_deliveries=1) as sub,
        rm.Subscriber("w.dead") as dead,
    ):
        pub._send_as(b"x", -1, 0, both_said(), 10)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError), sub.borrow(timeout=10):
                raise ZeroDivisionError
            if sub.try_recv() is None:
                break
        message = dead.recv_message(timeout=10)
    rm.unlink("w.dead", force=True)
    assert (message.kind, message.trace) == ("picture", TRACE)


def test_a_bridge_carries_it() -> None:
    with (
        rm.Publisher("from") as pub,
        rm.Subscriber("to") as sub,
        rm.bridge("from", "to"),
    ):
        pub.wait_for_readers(timeout=30)
        pub._send_as(b"x", -1, 0, both_said(), 10)
        message = sub.recv_message(timeout=30)
    assert (message.kind, message.extension) == ("picture", bytes(both_said()[:-7]))


def test_a_recording_keeps_it_and_a_replay_says_what_is_still_true(tmp_path: Path) -> None:
    reply = Said(_extension.of_reply(7, "failed") + b"")
    sent: list[Any] = [both_said(), "plain", LIKE_A_TRACE[0], reply]
    with rm.Publisher("t") as pub, rm.Subscriber("t") as sub, RecordingWriter(tmp_path / "r") as writer:
        for said in sent:
            pub._send_as(b"x", -1, 0, said, 10)
        writer.append("t", 1, sub.recv_batch())
        writer.flush()
        growing = list(Recording(tmp_path / "r"))
    recording = Recording(tmp_path / "r")
    sealed = list(recording)
    assert [ref.sealed for ref in recording.segments()] == [True]
    assert recording.verify().ok
    for messages in (growing, sealed):
        assert [m.kind for m in messages] == ["picture", "plain", LIKE_A_TRACE[0], ""]
        assert [m.trace for m in messages] == [TRACE, "", "", ""]
        assert [m.extension for m in messages] == [bytes(both_said()[:-7]), b"", b"", bytes(reply)]
    assert "extension" not in recording.to_arrow().schema.names
    assert recording.to_arrow(columns=["extension"])["extension"].to_pylist() == [m.extension for m in sealed]
    with rm.Subscriber("t") as again:
        assert rm.replay(tmp_path / "r").messages == 4
        replayed = again.recv_messages(9, timeout=10)
    assert [(m.kind, m.trace) for m in replayed] == [(m.kind, m.trace) for m in sealed]
    assert replayed[0].extension == _extension.without_terms(bytes(both_said()[:-7])), "no client waits any more"
    assert replayed[3].extension == bytes(reply)
    with rm.Subscriber("t", since=0, recording=tmp_path / "r") as past:
        assert past is not None


def test_since_gives_it_again(tmp_path: Path) -> None:
    with rm.Publisher("t") as pub, rm.Subscriber("t") as sub, RecordingWriter(tmp_path / "r") as writer:
        pub._send_as(b"x", -1, 0, both_said(), 10)
        writer.append("t", pub.epoch, sub.recv_batch())
        writer.flush()
        with rm.Subscriber("t", since=1, recording=tmp_path / "r") as past:
            message = past.recv_message(timeout=10)
    assert (message.kind, message.trace) == ("picture", TRACE)


def test_an_older_recording_is_continued_as_it_is_and_its_traces_are_found(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).parent / "golden/recording/v3", tmp_path / "r")
    with rm.Publisher("t") as pub, rm.Subscriber("t") as sub, RecordingWriter(tmp_path / "r") as writer:
        for said in (both_said(), f"old;{TRACE}"):
            pub._send_as(b"x", -1, 0, said, 10)
        writer.append("t", 1, sub.recv_batch())
    recording = Recording(tmp_path / "r")
    messages = [m for m in recording if m.topic == "t"]
    assert recording.verify().ok
    assert all(ref.sealed for ref in recording.segments())
    assert [(m.kind, m.extension, m.trace) for m in messages] == [("picture", None, ""), (f"old;{TRACE}", None, TRACE)]
    assert not any("extension" in pq.read_schema(path).names for path in (tmp_path / "r").glob("*.parquet"))
    with rm.Subscriber("t") as again:
        rm.replay(tmp_path / "r", topics="t")
        assert [(m.kind, m.trace) for m in again.recv_messages(9, timeout=10)] == [(m.kind, "") for m in messages]
