"""The writer: what goes in comes out, in order and exactly, whatever is gathered, rotated, continued or
refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ringmain.errors import RecorderBusy, RecordingError
from ringmain.recording import Position, Recording, RecordingWriter, list_segments, register
from ringmain.recording._format import RING_SCHEMA, STORED, sealed_name, stream_name
from ringmain.recording._record.writer import Fsync
from ringmain.recording._segment.store import Store, read_retired
from tests.recording.conftest import START_NS, payload_of, ring_batch


def test_every_field_survives_sealing_to_the_nanosecond(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", recorder="me") as writer:
        writer.declare("imu", epoch=7, contract="bus", schema=b"\x00schema")
        writer.append("imu", 7, ring_batch(10, 5, lost=3), record_time_ns=START_NS + 9_999)
    recording = Recording(tmp_path / "r", decode=lambda schema: lambda data: (schema, data))
    assert (tmp_path / "r" / sealed_name(0)).exists()
    messages = list(recording)
    assert [m.seq for m in messages] == [10, 11, 12, 13, 14]
    first = messages[0]
    assert (first.topic, first.epoch, first.sender, first.kind, first.lost) == (
        "imu",
        7,
        "sender1",
        "even",
        3,
    )
    assert [m.time_ns for m in messages] == [START_NS + n * 1_001 for n in range(10, 15)]
    assert first.record_time_ns == (START_NS + 9_999) // 1000 * 1000
    assert first.data == payload_of(10)
    assert first.value == (b"\x00schema", payload_of(10))
    assert first.position == Position(0, 0)
    assert recording.schemas()["imu", 7].contract == "bus"


def test_batches_come_in_any_way_that_arrow_has(tmp_path: Path) -> None:
    class Capsule:
        def __arrow_c_array__(self, requested_schema: object = None) -> object:
            return ring_batch(0, 4).to_struct_array().__arrow_c_array__(requested_schema)

    with RecordingWriter(tmp_path / "r") as writer:
        assert writer.append("t", 1, Capsule()) == 4
        assert writer.append("t", 1, ring_batch(4, 20).slice(3, 5)) == 5
        assert writer.append("t", 1, ring_batch(0, 0)) == 0
        with pytest.raises(ValueError, match="must have the columns seq, time_ns"):
            writer.append("t", 1, pa.record_batch({"seq": [1]}))
    assert [m.data for m in Recording(tmp_path / "r")] == [payload_of(n) for n in (0, 1, 2, 3, 7, 8, 9, 10, 11)]


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_slices_of_any_payload_size_read_back_before_sealing(tmp_path: Path, size: int) -> None:
    writer = RecordingWriter(tmp_path / "r", flush_interval_s=1000)
    for first in range(5):
        writer.append("t", 1, ring_batch(0, 9, size=size).slice(first, 3))
        writer.flush()
    rows = Recording(tmp_path / "r").to_arrow()
    assert rows.column("payload").to_pylist() == [payload_of(n, size) for f in range(5) for n in range(f, f + 3)]
    assert Recording(tmp_path / "r").to_arrow(columns=["seq"]).num_rows == 15
    writer.close()


def test_small_batches_of_many_topics_are_gathered_in_order(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", flush_interval_s=1000) as writer:
        for n in range(300):
            writer.append(f"t{n % 7}", 1, ring_batch(n, 1))
        writer.flush()
        (ref,) = list_segments(Store(tmp_path / "r"))
        assert len(ref.open().runs) == 1, "one flush of little messages should make one IPC batch"
    assert [m.seq for m in Recording(tmp_path / "r")] == list(range(300))


def test_nothing_is_visible_before_a_flush_and_all_of_it_after(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r", flush_interval_s=1000)
    writer.append("t", 1, ring_batch(0, 10))
    assert len(Recording(tmp_path / "r")) == 0
    writer.flush()
    assert len(Recording(tmp_path / "r")) == 10
    assert writer.position == Position(0, 10)
    writer.close()


def test_flush_interval_zero_flushes_each_append(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", flush_interval_s=0, fsync="interval") as writer:
        writer.append("t", 1, ring_batch(0, 1))
        assert len(Recording(tmp_path / "r")) == 1


@pytest.mark.parametrize("fsync", ["never", "seal", "interval"])
def test_what_is_synced_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: Fsync) -> None:
    """Seen in the system calls: `never` none, `seal` sealed files and the directory's names before the stream goes, and
    `interval` also the growing stream at every flush."""
    synced: list[str] = []

    def note(really: Callable[[int], None], fd: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        really(fd)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, partial(note, getattr(os, name)))
    writer = RecordingWriter(tmp_path / "r", flush_interval_s=1000, fsync=fsync)
    synced.clear()
    for first in (0, 10):
        writer.append("t", 1, ring_batch(first, 10))
        writer.flush()
    assert synced.count(stream_name(0)) == (2 if fsync == "interval" else 0)
    assert ("r" in synced) == (fsync == "interval"), "the name of a new stream"
    synced.clear()
    writer.close()
    sealed = [sealed_name(0) + ".tmp", "r"]  # the file, then the directory with its new name
    assert [name for name in synced if name in sealed] == ([] if fsync == "never" else sealed)


def test_rotates_by_size_and_seals_behind_itself(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", segment_bytes=20_000, flush_interval_s=0) as writer:
        for i in range(40):
            writer.append("t", 1, ring_batch(i * 20, 20, size=100))
    names = sorted(p.name for p in (tmp_path / "r").iterdir() if p.name[0] == "0")
    assert len(names) > 3
    assert all(name.endswith(".parquet") for name in names)
    assert [m.seq for m in Recording(tmp_path / "r")] == list(range(800))


def test_rotates_by_age(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", segment_age_s=1e-9, flush_interval_s=0) as writer:
        for i in range(3):
            writer.append("t", 1, ring_batch(i, 1))
    assert len(list_segments(Store(tmp_path / "r"))) == 3


def test_a_second_writer_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with (
        RecordingWriter(tmp_path / "r"),
        pytest.raises(RecorderBusy, match=f"recorded to by pid {os.getpid()};"),
    ):
        RecordingWriter(tmp_path / "r")
    RecordingWriter(tmp_path / "r").close()


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    program = """
import os, sys
from ringmain.recording import RecordingWriter
writer = RecordingWriter(sys.argv[1])
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.close(write)
    os.read(read, 1)  # lives on after its parent's writer is closed
    os._exit(0)
