"""The spec cannot lie: its tables are compared with the code, and a recording made long ago still reads the
same."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ringmain import _crash
from ringmain.recording import FORMAT_VERSION, SCHEMA, Incident, Position, Recording, RecordingWriter, consumers
from ringmain.recording._format import META, TABLE
from ringmain.recording._meta import Meta, Properties, read_meta
from ringmain.recording._segment.parquet_segment import ROW_GROUP_BYTES, ROW_GROUP_ROWS, SEAL_KEY, STATS_KEY
from ringmain.recording._segment.segment import LATCHED_KEY
from ringmain.recording._segment.segment_writer import HEAD_LINE
from ringmain.recording._segment.store import Store
from tests.recording.conftest import START_NS, payload_of, ring_batch
from tests.recording.golden import GOLDEN, PROPERTIES

SPEC = (Path(__file__).parents[2] / "docs/spec/recording.md").read_text()


def table(heading: str) -> list[list[str]]:
    """The rows of the first table after a heading, without backticks."""
    after = SPEC[SPEC.index(f"## {heading}\n") :]
    lines = re.search(r"(?:^\|.*\n)+", after, re.M)
    assert lines is not None
    cells = [[cell.strip().replace("`", "") for cell in line.strip("|\n").split("|")] for line in lines[0].splitlines()]
    return cells[2:]


def test_version() -> None:
    assert f"Format version **{FORMAT_VERSION}**" in SPEC
    assert GOLDEN.name == f"v{FORMAT_VERSION}"


def test_columns() -> None:
    assert [row[:2] for row in table("Columns")] == [[field.name, str(field.type)] for field in SCHEMA]
    spark = {
        "string": "string", "int64": "bigint", "int32": "int", "int16": "smallint",
        "timestamp[us, tz=UTC]": "timestamp", "binary": "binary",
    }  # fmt: skip
    assert [row[2] for row in table("Columns")] == [spark[str(field.type)] for field in SCHEMA]
    assert [row[2] for row in table("Columns")] == [column.spark for column in TABLE]
    assert not any(field.nullable for field in SCHEMA)


def test_meta() -> None:
    assert [row[0] for row in table("meta.json")] == list(Meta.__struct_fields__)


def test_incidents() -> None:
    assert [row[0] for row in table("Incidents")] == list(Incident.__struct_fields__)


def test_head_line() -> None:
    line = HEAD_LINE.format(
        head="0" * 8,
        id="0" * 8,
        segment=0,
        row=0,
        rows=0,
        length=0,
        data=0,
        front=0,
        back=0,
        min_ns=0,
        max_ns=0,
    )
    fields = [part.split("=") for part in line.split()[1:]]
    assert [[name, str(len(value))] for name, value in fields] == [row[:2] for row in table("The growing segment")]


def test_seal() -> None:
    assert [row[0] for row in table("The sealed segment")] == [SEAL_KEY, LATCHED_KEY, STATS_KEY]
    assert f"up to {ROW_GROUP_BYTES >> 20} MiB or {ROW_GROUP_ROWS} rows" in SPEC


def test_crashes() -> None:
    assert tuple(row[0] for row in table("Crashes")) == _crash.RECORDER


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_the_golden_recording_reads_as_it_always_did(tmp_path: Path, version: int) -> None:
    path = tmp_path / "golden"
    shutil.copytree(GOLDEN.parent / f"v{version}", path)
    recording = Recording(path, decode=lambda schema: lambda data: (schema, data))
    assert recording.meta is not None
    assert (recording.meta.recorder, recording.meta.format) == ("golden", version)
    found = [(m.position, m.topic, m.epoch, m.seq, m.time_ns, m.record_time_ns, m.lost, m.data) for m in recording]
    early, late = (START_NS + 10_000) // 1000 * 1000, (START_NS + 20_000) // 1000 * 1000
    expected = [(Position(0, n), "imu", 1, n, START_NS + n * 1001, early, 0, payload_of(n)) for n in range(5)]
    expected += [
        (Position(1, n - 7), "imu", 1, n, START_NS + n * 1001, late, 2 if n == 7 else 0, payload_of(n))
        for n in range(7, 10)
    ]
    expected += [
        (Position(1, 3 + n), "camera/front", 9, n, START_NS + n * 1001, late, 0, payload_of(n, 70)) for n in range(2)
    ]
    assert found == expected
    assert next(iter(recording)).value == (b"\x00golden", payload_of(0))
    assert recording.verify().ok
    assert recording.schemas()["imu", 1].properties == (PROPERTIES if version >= 3 else Properties())
    assert consumers(path) == {"spark": Position(0, 3)}
    assert [ref.sealed for ref in recording.segments()] == [True, False]
    assert recording.store == Store(path, id=recording.meta.id)
    with RecordingWriter(path) as writer:
        writer.append("imu", 1, ring_batch(10, 1))
    meta = read_meta(recording.store)
    assert meta is not None
    assert meta.format == version, "it is continued in its own format"
    assert len(recording) == len(expected) + 1


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION + 1))
def test_the_golden_recording_in_a_store(tmp_path: Path, version: int) -> None:
    """Its sealed segment, as a recorder of that version uploads it."""
    golden = GOLDEN.parent / f"v{version}"
    shutil.copy(golden / META, tmp_path)
    name = "000000000.parquet" if version == 1 else "000000000-0123abcd.parquet"
    shutil.copy(golden / "000000000.parquet", tmp_path / name)
    assert [m.data for m in Recording(tmp_path.as_uri())] == [payload_of(n) for n in range(5)]
