"""C++ on one side and Python on the other, both ways, on every contract."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain import _extension
from ringmain._contracts import CONTRACTS
from ringmain._extension import Said
from tests.conftest import PATIENCE_S
from tests.cpp.compiling import Participant, hexed

ALL = list(CONTRACTS)
WAITS = [name for name, contract in CONTRACTS.items() if contract.holds == "always"]


def message(seq: int, data: bytes, *, lost: int = 0, again: int = 0, sender: str = "", kind: str = "") -> str:
    return f"message {seq} {lost} {again} -{sender} -{kind} {hexed(data)}"


@pytest.mark.parametrize("contract", ALL)
def test_from_cpp_to_python(cpp: Participant, contract: Any) -> None:
    assert cpp("publisher", topic="t", contract=contract, sender="camera") == "ok"
    with rm.Subscriber("t", start="oldest") as sub:
        for number, data in enumerate([b"", b"one", bytes(range(256)) * 300]):
            assert cpp("send", data=hexed(data), kind="k") == f"ok {number}"
            got = sub.recv_message(timeout=PATIENCE_S)
            assert (got.data, got.seq, got.sender, got.kind, got.lost) == (data, number, "camera", "k", 0)
        assert sub.contract == contract
        assert cpp("reserve", size=100) == "ok 100"
        assert cpp("commit", data=hexed(b"in place")) == "ok 3"
        with sub.borrow(timeout=PATIENCE_S) as lease:
            assert bytes(lease.data) == b"in place"
        assert cpp("reserve", size=100) == "ok 100"
        assert cpp("discard") == "ok"
        assert sub.try_recv() is None
        assert cpp("all-read") == "ok 1"
        assert cpp("close") == "ok"


@pytest.mark.parametrize("contract", ALL)
def test_from_python_to_cpp(cpp: Participant, contract: Any) -> None:
    assert cpp("subscriber", topic="t", name="reader") == "ok"
    assert cpp("receive") == "empty"
    with rm.Publisher("t", contract=contract, sender="python") as pub:
        for number, data in enumerate([b"", b"one", bytes(range(256)) * 300]):
            assert pub.send(data, kind="k") == number
            assert cpp("receive") == message(number, data, sender="python", kind="k")
        assert cpp("receive") == "empty"
        pub.send(b"in place")
        assert cpp("borrow") == message(3, b"in place", sender="python")
        assert cpp("return") == "ok 0"
        assert cpp("lost") == "ok 0"
        assert cpp("epoch") == f"ok {pub.epoch}"
        assert pub.wait_for_readers(1, timeout=0) == 1
        assert [each.name for each in rm.info("t").readers] == ["reader"]
        assert cpp("close") == "ok"


@pytest.mark.parametrize("contract", WAITS)
def test_a_full_ring_is_said_and_nothing_is_lost(cpp: Participant, contract: Any) -> None:
    data = bytes(1000)
    assert cpp("publisher", topic="t", contract=contract, capacity=4096) == "ok"
    with rm.Subscriber("t", start="oldest", name="slow") as sub:
        sent = 0
        while (said := cpp("send", data=hexed(data))).startswith("ok"):
            sent += 1
        who = "its workers" if contract == "work" else "reader 'slow'"
        assert said.startswith(f"error 3 topic 't' had no room within 0 s: waiting for {who}"), said
        assert len(sub.recv_many(100)) == sent >= 3
        sub.try_recv()  # on work, what was received is done when the worker asks again
        assert cpp("send", data=hexed(data)) == f"ok {sent}"
        assert len(sub.recv(timeout=PATIENCE_S)) == 1000
        sub.try_recv()
        assert cpp("close") == "ok"


def test_waits_end_when_it_comes_when_time_is_up_and_when_they_are_stopped(cpp: Participant) -> None:
    assert cpp("subscriber", topic="t") == "ok"
    assert cpp("receive", timeout=10) == (
        "error 2 no message on topic 't' within 0.01 s: there is no such topic (no publisher has been opened)"
    )
    assert cpp("stopped-receive", timeout=20) == "error 4 the wait for a message on topic 't' was stopped"
    assert cpp("publisher", topic="p", contract="pipe", capacity=4096) == "ok"
    assert cpp("wait-for-readers", count=1, timeout=10) == "error 2 topic 'p' had 0 of 1 readers within 0.01 s"
    while cpp("send", data=hexed(bytes(900))).startswith("ok"):
        pass
    full = "error 3 topic 'p' had no room within 0.01 s: waiting for its reader, who has not come yet"
    assert cpp("send", data=hexed(bytes(900)), timeout=10) == full
    assert cpp("stopped-send", data=hexed(bytes(900)), timeout=20) == (
        "error 4 the wait for room in topic 'p' was stopped"
    )
    later = [threading.Timer(0.05, act) for act in (lambda: drain("p"), lambda: pub.send(b"came"))]
    with rm.Publisher("t", contract="reliable", name="w") as pub:
        assert cpp("receive", timeout=10).startswith(
            "error 2 no message on topic 't' within 0.01 s: waiting for writer"
        )
        later[1].start()
        assert cpp("receive", timeout=int(PATIENCE_S * 1000)) == message(0, b"came")
        later[0].start()
        assert cpp("send", data="-00", timeout=int(PATIENCE_S * 1000)).startswith("ok ")
        for each in later:
            each.join()
        drain("p")
        assert cpp("wait-for-readers", count=0) == "ok 0"
    assert cpp("close") == "ok"


def drain(topic: str) -> None:
    with rm.Subscriber(topic) as sub:
        while sub.recv_many(100):
            pass


def test_a_child_of_a_fork_has_what_it_opens_itself(cpp: Participant) -> None:
    assert cpp("publisher", topic="t", contract="reliable") == "ok"
    assert cpp("subscriber", topic="t") == "ok"
    assert cpp("forked") == "ok 0"
    assert cpp("send", data="-01") == "ok 0"
    assert cpp("receive") == message(0, b"\1")
    assert len(rm.info("t").readers) == len(rm.info("t").writers) == 1
    assert cpp("close") == "ok"


def test_a_reader_that_was_lapped_counts_what_it_lost(cpp: Participant) -> None:
    with rm.Publisher("t", capacity=4096) as pub:
        assert cpp("subscriber", topic="t", start="oldest") == "ok"
        for _ in range(100):
            last = pub.send(bytes(1000))
        first = cpp("receive").split()
        assert int(first[1]) == int(first[2]) > 0, "as many were lost as were sent before it"
        seqs = [int(first[1])]
        while (said := cpp("receive")) != "empty":
            seqs.append(int(said.split()[1]))
        assert seqs == list(range(seqs[0], last + 1))
        assert cpp("lost") == f"ok {seqs[0]}"
        assert cpp("close") == "ok"


def test_a_worker_gives_back_and_its_death_does_too(cpp: Participant, program: Path) -> None:
    with rm.Publisher("t", contract="work") as pub:
        assert cpp("subscriber", topic="t") == "ok"
        pub.send(b"task")
        assert cpp("borrow") == message(0, b"task")
        assert cpp("fail") == "ok 0"
        assert cpp("receive") == message(0, b"task", again=1)
        assert cpp("reject") == "ok"
        other = Participant(program)
        assert other("subscriber", topic="t") == "ok"
        assert other("borrow") == message(0, b"task", again=2)
        assert cpp("borrow") == "empty"
        other.kill()
        assert cpp("borrow", timeout=int(PATIENCE_S * 1000)) == message(0, b"task", again=3)
        assert cpp("return") == "ok 0"
        assert cpp("receive") == "empty"
        assert rm.info("t").waiting == 0
        assert cpp("close") == "ok"


@pytest.mark.parametrize("call", ["receive", "borrow"])
def test_what_is_said_beside_the_kind_is_not_the_kind(cpp: Participant, call: str) -> None:
    said = _extension.with_trace("grab", f"00-{'4b' * 16}-{'f0' * 8}-01")
    with rm.Publisher("t", sender="a") as pub:
        assert cpp("subscriber", topic="t") == "ok"
        for kind in (said, Said(bytes(said)[:-4]), Said(b"\xff\xffgrab")):
            pub._send_as(b"x", -1, 0, kind, 10)
        for number, kind in enumerate(["grab", "", ""]):
            assert cpp(call) == message(number, b"x", sender="a", kind=kind)
            assert call == "receive" or cpp("return") == "ok 0"


def test_screens_conflate_observe_and_kept_kinds(cpp: Participant) -> None:
    with rm.Publisher("t", contract="reliable", capacity=4096, keep_last_per_kind=8, sender="a") as pub:
        pub.send(b"settings", kind="rare")
        for number in range(100):
            pub.send(b"%d" % number, kind="often")
        assert cpp("subscriber", topic="t", start="newest") == "ok"
        assert cpp("borrow") == message(0, b"settings", sender="a", kind="rare")
        assert cpp("return") == "ok 0"
        assert cpp("receive") == message(100, b"99", sender="a", kind="often")
        assert cpp("receive") == "empty"
        assert cpp("subscriber", topic="t", ignore_kinds="often") == "ok"
        pub.send_many([b"no", b"yes", b"no"], kinds=["often", "rare", "often"])
        assert cpp("receive") == message(102, b"yes", sender="a", kind="rare")
        assert cpp("receive") == "empty"
        assert cpp("subscriber", topic="t", only_senders="b") == "ok"
        pub.send(b"no")
        assert cpp("receive") == "empty"
        assert cpp("subscriber", topic="t", conflate=1) == "ok"
        pub.send_many([b"1", b"2", b"3"])
        assert cpp("receive") == message(107, b"3", sender="a")
        assert cpp("lost") == "ok 0"
        assert cpp("subscriber", topic="t", observe="always") == "ok"
        for _ in range(300):
            pub.send(bytes(100), timeout=PATIENCE_S)  # no writer waits for an observer
        assert cpp("receive").startswith("message ")
        assert cpp("lost") != "ok 0"
        assert cpp("close") == "ok"


def test_min_readers_takeover_and_the_next_life(cpp: Participant, program: Path) -> None:
    assert cpp("publisher", topic="t", min_readers=1) == "ok"
    assert cpp("send", data="-00") == "error 3 topic 't' had 0 of 1 readers within 0 s: nothing was sent"
    with rm.Subscriber("t") as sub:
        assert cpp("readers") == "ok 1"
        assert cpp("send", data="-00") == "ok 0"
        assert sub.recv(timeout=PATIENCE_S) == b"\0"
        with rm.Publisher("t", takeover=True) as pub:
            assert cpp("send", data="-00") == (
                "error 7 another writer has taken over topic 't'; this one cannot send any more"
            )
            pub.send(b"mine")
            assert sub.recv(timeout=PATIENCE_S) == b"mine"
        assert cpp("close") == "ok"
    assert cpp("subscriber", topic="t") == "ok"
    for contract in ("bus", "reliable", "broadcast"):  # the topic is made anew each time
        with rm.Publisher("t", contract=contract) as pub:
            pub.send(b"life")
            assert cpp("receive") == message(0, b"life"), contract
    assert cpp("close") == "ok"


def test_a_killed_writer_leaves_nothing_half_sent(cpp: Participant, program: Path) -> None:
    with rm.Subscriber("t") as sub, rm.Publisher("t", contract="bus") as pub:
        other = Participant(program)
        assert other("publisher", topic="t") == "ok"
        assert other("send", data="-01") == "ok 0"
        assert other("reserve", size=64) == "ok 64"
        other.kill()
        assert pub.send(b"next", timeout=PATIENCE_S) == 1
        assert sub.recv_many(9, timeout=PATIENCE_S) == [b"\1", b"next"]
        assert cpp("publisher", topic="t") == "ok"
        assert cpp("send", data="-02") == "ok 2"
        assert cpp("close") == "ok"


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ({"topic": "a//b"}, {}),
        ({"topic": "x" * 300}, {}),
        ({"topic": "t", "contract": "pipe"}, {}),
        ({"topic": "t", "capacity": 1 << 50}, {}),
        ({"topic": "t", "mode": "0111"}, {}),
        ({"topic": "t", "min_readers": 500}, {}),
        ({"topic": "t", "contract": "work", "keep": 3}, {"keep_last_per_kind": 3}),
        ({"topic": "t", "keep": 99999}, {"keep_last_per_kind": 99999}),
        ({"topic": "t", "capacity": 1 << 16}, {}),
    ],
)
def test_both_refuse_in_the_same_words(cpp: Participant, words: dict[str, Any], options: dict[str, Any]) -> None:
    python: dict[str, Any] = {**{name: value for name, value in words.items() if name != "keep"}, **options}
    if "mode" in python:
        python["mode"] = int(python["mode"], 8)
    with rm.Publisher("t", contract="broadcast", name="holder"):
        with pytest.raises(rm.RingmainError) as refused:
            rm.Publisher(python.pop("topic"), **python)
        said = cpp("publisher", **words)
    assert said.partition(" ")[2].partition(" ")[2] == str(refused.value)


def test_a_message_that_is_too_large_is_refused_in_the_same_words(cpp: Participant) -> None:
    with rm.Publisher("t", contract="bus", capacity=4096) as pub:
        assert cpp("publisher", topic="t") == "ok"
        with pytest.raises(rm.MessageTooLarge) as refused:
            pub.send(bytes(5000))
        assert cpp("send", data=hexed(bytes(5000))) == f"error 6 {refused.value}"
        assert cpp("close") == "ok"


def test_inspection(cpp: Participant) -> None:
    with rm.Publisher("a/b", contract="reliable", name="w") as pub, rm.Subscriber("a/b", name="r"), rm.Publisher("c"):
        pub.send_many([b"1", b"2"])
        assert cpp("info", topic="a/b") == f"info reliable {pub.capacity} 2 1:w:0 2:r:2"
        assert cpp("topics") == "topics a/b c"
        assert cpp("info", topic="d").startswith("error 8 ")
        assert cpp("unlink", topic="c").startswith("error 9 topic 'c' is in use by writer")
        assert cpp("unlink", topic="c", force=1) == "ok"
        assert cpp("topics") == "topics a/b"


# ------------------------------------------------------------------------------------------------- structs

np = pytest.importorskip("numpy")

POSE = [("x", "f4"), ("y", "f4")]
FIELDS: list[Any] = [
    ("t", "f8"),
    ("gyro", "f4", 3),
    ("id", "u2"),
    ("ok", "?"),
    ("mode", "u1"),
    ("name", "S8"),
    ("path", POSE, 2),
]


def test_structs_of_cpp_are_records_of_numpy(cpp: Participant) -> None:
    assert cpp("imu-publisher", topic="imu") == "ok"
    dtype = np.dtype(FIELDS, align=True)
    with rm.Subscriber("imu", type=dtype) as sub:
        assert cpp("imu-send", t=0.5) == "ok 0"
        record = sub.recv(timeout=PATIENCE_S)
        assert record["t"] == 0.5
        assert record["gyro"].tolist() == [1, 2, 3]
        assert (record["id"], record["ok"], record["mode"], record["name"]) == (7, True, 1, b"front")
        assert record["path"]["y"].tolist() == [2, 4]
        schema = rm.info("imu").schema
        assert schema is not None
        assert (schema.codec, schema.type_name) == ("struct", "Imu")
        with rm.Publisher("imu", type=dtype, takeover=True):  # Python's own schema of the same layout
            pass
    assert cpp("close") == "ok"


def test_records_of_numpy_are_structs_of_cpp(cpp: Participant) -> None:
    dtype = np.dtype(FIELDS, align=True)
    assert cpp("imu-subscriber", topic="imu") == "ok"
    with rm.Publisher("imu", type=dtype) as pub:
        pub.send((1.5, (1, 2, 3), 9, True, 1, b"rear", [(1, 2), (3, 8)]))
        assert cpp("imu-receive") == "imu 1.5 3 9 1 1 rear 8"
        assert cpp("imu-receive") == "empty"
    assert cpp("close") == "ok"


def test_another_layout_is_refused_by_the_name_of_the_field(cpp: Participant) -> None:
    wrong = np.dtype([*FIELDS[:2], ("id", "u4"), *FIELDS[3:6], ("path", [("x", "f4"), ("z", "f4")], 2)], align=True)
    right = np.dtype(FIELDS, align=True)
    with rm.Publisher("imu", type=wrong):
        said = cpp("imu-subscriber", topic="imu")
        assert said.startswith("error 11 topic 'imu' is written as struct (struct), which does not read as Imu (str")
        with pytest.raises(rm.SchemaMismatch) as refused:
            rm.Subscriber("imu", type=right)
        lines = [line.strip() for line in said.split("\t")[1:]]
        assert lines == [f"- {each}" for each in refused.value.differences]
        assert "field 'id': written as <u4 at byte 20, read as <u2 at byte 20" in said
        assert "field 'path.z': written, and not read" in said
    with rm.Publisher("imu", type=dict):
        assert "codec: written with msgpack version 1, read with struct version 1" in cpp("imu-subscriber", topic="imu")
    assert cpp("imu-publisher", topic="imu") == "ok"
    with pytest.raises(rm.SchemaMismatch, match="field 'id'"):
        rm.Subscriber("imu", type=wrong)
    assert cpp("close") == "ok"


# ------------------------------------------------------------------------------------------- crash points


def remove_unread() -> None:
    """A topic with messages that no reader has read outlives its participants."""
    with suppress(rm.TopicNotFound):
        rm.unlink("t")


@pytest.mark.parametrize(
    ("contract", "point", "visible"),
    [
        ("bus", "publish: turn taken", False),
        ("bus", "publish: written, not committed", False),
        ("reliable", "publish: claimed, not written", False),
        ("reliable", "publish: committed, turn kept", True),
        ("work", "publish: written, not committed", False),
        ("broadcast", "publish: tail moved, not claimed", False),
        ("pipe", "publish: committed, turn kept", True),
    ],
)
def test_a_cpp_writer_dies_at_a_crash_point(
    program: Path, runtime_dir: Path, contract: Any, point: str, visible: bool
) -> None:
    with rm.Subscriber("t") as sub:
        victim = Participant(program, crash=point)
        assert victim("publisher", topic="t", contract=contract) == "ok"
        assert victim.dies("send", data=hexed(b"last words"))
        with rm.Publisher("t", contract=contract) as pub:
            assert pub.send(b"next", timeout=PATIENCE_S) == int(visible)
            got = [sub.recv(timeout=PATIENCE_S) for _ in range(1 + visible)]
        assert got == [b"last words"] * visible + [b"next"]
        assert sub.lost == 0
    remove_unread()


@pytest.mark.parametrize(
    ("contract", "point", "again"),
    [
        ("pipe", "read: message found, not copied", True),
        ("pipe", "read: hold moved, bell not rung", False),
        ("reliable", "read: taken, hold not moved", None),
        ("work", "work: taken, cursor not moved", True),
        ("work", "work: cursor moved, bell not rung", True),
    ],
)
def test_a_cpp_reader_dies_at_a_crash_point(
    program: Path, runtime_dir: Path, contract: Any, point: str, again: bool | None
) -> None:
    with rm.Publisher("t", contract=contract, capacity=4096) as pub:
        victim = Participant(program, crash=point)
        assert victim("subscriber", topic="t") == "ok"
        pub.send(b"task")
        assert victim.dies("receive")
        for _ in range(3):
            pub.send(bytes(900), timeout=PATIENCE_S)  # it holds nothing any more
        if again is not None:
            with rm.Subscriber("t") as sub:
                assert (sub.recv(timeout=PATIENCE_S) == b"task") == again
    remove_unread()


@pytest.mark.parametrize("point", ["publish: claimed, not written", "publish: written, not committed"])
def test_a_python_writer_dies_and_a_cpp_one_goes_on(cpp: Participant, point: str) -> None:
    assert cpp("subscriber", topic="t") == "ok"
    assert cpp("publisher", topic="t", contract="reliable") == "ok"
    code = "import ringmain as rm; rm.Publisher('t').send(b'last words')"
    lab = {**os.environ, "RINGMAIN_LAB": "1", "RINGMAIN_CRASH": point}
    assert subprocess.run([sys.executable, "-c", code], env=lab).returncode == -signal.SIGKILL
    assert cpp("send", data=hexed(b"next")) == "ok 0"
    assert cpp("receive") == message(0, b"next")
    assert cpp("close") == "ok"
