"""How fast Spark reads recordings: `python -m bench.spark_read [batch] [stream] [latency] [scale]`.

Each line is the best of several runs, because other programs on the machine only ever make a run slower. Reading goes
to Spark's `noop` sink: every row is produced and none is kept. What is compared: the same rows through
spark.read.parquet, which is as fast as Spark reads anything. Streaming is measured over the micro-batches after the
first, that is, without the seconds in which a query starts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ringmain.recording import Recording, RecordingWriter
from ringmain.recording._format import RING_SCHEMA

CHUNK = 8192


def make(path: Path, rows: int, size: int, *, seal: bool) -> Path:
    """A recording of `rows` messages of `size` bytes that do not compress to nothing."""
    writer = RecordingWriter(path, fsync="never", flush_interval_s=1000)
    noise = os.urandom(CHUNK * size if size <= 4096 else size * 8)
    chunk = CHUNK if size <= 4096 else 8
    data = [noise[i * size : (i + 1) * size] for i in range(chunk)]
    for first in range(0, rows, chunk):
        count = min(chunk, rows - first)
        now = time.time_ns()
        columns = [
            pa.array(range(first, first + count), pa.uint64()),
            pa.array([now + n for n in range(count)], pa.int64()),
            pa.array(["bench"] * count),
            pa.array([""] * count),
            pa.array([0] * count, pa.uint64()),
            pa.array([b""] * count, pa.binary()),
            pa.array(data[:count], pa.binary()),
        ]
        writer.append("bench", 1, pa.RecordBatch.from_arrays(columns, schema=RING_SCHEMA), record_time_ns=now)
    if seal:
        writer.close()
    else:
        writer.flush()
        while writer.segments_waiting:
            time.sleep(0.01)
        writer.abandon()
    return path


def best(runs: int, work: Callable[[], Any]) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def noop(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def stream(spark: Any, path: Path, check: Path, rows_per_batch: int) -> float:
    """Messages a second of a streaming query from the source to nowhere, once it runs."""
    reader = spark.readStream.format("ringmain").option("consumer", "none").option("maxRowsPerTrigger", rows_per_batch)
    writer = reader.load(str(path)).writeStream.format("noop").option("checkpointLocation", str(check))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    done = [p for p in query.recentProgress if p["numInputRows"]][1:]
    rate: float = sum(p["numInputRows"] for p in done) / (sum(p["durationMs"]["triggerExecution"] for p in done) / 1000)
    return rate


def latency(spark: Any, folder: Path, messages: int) -> float:
    """Median ms from publish to being seen in foreachBatch, at trigger 0, one message at a time."""
    writer = RecordingWriter(folder / "latency", fsync="never", flush_interval_s=0)
    seen: dict[int, int] = {}

    def keep(frame: Any, batch: int) -> None:
        rows = frame.select("seq").collect()
        now = time.time_ns()
        for row in rows:
            seen.setdefault(row.seq, now)

    loaded = spark.readStream.format("ringmain").option("consumer", "none").load(str(folder / "latency"))
    query = loaded.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "check-latency")).start()
    waits = []
    for n in range(messages):
        sent = time.time_ns()
        columns = [[n], [sent], ["b"], [""], [0], [b""], [b"x" * 100]]
        arrays = [pa.array(c, f.type) for c, f in zip(columns, RING_SCHEMA, strict=True)]
        writer.append("bench", 1, pa.RecordBatch.from_arrays(arrays, schema=RING_SCHEMA))
        writer.flush()
        while n not in seen:
            if query.exception() is not None:
                raise RuntimeError(query.exception())
            time.sleep(0.002)
        waits.append((seen[n] - sent) / 1e6)
    query.stop()
    writer.close()
    return statistics.median(waits[len(waits) // 4 :])  # the first batches pay for warming up


def resident_mb(spark: Any) -> float:
    """What the JVM holds on its heap after a collection: in local mode that is the driver."""
    runtime = spark._jvm.java.lang.Runtime.getRuntime()
    runtime.gc()
    return float(runtime.totalMemory() - runtime.freeMemory()) / 1e6


def line(what: str, rate: float) -> None:
    print(f"  {what:<58} {rate / 1e6:7.2f} M messages/s", flush=True)


def batch(spark: Any, folder: Path, args: argparse.Namespace) -> None:
    from ringmain.spark import read

    sealed = make(folder / "sealed", args.rows, 100, seal=True)
    growing = make(folder / "growing", args.rows, 100, seal=False)
    assert len(Recording(sealed)) == len(Recording(growing)) == args.rows
    # What shares a path through the JVM stands together: the first of its kind waits for the compiler.
    for what, load in {
        "spark.read.parquet of the segments": lambda: spark.read.parquet(f"{sealed}/*.parquet"),
        "ringmain.spark.read, sealed": lambda: read(spark, str(sealed)),
        'format("ringmain"), sealed': lambda: spark.read.format("ringmain").load(str(sealed)),
        'format("ringmain"), growing': lambda: spark.read.format("ringmain").load(str(growing)),
        "ringmain.spark.read, growing": lambda: read(spark, str(growing)),
    }.items():
        frame = load()
        line(what, args.rows / best(args.runs, lambda frame=frame: noop(frame)))


def streams(spark: Any, folder: Path, args: argparse.Namespace) -> None:
    for what, seal in (("sealed", True), ("growing", False)):
        path = make(folder / f"stream-{what}", 4 * args.rows, 100, seal=seal)
        checks = (folder / f"check-{what}-{n}" for n in range(args.runs))
        line(f"streaming to noop, {what}", max(stream(spark, path, check, args.rows) for check in checks))


def scale(spark: Any, folder: Path, args: argparse.Namespace) -> None:
    """The same query on ten times the rows."""
    from ringmain.spark import read

    times, heaps = [], []
    for factor in (1, 10):
        path = make(folder / f"times{factor}", factor * args.rows, 100, seal=True)
        times.append(best(args.runs, lambda path=path: noop(read(spark, str(path)))))
        heaps.append(resident_mb(spark))
    print(
        f"  {args.rows:,} rows {times[0]:.2f} s, 10 x as many {times[1]:.2f} s: {times[1] / times[0]:.1f} x the time; "
        f"driver's heap {heaps[0]:.0f} and {heaps[1]:.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["batch", "stream", "latency"], metavar="PART")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--messages", type=int, default=40, help="for the latency line")
    args = parser.parse_args()

    import ringmain.spark

    folder = Path(tempfile.mkdtemp(prefix="ringmain-bench-"))
    spark = ringmain.spark.session(master="local[2]")
    print(f"{args.rows:,} messages of 100 B, local[2], best of {args.runs}")
    try:
        for part in args.parts:
            if part == "batch":
                batch(spark, folder, args)
            elif part == "stream":
                streams(spark, folder, args)
            elif part == "latency":
                print(f"  published to seen in foreachBatch, p50 {latency(spark, folder, args.messages):34.0f} ms")
            elif part == "scale":
                scale(spark, folder, args)
            else:
                parser.error(f"there is no part {part!r}: batch, stream, latency, scale")
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
