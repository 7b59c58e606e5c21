"""How long the pipeline takes beside a job that one would write by hand: `python -m bench.pipeline [--messages N]`.

Both make silver (one decoded table a topic) and gold (health of each topic by windows of 10 s) of the same recording,
one after the other, in one warm Spark session. The hand-written job writes plain Parquet; it finds no duplicates, keeps
no counts and commits nothing. The last line is what one batch of a pipeline that follows takes: 10,000 messages in five
topics, with no Spark.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import ringmain.spark
from ringmain import typed
from ringmain.pipeline import Pipeline
from ringmain.recording import RecordingWriter
from ringmain.recording._format import RING_SCHEMA

TOPICS = 5
CHUNK = 10_000
START_NS = 1_767_225_600_000_000_000


class Imu(msgspec.Struct):
    t: int
    a: tuple[float, float, float]
    g: tuple[float, float, float]
    note: str


SCHEMA = typed.codec_for(Imu).schema.to_bytes()


def record(path: Path, messages: int, first: int = 0) -> Path:
    """Each topic at 1 kHz. The recorder takes a chunk of each topic in turn."""
    writer = RecordingWriter(path, recorder="bench", fsync="never", flush_interval_s=1000)
    for topic in range(TOPICS):
        writer.declare(f"imu{topic}", epoch=1, schema=SCHEMA)
    chunk = min(CHUNK, messages // TOPICS)
    values = [msgspec.msgpack.encode(Imu(n, (n / 7, n / 3, 9.8), (0.1, n / 9, 0.3), "steady")) for n in range(chunk)]
    for begin in range(first, first + messages // TOPICS, chunk):
        numbers = range(begin, begin + chunk)
        times = [START_NS + n * 1_000_000 for n in numbers]
        columns = [numbers, times, ["driver"] * chunk, [""] * chunk, [0] * chunk, values]
        arrays = [pa.array(column, f.type) for column, f in zip(columns, RING_SCHEMA, strict=True)]
        for topic in range(TOPICS):
            rows = pa.RecordBatch.from_arrays(arrays, schema=RING_SCHEMA)
            writer.append(f"imu{topic}", 1, rows, record_time_ns=times[-1] + 1_000_000)
    writer.close()
    return path


def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = typed.Schema.from_bytes(SCHEMA)
    for batch in batches:
        values, _ = typed.decode_column(batch.column("payload"), schema)
        fields = [values.field(index) for index in range(values.type.num_fields)]
        envelope = [batch.column(name) for name in ("topic", "seq", "publish_time")]
        yield pa.RecordBatch.from_arrays(
            [*envelope, *fields], names=["topic", "seq", "publish_time", "t", "a", "g", "note"]
        )


def by_hand(spark: Any, recording: Path, out: Path) -> None:
    """What a data engineer would write: one pass for silver, one for gold."""
    from pyspark.sql import functions as F

    messages = spark.read.parquet(f"{recording}/*.parquet")
    point = "struct<_1: double, _2: double, _3: double>"
    columns = f"topic string, seq long, publish_time timestamp, t long, a {point}, g {point}, note string"
    silver = messages.select("topic", "seq", "publish_time", "payload").mapInArrow(decode, columns)
    silver.write.partitionBy("topic").option("compression", "zstd").parquet(str(out / "silver"))
    latency = (F.unix_micros("record_time") - F.unix_micros("publish_time")) / 1000
    health = messages.groupBy(F.window("publish_time", "10 seconds"), "topic", "recorder").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum("lost").alias("lost"),
        F.percentile_approx(latency, [0.5, 0.99, 0.999]).alias("latency"),
        F.max(latency).alias("worst"),
    )
    health.write.parquet(str(out / "health"))


def timed(name: str, messages: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    print(f"{name:<38} {took:8.2f} s   {messages / took:>12,.0f} messages/s", flush=True)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000)
    count: int = parser.parse_args().messages
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        recording = record(root / "recording", count)
        spark = ringmain.spark.session()
        small = record(root / "small", 10_000)
        by_hand(spark, small, root / "warm")  # both begin with a warm session
        hand = timed("hand-written Spark job", count, lambda: by_hand(spark, recording, root / "hand"))
        quiet: dict[str, Any] = {"progress": lambda line: None}
        lake = root / "lake"
        ours = timed("pipeline", count, lambda: Pipeline().run(recording, lake, spark=spark, **quiet))
        print(f"{'pipeline / hand-written':<38} {ours / hand:8.2f}")
        spark.stop()
        more = record(root / "more", 10_000)
        timed("pipeline, a batch of 10,000", 10_000, lambda: Pipeline().run(more, root / "lake2", **quiet))


if __name__ == "__main__":
    main()
