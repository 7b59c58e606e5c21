"""What the tests of recordings share: batches as a ring gives them, and recordings made of them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ringmain.recording import RecordingWriter
from ringmain.recording._format import RING_SCHEMA

START_NS = 1_700_000_000_123_456_789


def ring_batch(first: int, rows: int, *, size: int = 20, lost: int = 0, step_ns: int = 1_001) -> pa.RecordBatch:
    """Messages `first` and on, each saying which it is; `lost` were missed before the first of them."""
    numbers = range(first, first + rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.uint64()),
            pa.array([START_NS + n * step_ns for n in numbers], pa.int64()),
            pa.array([f"sender{n % 3}" for n in numbers], pa.string()),
            pa.array(["even" if n % 2 == 0 else "odd" for n in numbers], pa.string()),
            pa.array([lost] + [0] * (rows - 1), pa.uint64()) if rows else pa.array([], pa.uint64()),
            pa.array([b""] * rows, pa.binary()),
            pa.array([payload_of(n, size) for n in numbers], pa.binary()),
        ],
        schema=RING_SCHEMA,
    )


def payload_of(number: int, size: int = 20) -> bytes:
    return (f"message {number} ".encode() * (size // 8 + 1))[:size]


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Records `segments` segments of two batches each, topics a and b, and returns the directory."""

    def build(name: str = "rec", segments: int = 3, rows: int = 50, *, leave_unsealed: bool = False) -> Path:
        path = tmp_path / name
        writer = RecordingWriter(path, recorder="test", fsync="never", flush_interval_s=1000)
        for i in range(segments):
            writer.append("a", 1, ring_batch(2 * i * rows, rows), record_time_ns=START_NS + 5_000)
            writer.flush()
            writer.append("b", 1, ring_batch((2 * i + 1) * rows, rows), record_time_ns=START_NS + 5_000)
            writer.flush()
            if i < segments - 1 or not leave_unsealed:
                writer.rotate()
        writer.abandon()
        return path

    return build


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path | None]:
    """A mounted tmpfs of 1 MiB, or None where mounting is not allowed."""
    where = tmp_path / "disk"
    where.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "ringmain", str(where)], capture_output=True)
    if done.returncode:
        yield None
        return
    yield where
    subprocess.run(["umount", "-l", str(where)], check=True)
