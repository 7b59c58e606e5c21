"""`record`, `play`, `export`: a recording made, replayed and exported by real commands."""

from __future__ import annotations

import json
import signal

import pyarrow.parquet
import pytest

import ringmain as rm
from ringmain.recording import Recording
from tests.cli.conftest import PATIENCE_S, Imu


@pytest.fixture
def drive(ringmain, tmp_path):
    """A recording of a typed topic and one of bytes."""
    with rm.Publisher("imu", type=Imu) as imu, rm.Publisher("log", contract="reliable") as log:
        for number in range(10):
            imu.send(Imu(number, (0, 0, number)))
            log.send(b"line %d" % number)
        ended = ringmain("record", str(tmp_path / "drive"), "--oldest", "--count", "20", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["messages"] == 20
    return tmp_path / "drive"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_record_until_told_to_end(started, until, tmp_path, number):
    with rm.Publisher("t", contract="reliable") as pub:
        process = started("record", str(tmp_path / "r"), "t")
        until(lambda: rm.info("t").readers)
        pub.send_many([b"x"] * 50)
        process.send_signal(number)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0
        assert "50 messages" in out
    assert len(Recording(tmp_path / "r")) == 50


def test_play(started, drive):
    process = started(
        "play", str(drive), "log", "--rename", "log=again", "--speed", "inf", "--wait-readers", "1", "--json"
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
    assert list(tmp_path.glob("*.tmp")) == []


def test_mistakes(ringmain, drive, tmp_path):
    assert ringmain("export", str(drive), "a.xyz").code == 2
    assert ringmain("export", str(tmp_path / "none"), "-").code == 3
    assert ringmain("play", str(tmp_path / "none")).code == 3
    assert ringmain("play", str(drive), "--rename", "nonsense").code == 2
    assert ringmain("record", str(drive), "--max-bytes", "much").code == 2
