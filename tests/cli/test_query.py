"""`ringmain query` and `ringmain info` on a recording, and `export --decode`: what the guide shows, run as users do."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

import ringmain as rm
from ringmain import typed
from ringmain._cli.commands import query as query_command
from ringmain.recording import RecordingWriter
from tests.cli.conftest import Ended, Imu
from tests.recording.conftest import START_NS, ring_batch
from tests.recording.test_decode import encoded

pytest.importorskip("duckdb", reason="the extra query is not installed")

Run = Callable[..., Ended]


@pytest.fixture
def drive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recording `drive` in the current directory, with a typed topic and one of bytes."""
    monkeypatch.chdir(tmp_path)
    with RecordingWriter("drive", recorder="robot") as writer:
        writer.declare("imu", epoch=1, contract="bus", schema=typed.codec_for(Imu).schema.to_bytes())
        writer.append("imu", 1, encoded(Imu, [Imu(i / 10, (0.0, 0.0, 9.8), "a,b") for i in range(11)]))
        writer.append("camera/front", 1, ring_batch(0, 5, size=100, lost=2))
    return Path("drive")


def test_every_example_runs(ringmain: Run, drive: Path) -> None:
    for _what, line in query_command.EXAMPLES:
        if " lake " in line:  # tests/cli/test_parts.py has a lake
            continue
        words = shlex.split(line.partition(" >")[0])
        ended = ringmain(*words[1:])
        assert (ended.code, ended.err) == (0, ""), line
        assert ended.out


def test_formats(ringmain: Run, drive: Path) -> None:
    sql = (
        'select i.rm_seq as seq, label, acceleration, c.rm_payload as payload from imu i left join "camera/front" c '
        "using (rm_seq) order by 1"
    )
    rows = json.loads(ringmain("query", "drive", sql, "--format", "json").out)
    assert len(rows) == 11
    assert rows[0]["acceleration"] == {"_1": 0.0, "_2": 0.0, "_3": 9.8}
    assert rows[10] == {"seq": 10, "label": "a,b", "acceleration": rows[0]["acceleration"], "payload": None}
    lines = list(csv.DictReader(io.StringIO(ringmain("query", "drive", sql, "--format", "csv").out)))
    assert [line["label"] for line in lines] == ["a,b"] * 11
    table = ringmain("query", "drive", "select rm_seq, label from imu where rm_seq > 8 order by 1").out.splitlines()
    assert table == ["rm_seq  label", "     9  a,b", "    10  a,b", "2 rows"]


def test_a_field_that_is_called_size(ringmain: Run, tmp_path: Path) -> None:
    """A query on it is about the field, and not about the payload's bytes."""
    trade = msgspec.defstruct("Trade", [("price", float), ("size", int), ("Seq", int)])
    with RecordingWriter(tmp_path / "r") as writer:
        writer.declare("trades", epoch=1, schema=typed.codec_for(trade).schema.to_bytes())
        writer.append("trades", 1, encoded(trade, [trade(10.0, 500, 8), trade(10.0, 700, 9)]))
    sql = "select sum(size), sum(SEQ), sum(rm_seq), sum(rm_size) < 100 from trades"
    assert ringmain("query", str(tmp_path / "r"), sql, "--format", "csv").out.splitlines()[1] == "1200,17,1,True"


def test_a_table_that_is_scanned_twice_is_whole_both_times(ringmain: Run, drive: Path) -> None:
    sql = "select count(*) n from imu a, IMU b"
    assert json.loads(ringmain("query", "drive", sql, "--format", "json").out) == [{"n": 121}]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("select * from camera/front", 'quote a name that has a "/"'),
        ("select * from nothing", 'the tables are "camera/front", "imu"'),
        ("select nothing from imu", "nothing"),
        ("copy imu to 'stolen.csv'", "disabled by configuration"),
        ("select * from read_text('/etc/hostname')", "disabled by configuration"),
    ],
)
def test_a_query_that_cannot_run_is_one_sentence(ringmain: Run, drive: Path, sql: str, words: str) -> None:
    ended = ringmain("query", "drive", sql)
    assert (ended.code, ended.out) == (1, "")
    assert words in ended.err
    assert ended.err.count("\n") == 1
    assert not Path("stolen.csv").exists()


def test_export_with_fields_as_columns(ringmain: Run, drive: Path) -> None:
    ended = ringmain("export", "drive", "imu.parquet", "imu", "--decode")
    assert (ended.code, ended.out) == (0, "11 messages: imu.parquet\n")
    assert pq.read_table("imu.parquet").equals(rm.Recording("drive").to_arrow("imu", decode=True))
    several = ringmain("export", "drive", "all.parquet", "--decode")
    assert several.code == 2
    assert "one of camera/front, imu" in several.err
    assert ringmain("export", "drive", "x.mcap", "--decode").code == 2
    assert ringmain("export", "drive", "x.parquet", "typo", "--decode").code == 3


def test_info_on_a_recording(ringmain: Run, drive: Path) -> None:
    ended = ringmain("info", "drive")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0] == "drive: recording of robot"
    assert lines[1:4] == [
        "  duration  10 µs",
        "  start     2023-11-14 22:13:20.123456789 UTC",
        "  end       2023-11-14 22:13:20.123466799 UTC",
    ]
    assert lines[5] == "  messages  16, 2 lost"
    assert lines[7].split() == ["TOPIC", "TYPE", "CONTRACT", "MESSAGES", "HZ", "BYTES", "LOST"]
    assert lines[8].split() == ["camera/front", "bytes", "5", "999k", "500", "B", "2"]
    assert lines[9].split()[:5] == ["imu", "Imu", "bus", "11", "999k"]
    known = json.loads(ringmain("info", "drive", "--json").out)
    assert (known["start_ns"], known["messages"], known["segments"], known["unsealed"]) == (START_NS, 16, 1, 0)
    assert known["size_bytes"] == sum(file.stat().st_size for file in drive.glob("*.parquet"))
    assert [topic["messages"] for topic in known["topics"]] == [5, 11]


def test_info_prefers_a_topic_and_a_path_is_always_a_recording(ringmain: Run, drive: Path) -> None:
    with rm.Publisher("drive"):
        assert ringmain("info", "drive").out.startswith("drive: broadcast")
        assert ringmain("info", "./drive").out.startswith("./drive: recording of robot")