writer.close()
RecordingWriter(sys.argv[1]).close()
os.close(write)
os.waitpid(child, 0)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "r")], check=True, timeout=60)


def test_a_new_writer_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    for life in range(3):
        with RecordingWriter(tmp_path / "r") as writer:
            assert writer.position == Position(life, 0)
            writer.append("t", life, ring_batch(life * 10, 10))
    recording = Recording(tmp_path / "r")
    assert [m.seq for m in recording] == list(range(30))
    assert recording.meta is not None
    assert [s.first_segment for s in recording.meta.sessions] == [0, 1, 2]
    assert len({m.data for m in recording}) == 30


def test_continuing_under_another_name_is_refused(tmp_path: Path) -> None:
    RecordingWriter(tmp_path / "r", recorder="one").close()
    with pytest.raises(ValueError, match="was begun with recorder='one'"):
        RecordingWriter(tmp_path / "r", recorder="two")
    RecordingWriter(tmp_path / "r", recorder="one").close()


def test_closed_twice_is_fine_and_used_after_is_not(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r")
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.append("t", 1, ring_batch(0, 1))


def test_the_directory_going_away_stops_the_recorder(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r", flush_interval_s=1000)
    writer.append("t", 1, ring_batch(0, 1))
    writer.flush()
    os.rename(tmp_path / "r", tmp_path / "moved")
    writer.append("t", 1, ring_batch(1, 1))
    with pytest.raises(RecordingError, match="Recording has stopped"):
        writer.flush()
    with pytest.raises(RecordingError):
        writer.append("t", 1, ring_batch(2, 1))
    writer.close()
    assert len(Recording(tmp_path / "moved")) >= 1


@pytest.mark.not_as_root
def test_no_permission_is_said_plainly(tmp_path: Path) -> None:
    program = """
import os, sys
from ringmain.errors import RecordingError
from ringmain.recording import RecordingWriter
if os.geteuid() == 0: os.setuid(65534)
try:
    RecordingWriter(sys.argv[1])
except RecordingError as error:
    print(error)
"""
    (tmp_path / "r").mkdir(mode=0o555)
    for parent in (tmp_path, *tmp_path.parents[:3]):
        os.chmod(parent, 0o755)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "r")],
        check=True,
        timeout=60,
        capture_output=True,
        text=True,
    )
    assert "could not open the recording" in done.stdout
    assert "Permission denied" in done.stdout


