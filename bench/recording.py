"""How fast a recording is written, against what the same bytes cost without us.

100 B messages: the writer, from ring batches to flushed segments, against pyarrow writing the same rows
(already in memory, in the recording's columns) to an IPC stream. 1 MB messages: against plain file writes of
the same bytes. Both sides write to the same directory; rounds alternate, and the medians are compared.
Sealing is kept out of the clock by segments that are larger than the run; it is timed by itself.

    python -m bench.recording [DIRECTORY]
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from ringmain.recording._format import RING_SCHEMA, STORED
from ringmain.recording._record.row_builder import RowBuilder
from ringmain.recording._record.writer import RecordingWriter

ROUNDS = 7


def ring_batch(rows: int, size: int, first: int, step_ns: int = 1000) -> pa.RecordBatch:
    """What recv_batch gives: `rows` messages of `size` random bytes."""
    now = time.time_ns()
    data = os.urandom(size * rows)
    offsets = pa.py_buffer(b"".join((i * size).to_bytes(4, "little") for i in range(rows + 1)))
    payload = pa.Array.from_buffers(pa.binary(), rows, [None, offsets, pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(range(first, first + rows), pa.uint64()),
            pa.array(range(now, now + rows * step_ns, step_ns), pa.int64()),
            pa.repeat("camera", rows),
            pa.repeat("frame", rows),
            pa.repeat(pa.scalar(0, pa.uint64()), rows),
            pa.repeat(pa.scalar(b""), rows),
            payload,
        ],
        schema=RING_SCHEMA,
    )


def time_recording(directory: Path, batches: list[pa.RecordBatch]) -> float:
    writer = RecordingWriter(directory / "ours", fsync="never", segment_bytes=1 << 40, recorder="bench")
    started = time.perf_counter()
    for batch in batches:
        writer.append("imu", 1, batch)
    writer.flush()
    took = time.perf_counter() - started
    writer.abandon()
    shutil.rmtree(directory / "ours")
    return took


def time_pyarrow(directory: Path, batches: list[pa.RecordBatch]) -> float:
    path = directory / "pyarrow.arrows"
    started = time.perf_counter()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, STORED) as stream:
        for batch in batches:
            stream.write_batch(batch)
    took = time.perf_counter() - started
    path.unlink()
    return took


def time_raw(directory: Path, pieces: list[memoryview]) -> float:
    path = directory / "raw.bin"
    started = time.perf_counter()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for piece in pieces:
        os.write(fd, piece)
    os.close(fd)
    took = time.perf_counter() - started
    path.unlink()
    return took


def compare(directory: Path, rows: int, size: int, count: int) -> None:
    batches = [ring_batch(rows, size, i * rows) for i in range(count)]
    builder = RowBuilder("bench")
    if size < 10_000:
        other_name = "pyarrow IPC"
        ready = [builder.build("imu", 1, b, [(rows, time.time_ns())]).batch for b in batches]

        def other() -> float:
            return time_pyarrow(directory, ready)
    else:
        other_name = "file writes"
        pieces = [
            memoryview(b.column("data").buffers()[2])[i * size : (i + 1) * size] for b in batches for i in range(rows)
        ]

        def other() -> float:
            return time_raw(directory, pieces)

    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(time_recording(directory, batches))
        theirs.append(other())
    messages = rows * count
    mine, base = statistics.median(ours), statistics.median(theirs)
    print(f"{size:>8} B x {rows:>5} a batch", end=" | ")
    for name, took in (("recording", mine), (other_name, base)):
        print(f"{name} {messages / took:>11,.0f} msg/s {messages * size / took / 1e6:>6,.0f} MB/s", end=" | ")
    print(f"{base / mine:.0%}")


def main() -> None:
    parent = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(dir=parent) as name:
        directory = Path(name)
        cases = ((16384, 100, 60), (4096, 100, 200), (1024, 100, 400), (64, 100, 400))
        for rows, size, count in (*cases, (16, 1 << 20, 16), (4, 1 << 20, 64), (1, 1 << 20, 200)):
            compare(directory, rows, size, count)


if __name__ == "__main__":
    main()
