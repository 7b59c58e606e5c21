"""A full disk: the recorder stops with a clear error, and all that was flushed stays readable.

On a tmpfs of one MiB, which is a real ENOSPC from a real file system; mounting needs root, as in CI. Without
it, RLIMIT_FSIZE in a child stands in: writing fails part of the way through just the same.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from ringmain.errors import RecordingError
from ringmain.recording import Recording, RecordingWriter, Trigger
from ringmain.recording._record.flight import Flight
from tests.recording.conftest import payload_of, ring_batch

ROOT = Path(__file__).parents[2]


def fill(path: Path, segment_bytes: int) -> tuple[int, RecordingError]:
    """Record until it fails; (messages flushed before, the error)."""
    writer = RecordingWriter(path, fsync="never", segment_bytes=segment_bytes, flush_interval_s=0)
    flushed = 0
    with pytest.raises(RecordingError) as caught:
        for i in range(10_000):
            writer.append("t", 1, ring_batch(i * 10, 10, size=2000))
            flushed = (i + 1) * 10
    with pytest.raises(RecordingError):
        writer.append("t", 1, ring_batch(0, 1))
    writer.close()
    return flushed, caught.value


@pytest.mark.parametrize("segment_bytes", [1 << 30, 200_000])
def test_a_full_disk_stops_the_recorder_and_loses_nothing_flushed(
    tmp_path: Path, small_disk: Path | None, segment_bytes: int
) -> None:
    if small_disk is None:
        return limited_child(tmp_path)
    flushed, error = fill(small_disk / "r", segment_bytes)
    assert error.errno == errno.ENOSPC
    assert "No space left on device" in str(error)
    assert "stays readable" in str(error)
    messages = list(Recording(small_disk / "r"))
    assert [m.seq for m in messages][:flushed] == list(range(flushed))
    assert all(m.data == payload_of(m.seq, 2000) for m in messages)
    assert Recording(small_disk / "r").verify().ok
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    with RecordingWriter(small_disk / "r") as writer:  # the disk has room again: go on, and seal what was left
        writer.append("t", 1, ring_batch(len(messages), 10, size=2000))
    assert [m.seq for m in Recording(small_disk / "r")] == list(range(len(messages) + 10))
    return None


def test_an_incident_whose_window_meets_a_full_disk(small_disk: Path | None) -> None:
    """The next recorder goes on with it: it has every row of its window that was recorded, and none is missing."""
    if small_disk is None:
        pytest.skip("a disk of one MiB is mounted, which takes root")
    path, step_ns = small_disk / "r", 1_000_000
    trigger = Trigger(kind="t: bad", before_s=0.1, after_s=0.4, cooldown_s=99)
    start_ns = 10**18

    def some(first: int) -> pa.RecordBatch:
        numbers = range(first, first + 10)
        rows = ring_batch(first, 10, size=2000)
        times = pa.array([start_ns + n * step_ns for n in numbers], pa.int64())
        kinds = pa.array(["bad" if n == 200 else "good" for n in numbers])
        return rows.set_column(1, rows.schema.field(1), times).set_column(3, rows.schema.field(3), kinds)

    def record(first: int, last: int) -> None:
        with RecordingWriter(path, fsync="never", flush_interval_s=0) as writer:
            flight = Flight(writer, [trigger], recorder="recorder", sync=False)
            for at in range(first, last, 10):
                flight.see("t", some(at), b"")
                writer.append("t", 1, some(at))
            flight.close()

    with pytest.raises(RecordingError, match="No space left on device"):
        record(0, 1000)
    recorded = len(Recording(path))
    (incident,) = Recording(path).incidents()
    assert 200 < recorded < 600, "the disk was full within the window"
    assert incident.is_open
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    record(recorded // 10 * 10, 1000)
    (incident,) = Recording(path).incidents()
    assert not incident.is_open
    whole = [(m.seq, m.data) for m in Recording(path).messages(since=incident.start_ns, until=incident.end_ns)]
    assert [(m.seq, m.data) for m in Recording(path, incident=incident.id)] == whole
    assert sorted({seq for seq, _ in whole}) == list(range(100, 600))


def limited_child(tmp_path: Path) -> None:
    program = """
import resource, signal, sys
from pathlib import Path
from tests.recording.test_disk_full import fill
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))
print(fill(Path(sys.argv[1]), 1 << 30)[0])
"""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "r")],
        check=True, timeout=60, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert [m.seq for m in Recording(tmp_path / "r")][: int(done.stdout)] == list(range(int(done.stdout)))


def test_a_short_write_leaves_only_a_torn_end(tmp_path: Path) -> None:
    limited_child(tmp_path)
    report = Recording(tmp_path / "r").verify()
    assert report.ok
    assert [damage.torn for damage in report.damage] == [True]
