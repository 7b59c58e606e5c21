"""Damage of every kind, at random: no crash, no wrong row, and every missing row accounted for.

Hypothesis cuts and flips bytes in copies of a recording (two segments, sealed or growing). Whatever is done
to it, the rows that come out are rows that went in, at their own positions; and if any is missing, verify()
is not ok, unless the end of a growing stream was cut off, which nobody can tell from a recorder that died
earlier.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringmain.errors import RecordingCorrupt, RingmainError
from ringmain.recording import Position, Recording, RecordingWriter
from ringmain.recording._format import sealed_name, stream_name
from ringmain.recording._segment.segment_reader import StreamSegment
from tests.recording.conftest import START_NS, ring_batch

Row = tuple[int, int, int, str, bytes]


def record(path: Path, *, sealed: bool) -> None:
    writer = RecordingWriter(path, recorder="test", fsync="never", flush_interval_s=1000)
    for i in range(6):
        writer.append("a/b", 1, ring_batch(i * 4, 4, size=30), record_time_ns=START_NS)
        writer.flush()
        if i == 2:
            writer.rotate()
    if sealed:
        writer.close()
    else:
        writer.abandon()


def rows_of(recording: Recording) -> dict[Position, Row]:
    return {m.position: (m.seq, m.time_ns, m.lost, m.kind, m.data) for m in recording}


@pytest.fixture(scope="module")
def pristine() -> Iterator[dict[bool, Path]]:
    with tempfile.TemporaryDirectory() as name:
        for sealed in (True, False):
            record(Path(name) / str(sealed), sealed=sealed)
        yield {sealed: Path(name) / str(sealed) for sealed in (True, False)}


def damage_file(path: Path, kind: str, where: float, bits: list[tuple[float, int]]) -> int:
    """Damage a file; returns at which byte it was cut, or its size."""
    data = bytearray(path.read_bytes())
    cut = len(data)
    if kind == "cut":
        cut = int(where * len(data))
        del data[cut:]
    else:
        for at, mask in bits:
            data[min(int(at * len(data)), len(data) - 1)] ^= mask
    path.write_bytes(data)
    return cut


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sealed=st.booleans(),
    target=st.sampled_from([0, 1, "meta.json"]),
    kind=st.sampled_from(["cut", "flip"]),
    where=st.floats(0, 1),
    bits=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_never_a_crash_never_a_wrong_row_and_nothing_missing_in_silence(
    pristine: dict[bool, Path],
    sealed: bool,
    target: int | str,
    kind: str,
    where: float,
    bits: list[tuple[float, int]],
) -> None:
    before = rows_of(Recording(pristine[sealed]))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "r"
        shutil.copytree(pristine[sealed], path)
        names = {p.name for p in path.iterdir()}
        file = target if isinstance(target, str) else sealed_name(target)
        if file not in names:
            assert isinstance(target, int)
            file = stream_name(target)
        original = (path / file).read_bytes()
        damage_file(path / file, kind, where, bits)
        changed = (path / file).read_bytes() != original

        recording = Recording(path, skip_damage=True)
        after = rows_of(recording)
        assert after.items() <= before.items(), "a row that never was"
        report = recording.verify()
        cut_stream = kind == "cut" and file.endswith(".arrows")
        if changed and not cut_stream:
            assert report.damage or report.files, "damage went unseen"
        if len(after) < len(before) and not cut_stream:
            assert not report.ok
            assert report.rows_lost in (None, len(before) - len(after))
        if not changed:
            assert report.ok

        repaired = recording.repair()
        assert rows_of(Recording(path)) == after, "repair must keep every readable row, at its position"
        assert Recording(path).verify().ok, str(repaired)
        with RecordingWriter(path, fsync="never") as writer:
            writer.append("a/b", 2, ring_batch(0, 1))
        assert len(Recording(path)) == len(after) + 1


@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=3000))
@pytest.mark.parametrize("name", [stream_name(0), sealed_name(0)])
def test_any_bytes_at_all_are_no_crash(data: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as where:
        (Path(where) / name).write_bytes(data)
        recording = Recording(where, skip_damage=True)
        assert list(recording) == []
        recording.verify()


def test_reading_damage_without_saying_so_raises(pristine: dict[bool, Path], tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(pristine[True], path)
    data = bytearray((path / sealed_name(0)).read_bytes())
    data[100] ^= 1
    (path / sealed_name(0)).write_bytes(data)
    with pytest.raises(RecordingCorrupt, match="does not pass its checksum"):
        list(Recording(path))


def test_damage_in_the_middle_of_a_stream_costs_one_batch_and_is_counted(
    pristine: dict[bool, Path], tmp_path: Path
) -> None:
    path = tmp_path / "r"
    shutil.copytree(pristine[False], path)
    file = path / stream_name(1)
    segment = StreamSegment(file, 1)
    for spot in (segment.runs[1].offset + 60, segment.runs[1].end - 8):  # its head, then its payloads
        data = bytearray(file.read_bytes())
        data[spot] ^= 0x10
        file.write_bytes(data)
        recording = Recording(path, skip_damage=True)
        assert [m.position.row for m in recording if m.position.segment == 1] == [0, 1, 2, 3, 8, 9, 10, 11]
        report = recording.verify()
        assert report.rows_lost == 4
        assert "rows 4 to 8" in str(report)
        data[spot] ^= 0x10
        file.write_bytes(data)
    assert Recording(path).verify().ok


def test_a_recording_inside_a_payload_is_not_mistaken_for_rows(tmp_path: Path) -> None:
    """A message that carries the very bytes of a segment, and damage before it: the search for the next good
    batch must not find the rows inside the payload."""
    inner = RecordingWriter(tmp_path / "inner", flush_interval_s=1000)
    for i in range(50):
        inner.append("spoof", 1, ring_batch(i * 10, 10))
        inner.flush()
    bytes_of_it = (tmp_path / "inner" / stream_name(0)).read_bytes()
    inner.abandon()
    outer = RecordingWriter(tmp_path / "outer", flush_interval_s=1000)
    batch = ring_batch(0, 1)
    loaded = batch.set_column(6, "data", pa.array([bytes_of_it], pa.binary()))
    for payload in (batch, loaded, batch):
        outer.append("real", 1, payload)
        outer.flush()
    outer.abandon()
    file = tmp_path / "outer" / stream_name(0)
    segment = StreamSegment(file, 0)
    data = bytearray(file.read_bytes())
    data[segment.runs[1].offset + 40] ^= 1
    file.write_bytes(data)
    recording = Recording(tmp_path / "outer", skip_damage=True)
    assert [(m.topic, m.position.row) for m in recording] == [("real", 0), ("real", 2)]
    assert recording.verify().rows_lost == 1


def test_a_damaged_stream_is_left_for_repair_by_the_next_recorder(pristine: dict[bool, Path], tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(pristine[False], path)
    file = path / stream_name(1)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with RecordingWriter(path, fsync="never") as writer:
        writer.append("a/b", 2, ring_batch(0, 1))
    assert file.exists(), "sealing would have hidden the damage"
    assert not Recording(path).verify().ok
    report = Recording(path).repair()
    assert report.rows_lost == 4
    assert (path / "damaged" / stream_name(1)).exists()
    assert Recording(path).verify().ok


def test_repair_refuses_while_a_recorder_lives(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r"), pytest.raises(RingmainError, match="is being recorded to"):
        Recording(tmp_path / "r").repair()


def test_a_renamed_segment_is_not_believed(pristine: dict[bool, Path], tmp_path: Path) -> None:
    path = tmp_path / "r"
    shutil.copytree(pristine[True], path)
    (path / sealed_name(1)).rename(path / sealed_name(5))
    with pytest.raises(RecordingCorrupt, match="was the file renamed"):
        list(Recording(path))
