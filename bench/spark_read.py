"""How fast recordings come into Spark: `python -m bench.spark_read [--rows 1000000] [--quick]`.

Each line is the best of several runs, because other programs on the machine only ever make a run slower. Reading goes
to Spark's `noop` sink: every row is produced and none is kept. What is compared: the same rows as one Parquet file
through spark.read.parquet, which is as fast as Spark reads anything.
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
from ringmain.recording.format import RING_SCHEMA

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


def stream(spark: Any, path: Path, check: Path, **options: Any) -> None:
    """All of a recording through a streaming query, from the source to nowhere."""
    reader = spark.readStream.format("ringmain").option("consumer", "none")
    for key, value in options.items():
        reader = reader.option(key, value)
    writer = reader.load(str(path)).writeStream.format("noop").option("checkpointLocation", str(check))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


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
        columns = [[n], [sent], ["b"], [""], [0], [b"x" * 100]]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--messages", type=int, default=40, help="for the latency line")
    parser.add_argument("--scale", action="store_true", help="also 10 x the rows, for the linearity line")
    args = parser.parse_args()

    import ringmain.spark

    folder = Path(tempfile.mkdtemp(prefix="ringmain-bench-"))
    spark = ringmain.spark.session(master="local[2]")
    try:
        sealed = make(folder / "sealed", args.rows, 100, seal=True)
        growing = make(folder / "growing", args.rows, 100, seal=False)
        assert len(Recording(sealed)) == len(Recording(growing)) == args.rows
        ringmain.spark.read(spark, str(sealed)).coalesce(4).write.parquet(str(folder / "plain"))
        print(f"{args.rows:,} messages of 100 B, local[2], best of {args.runs}")

        def line(what: str, seconds: float, rows: int = args.rows) -> None:
            print(f"  {what:<58} {rows / seconds / 1e6:7.2f} M messages/s")

        line(
            "spark.read.parquet of the segments",
            best(args.runs, lambda: noop(spark.read.parquet(f"{sealed}/*.parquet"))),
        )
        line("ringmain.spark.read, sealed", best(args.runs, lambda: noop(ringmain.spark.read(spark, str(sealed)))))
        line("ringmain.spark.read, growing", best(args.runs, lambda: noop(ringmain.spark.read(spark, str(growing)))))
        for what, path in (("sealed", sealed), ("growing", growing)):
            load = spark.read.format("ringmain").load(str(path))
            line(f'format("ringmain"), {what}', best(args.runs, lambda load=load: noop(load)))
        number = iter(range(1000))
        for what, path in (("sealed", sealed), ("growing", growing)):
            took = best(args.runs, lambda path=path: stream(spark, path, folder / f"check{next(number)}"))
            line(f"streaming to noop, {what}", took)
        print(f"  published to seen in foreachBatch, p50 {latency(spark, folder, args.messages):34.0f} ms")
        if args.scale:
            larger = make(folder / "larger", 10 * args.rows, 100, seal=True)
            one = best(args.runs, lambda: noop(ringmain.spark.read(spark, str(sealed))))
            ten = best(args.runs, lambda: noop(ringmain.spark.read(spark, str(larger))))
            print(f"  10 x the rows take {ten / one:.1f} x the time")
    finally:
        spark.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
