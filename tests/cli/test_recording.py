"""`record`, `play`, `export`: a recording made, replayed and exported by real commands."""

from __future__ import annotations

import base64
import json
import os
import signal
from datetime import UTC, datetime, timedelta

import numpy
import pyarrow.parquet
import pytest

import ringmain as rm
from ringmain.recording import Recording
from tests.cli.conftest import PATIENCE_S, Imu
from tests.cli.test_echo import RECORDS
from tests.recording.conftest import payload_of


@pytest.fixture
def drive(ringmain, tmp_path):
    """A recording of a typed topic and one of bytes."""
    with rm.Publisher("imu", type=Imu) as imu, rm.Publisher("log", contract="reliable") as log:
        for number in range(10):
            imu.send(Imu(number, (0, 0, number)))
            log.send(b"line %d" % number)
        ended = ringmain("record", "-o", str(tmp_path / "drive"), "--oldest", "--messages", "20", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["messages"] == 20
    return tmp_path / "drive"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_record_until_told_to_end(started, until, tmp_path, number):
    with rm.Publisher("t", contract="reliable") as pub:
        process = started("record", "t", "-o", str(tmp_path / "r"))
        until(lambda: rm.info("t").readers)
        pub.send_many([b"x"] * 50)
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "50 messages" in out
    assert len(Recording(tmp_path / "r")) == 50


def test_play(started, drive):
    process = started(
        "play", str(drive), "--topics", "log", "--map", "log=again", "--speed", "inf", "--wait-readers", "1", "--json"
    )
    with rm.Subscriber("again", start="oldest") as sub:
        assert [sub.recv(PATIENCE_S) for _ in range(10)] == [b"line %d" % n for n in range(10)]
        out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert json.loads(out)["messages"] == 10


def test_export(ringmain, drive, tmp_path):
    lines = ringmain("export", str(drive), "-", "imu").out.splitlines()
    assert json.loads(lines[3])["data"] == {"time": 3.0, "acceleration": [0.0, 0.0, 3.0], "label": ""}
    assert json.loads(lines[3])["topic"] == "imu"
    for name in ("a.parquet", "a.mcap", "a.jsonl"):
        ended = ringmain("export", str(drive), str(tmp_path / name))
        assert ended.out.startswith("20 messages"), ended.err
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").num_rows == 20
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 20
    assert ringmain("export", "--mcap", str(drive)).out == f"20 messages: {drive}.mcap\n"
    assert ringmain("export", "--mcap", "--raw", str(drive), str(tmp_path / "b.bin"), "imu").out.startswith(
        "10 messages"
    )
    assert list(tmp_path.glob("*.tmp")) == []


@pytest.mark.parametrize(
    "array",
    [
        RECORDS,
        numpy.arange(5000, dtype="f4").reshape(50, 100),
        numpy.array([(((1, 2), b"ab"), 1.5)] * 2, [("in", [("pair", "i2", (2,)), ("name", "S2")]), ("x", "f2")]),
    ],
    ids=["arrays in records", "large", "records in records"],
)
def test_all_of_an_array_is_exported(ringmain, tmp_path, array):
    with rm.Publisher("scan", type=numpy.ndarray) as pub:
        pub.send(array)
        ringmain("record", "-o", str(tmp_path / "r"), "--oldest", "--messages", "1")
    assert ringmain("export", str(tmp_path / "r"), str(tmp_path / "r.jsonl")).code == 0
    told = json.loads((tmp_path / "r.jsonl").read_text())["data"]
    assert told["shape"] == list(array.shape)

    def plain(value):
        if isinstance(value, numpy.ndarray):
            return plain(value.tolist())
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return [plain(each) for each in value] if isinstance(value, list | tuple) else value

    assert told["values"] == plain(array)


def test_mistakes(ringmain, drive, tmp_path):
    assert ringmain("export", str(drive), "a.xyz").code == 2
    assert ringmain("export", str(drive)).code == 2
    ended = ringmain("export", str(drive), "a.mcap", "--codec", "png")
    assert (ended.code, ended.err) == (2, "ringmain export: --codec is for --lerobot\n")
    assert ringmain("export", str(tmp_path / "none"), "-").code == 3
    assert ringmain("play", str(tmp_path / "none")).code == 3
    assert ringmain("play", str(drive), "--map", "nonsense").code == 2
    assert ringmain("play", str(drive), "--from", "yesterday").code == 2
    for option, value in (("--max-size", "much"), ("--keep", "long"), ("--keep", ""), ("--duration", "1y")):
        assert ringmain("record", "-o", str(drive), option, value).code == 2


def test_play_from_to(started, steps):
    """Seconds after the first message, or a date; the end is left out."""
    begin = datetime.fromtimestamp(Recording(steps).time_range_ns[0] / 1e9, UTC)
    for since, until_ in (("3", "7"), ((begin + timedelta(seconds=2.5)).isoformat(), "7")):
        process = started(
            "play", str(steps), "--from", since, "--to", until_, "--speed", "inf", "--wait-readers", "1", "--json"
        )
        with rm.Subscriber("t", start="oldest") as sub:
            assert [sub.recv_message(PATIENCE_S).data for _ in range(4)] == [payload_of(n) for n in range(3, 7)]
            out, _ = process.communicate(timeout=PATIENCE_S)
        assert json.loads(out)["messages"] == 4


def test_record_chooses_a_name_and_keeps_to_keep(ringmain, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = (
        "--no-frames",
        "--oldest",
        "--messages",
        "100",
        "--duration",
        "1m",
        "--max-size",
        "1GB",
        "--fsync",
        "never",
    )
    with rm.Publisher("t") as pub, rm.FramePublisher("cam", size=100) as cam:
        pub.send_many([os.urandom(1000)] * 300)
        cam.send(b"pixels")
        ended = ringmain("record", *options, "--json")
        assert ended.code == 0, ended.err
        (path,) = tmp_path.glob("recording-*")
        assert json.loads(ended.out)["path"] == path.name
        for keep in (("--keep", "24h", "--keep", "1GB"), ("--keep", "24h", "--keep", "1B")):
            assert ringmain("record", "-o", path.name, *options, *keep).code == 0
    recording = Recording(path)
    assert list(recording.topics()) == ["t"]
    assert [(ref.number, ref.sealed) for ref in recording.segments()] == [(2, True)], "all but the newest are gone"
    assert [m.seq for m in recording] == list(range(200, 300))


def test_topics_of_any_name_are_recorded(ringmain, tmp_path):
    with rm.Publisher("upload") as upload, rm.Publisher("x") as x:
        upload.send(b"1")
        x.send(b"2")
        ended = ringmain("record", "upload", "x", "-o", str(tmp_path / "r"), "--oldest", "--messages", "2")
    assert ended.code == 0, ended.err
    assert sorted(message.topic for message in Recording(tmp_path / "r")) == ["upload", "x"]
    assert ringmain("record", "x", "--upload", str(tmp_path / "r")).code == 2


@pytest.mark.parametrize(("name", "similar"), [("tiks", "; did you mean 'ticks'?"), ("no/where", "")])
def test_a_topic_that_never_comes_is_named_and_the_exit_code_says_so(ringmain, tmp_path, name, similar):
    with rm.Publisher("ticks") as pub:
        pub.send(b"1")
        options = ("-o", str(tmp_path / "r"), "--oldest", "--duration", "0.1")
        ended = ringmain("record", "ticks", name, *options)
        assert ended.code == 4
        assert f"record: there is no topic '{name}' yet{similar}\n" in ended.err
        assert ended.err.endswith(f"record: while this recorded, there was no topic '{name}'{similar}\n")
        assert "1 messages" in ended.out
        assert ringmain("record", "ticks", *options).code == 0
        assert ringmain("record", *options).code == 0
        # It is said also where nothing is printed while recording.
        assert ringmain("record", name, *options, "--quiet").code == 4
        # A pattern may match nothing beside one that does, but something must have come.
        assert ringmain("record", "ticks", "cam*", *options).code == 0
        assert ringmain("record", "cam*", *options).code == 4


def test_a_replay_that_stands_still_says_why(started, tmp_path):
    with rm.Publisher("jobs", contract="work", capacity="8MiB") as pub:
        with rm.Recorder(tmp_path / "r", "jobs"), rm.Subscriber("jobs") as worker:
            for _ in range(20):
                pub.send(bytes(100_000))
                worker.recv(timeout=PATIENCE_S)
    process = started("play", str(tmp_path / "r"), "--map", "jobs=again", "--speed", "inf", "--capacity", "1MiB")
    line = process.stderr.readline()
    assert line.startswith(
        "ringmain play: the replay stands still: topic 'again' had no room within 0.1 s: waiting for"
    )
    with rm.Subscriber("again") as worker:
        assert [len(worker.recv(timeout=PATIENCE_S)) for _ in range(20)] == [100_000] * 20
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0


def test_a_recorder_that_keeps_less_than_an_incident_wants_is_refused(ringmain, tmp_path):
    ended = ringmain("record", "-o", str(tmp_path / "r"), "--keep", "10s", "--trigger-loss", "imu", "--before", "30s")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "has the 30 s before its trigger, but only 10 s are kept (keep_age_s, --keep): keep as much" in ended.err
    assert not (tmp_path / "r").exists()


def test_what_is_asked_of_a_recorder_never_begins_a_recording(ringmain, tmp_path, monkeypatch):
    """A directory that is not there, or that no recorder writes to, or a text without quotes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for words, code, says in (
        (("trigger", "no-such", "now"), 3, "there is no directory 'no-such' of a recorder"),
        (("trigger", "empty", "now"), 1, "no recorder runs on empty"),
        (("trigger", "empty", "operator", "pressed"), 2, "takes a directory and a text, in quotes"),
        (("trigger", "empty"), 2, "takes a directory and a text, in quotes; to record topics of these names, give -o"),
        (("forget", "no-such", "1"), 3, "there is no directory 'no-such' of a recorder"),
        (("forget", "empty", "1"), 3, "there is no incident '1'"),
    ):
        ended = ringmain("record", *words)
        assert (ended.code, ended.err.count("\n"), ended.out) == (code, 1, ""), (words, ended)
        assert says in ended.err
    assert [one.name for one in tmp_path.rglob("*")] == ["empty"]
    with rm.Publisher("trigger") as trigger:
        trigger.send(b"1")
        ended = ringmain("record", "trigger", "trigg*", "empty", "-o", "r", "--oldest", "--messages", "1")
    assert len(Recording(tmp_path / "r")) == 1