def test_sealed_segments_are_plain_parquet_with_statistics(make: Callable[..., Path]) -> None:
    path = make() / sealed_name(0)
    assert pq.read_table(path).schema.equals(STORED)
    group = pq.read_metadata(path).row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert list(columns) == STORED.names
    assert columns["topic"].statistics.min == "a"
    assert columns["topic"].statistics.max == "b"
    assert columns["publish_time"].statistics.has_min_max
    assert not columns["payload"].is_stats_set
    assert {c.compression for c in columns.values()} == {"ZSTD"}
    assert "PLAIN_DICTIONARY" in str(columns["topic"].encodings) or "RLE_DICTIONARY" in str(columns["topic"].encodings)


def test_growing_segments_are_plain_arrow_streams(make: Callable[..., Path]) -> None:
    path = make(leave_unsealed=True, segments=1) / stream_name(0)
    with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
        assert stream.read_all().column("seq").to_pylist() == list(range(100))


def test_retention_keeps_what_a_consumer_has_not_passed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with RecordingWriter(path) as writer:
        register(path, "spark", Position(1, 0))
        for i in range(4):
            writer.append("t", 1, ring_batch(i * 10, 10))
            writer.rotate()
    with RecordingWriter(path, keep_bytes=1) as writer:
        writer.append("t", 1, ring_batch(40, 10))
    assert [s.number for s in list_segments(Store(path))] == [1, 2, 3, 4]
    assert read_retired(Store(path)).rows == [10]
    register(path, "spark", Position(3, 5))
    with RecordingWriter(path, keep_bytes=1) as writer:
        writer.append("t", 1, ring_batch(50, 10))
    assert [s.number for s in list_segments(Store(path))] == [3, 4, 5]
    with RecordingWriter(path, keep_bytes=1, keep_force=True) as writer:
        writer.append("t", 1, ring_batch(60, 10))
        assert writer.position.segment == 6
    assert [s.number for s in list_segments(Store(path))] == [6]
    with pytest.raises(FileNotFoundError, match="35 rows from position 000000002:5 on have been deleted"):
        Recording(path).to_arrow(start=Position(2, 5))


def test_retention_by_age(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", keep_age_s=3600) as writer:
        for i in range(3):  # published in 2023
            writer.append("t", 1, ring_batch(i * 10, 10))
            writer.rotate()
    assert [s.number for s in list_segments(Store(tmp_path / "r"))] == [2]


def test_a_consumer_file_that_cannot_be_believed_holds_everything(make: Callable[..., Path]) -> None:
    path = make()
    register(path, "spark", Position(9, 0))
    file = path / "consumers" / "spark.json"
    file.write_bytes(file.read_bytes().replace(b'"segment": 9', b'"segment": 8'))
    with RecordingWriter(path, keep_bytes=1) as writer:
        writer.append("t", 1, ring_batch(0, 1))
    assert len(list_segments(Store(path))) == 4


def test_sealing_to_another_file_system(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    uri = lake.as_uri()
    with RecordingWriter(tmp_path / "r", recorder="far", sealed_uri=uri) as writer:
        for i in range(3):
            writer.append("t", 1, ring_batch(i * 10, 10))
            writer.rotate()
    own = Store.of(tmp_path / "r").id
    assert sorted(p.name for p in lake.iterdir()) == [*(sealed_name(n, own) for n in range(3)), "meta.json"]
    assert not list((tmp_path / "r").glob("0*"))
    for where in (tmp_path / "r", uri):
        recording = Recording(where)
        assert [m.seq for m in recording] == list(range(30))
        assert recording.verify().ok
        assert recording.meta is not None
        assert recording.meta.recorder == "far"
    with RecordingWriter(tmp_path / "r", keep_bytes=1) as writer:
        assert writer.position == Position(3, 0)
        writer.append("t", 1, ring_batch(30, 10))
    assert [s.number for s in list_segments(Store.of(tmp_path / "r"))] == [3]


def test_a_batch_beyond_the_limit_of_a_column_is_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("writer", "gather"):
        monkeypatch.setattr(f"ringmain.recording._record.{module}.MAX_PAYLOAD_BYTES", 10_000)
    with RecordingWriter(tmp_path / "r") as writer:
        assert writer.append("t", 1, ring_batch(0, 100, size=1000)) == 100
    assert [m.seq for m in Recording(tmp_path / "r")] == list(range(100))


def test_importing_ringmain_does_not_import_pyarrow() -> None:
    program = "import ringmain, sys; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_the_ring_schema_is_what_the_tests_use() -> None:
    assert ring_batch(0, 1).schema.equals(RING_SCHEMA)
