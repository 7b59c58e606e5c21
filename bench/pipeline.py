"""How long the pipeline takes: `python -m bench.pipeline [PART ...] [--messages N] [--rounds N]`; all by default.

job     silver (one decoded table a topic) and gold (health of each topic by windows of 10 s) of one recording, by a job
        that one would write by hand and by the pipeline, one after the other, in one warm Spark session. The
        hand-written job writes plain Parquet; it finds no duplicates, keeps no counts and commits nothing. DuckDB makes
        the health alone, from the recording's Parquet files. CPU is that of this process and all below it. With rounds,
        they take turns, and the ratios are those of the medians.
scale   a tenth of the messages and all of them: how the time grows, and the driver's memory
late    2,000 late messages into the lake that `job` made
follow  500 batches of 10,000 messages in five topics, while they are recorded
fleet   1,000 small recordings in one run
hosts   what the driver does for a window of 250, 500 and 1,000 hosts with 50 topics each: planning, merging,
        committing; the tasks are not counted
many    20 new messages beside 5,000 recordings that are read
merge   gold of 500 hosts with 50 topics in 10 windows, merged by the driver and by tasks of Spark, by turns
s3      the messages to a lake on disk and to one on S3 (moto, on loopback), by turns
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

import ringmain.spark
from ringmain import typed
from ringmain.lake import Lake
from ringmain.pipeline import Pipeline, Summary, _merge
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


class Source:
    """A recording of five typed topics at 1 kHz each, that grows. The recorder takes a chunk of each topic in turn."""

    def __init__(self, path: Path, epoch: int = 1) -> None:
        self.path, self._epoch, self._next = path, epoch, 0
        self._writer = RecordingWriter(path, recorder=path.name, fsync="never", flush_interval_s=1000)
        for topic in range(TOPICS):
            self._writer.declare(f"imu{topic}", epoch=epoch, schema=SCHEMA)

    def add(self, messages: int, start_ns: int = START_NS) -> None:
        end = self._next + messages // TOPICS
        while self._next < end:
            chunk = min(CHUNK, end - self._next)
            numbers = range(self._next, self._next + chunk)
            times = [start_ns + n * 1_000_000 for n in numbers]
            values = _values()[:chunk]
            columns = [numbers, times, ["driver"] * chunk, [""] * chunk, [0] * chunk, [b""] * chunk, values]
            arrays = [pa.array(column, f.type) for column, f in zip(columns, RING_SCHEMA, strict=True)]
            for topic in range(TOPICS):
                rows = pa.RecordBatch.from_arrays(arrays, schema=RING_SCHEMA)
                self._writer.append(f"imu{topic}", self._epoch, rows, record_time_ns=times[-1] + 1_000_000)
            self._next += chunk
        self._writer.flush()

    def close(self) -> Path:
        self._writer.close()
        return self.path


@functools.cache
def _values() -> list[bytes]:
    return [msgspec.msgpack.encode(Imu(n, (n / 7, n / 3, 9.8), (0.1, n / 9, 0.3), "steady")) for n in range(CHUNK)]


def record(folder: Path, messages: int) -> Path:
    """A recording of so many messages, unless it is there already."""
    path = folder / f"of-{messages}"
    if path.exists():
        return path
    source = Source(path)
    source.add(messages)
    return source.close()


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


def by_duckdb(recording: Path) -> None:
    import duckdb

    duckdb.sql(
        f"""select time_bucket(interval 10 seconds, publish_time) w, topic, recorder, count(*), sum(size), sum(lost),
        approx_quantile((epoch_us(record_time) - epoch_us(publish_time)) / 1000, [0.5, 0.99, 0.999])
        from read_parquet('{recording}/*.parquet') group by 1, 2, 3"""
    ).fetchall()


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float


def timed(name: str, messages: int, work: Callable[[], object]) -> Cost:
    began, cpu = time.perf_counter(), _cpu_s()
    work()
    cost = Cost(time.perf_counter() - began, _cpu_s() - cpu)
    rate = messages / cost.wall_s
    print(f"{name:<38} {cost.wall_s:8.2f} s {cost.cpu_s:8.1f} CPU s {rate:>12,.0f} messages/s", flush=True)
    return cost


def _cpu_s() -> float:
    """Of this process and all below it, and of their children that have ended."""
    processes = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            processes[int(entry)] = (int(words[1]), sum(map(int, words[11:15])))
    mine = {os.getpid()}
    while more := {pid for pid, (parent, _) in processes.items() if parent in mine} - mine:
        mine |= more
    return sum(processes[pid][1] for pid in mine if pid in processes) / os.sysconf("SC_CLK_TCK")


def target(found: float, most: float, unit: str = "") -> str:
    return f"target: at most {most}{unit}, {'met' if found <= most else 'MISSED'}"


QUIET: dict[str, Any] = {"progress": lambda line: None}
ENGINE: dict[str, Any] = {}  # of follow and fleet


def pipeline(name: str, messages: int, recording: Path, lake: Path | Lake, **options: Any) -> Cost:
    return timed(name, messages, lambda: Pipeline().run(recording, lake, **QUIET, **options))


def warm_session(root: Path) -> Any:
    """A session whose JVM and workers have run."""
    spark = ringmain.spark.session()
    by_hand(spark, record(root, 10_000), root / f"warm-{time.time_ns()}")
    return spark


LARGE = 20_000_000  # messages, of which the targets of job and s3 are
JOB_TARGET = 0.4


def job(root: Path, messages: int, rounds: int) -> None:
    recording = record(root, messages)
    spark = warm_session(root)
    hand, ours = list[Cost](), list[Cost]()
    for _ in range(rounds):
        for name in ("hand", "lake"):  # of the round before
            shutil.rmtree(root / name, ignore_errors=True)
        hand.append(timed("hand-written Spark job", messages, lambda: by_hand(spark, recording, root / "hand")))
        ours.append(pipeline("pipeline", messages, recording, root / "lake", spark=spark))
    timed("DuckDB, health alone", messages, lambda: by_duckdb(recording))
    wall, cpu = (statistics.median(c[i] for c in ours) / statistics.median(c[i] for c in hand) for i in (0, 1))
    bar = f"; {target(wall, JOB_TARGET)}" if messages >= LARGE else ""
    print(f"{'pipeline / hand-written':<38} {wall:8.2f}   {cpu:8.2f} of its CPU{bar}")
    spark.stop()


def scale(root: Path, messages: int, rounds: int) -> None:
    spark = warm_session(root)
    costs: list[Cost] = []
    for count in (messages // 10, messages):
        recording = record(root, count)
        Path("/proc/self/clear_refs").write_text("5")  # the peak of this process begins anew
        costs.append(pipeline("pipeline", count, recording, root / f"lake-of-{count}", spark=spark))
        spark._jvm.java.lang.System.gc()
        runtime = spark._jvm.java.lang.Runtime.getRuntime()
        heap = (runtime.totalMemory() - runtime.freeMemory()) >> 20
        print(f"{'memory of the driver':<38} {_peak_mb():8,.0f} MB at most; then {heap:,} MB of heap in use")
    print(f"{'10 x the messages':<38} {costs[1].wall_s / costs[0].wall_s:8.2f} x the time, "
          f"{costs[1].cpu_s / costs[0].cpu_s:.2f} x the CPU")  # fmt: skip
    spark.stop()


def _peak_mb() -> float:
    """The most memory that this process has had."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


LATE_TARGET_S = 1.0


def late(root: Path, messages: int, rounds: int) -> None:
    if not (root / "lake").exists():
        Pipeline().run(record(root, messages), root / "lake", **QUIET)
    source = Source(root / "late", epoch=2)
    source.add(2_000)
    path = source.close()
    found = pipeline(f"2,000 late into {messages:,}", 2_000, path, root / "lake").wall_s
    print(f"{'':<38} {target(found, LATE_TARGET_S, ' s')}")


FOLLOW_TARGET_S = 1.0


def follow(root: Path, messages: int, rounds: int) -> None:
    batches, source = 500, Source(root / "followed")
    source.add(10_000)
    took: list[Cost] = []
    began = time.perf_counter(), time.process_time()

    def until(summary: Summary) -> bool:
        nonlocal began
        took.append(Cost(time.perf_counter() - began[0], time.process_time() - began[1]))
        source.add(10_000)
        began = time.perf_counter(), time.process_time()
        return summary.batches == batches

    Pipeline().run(source.path, root / "follow", follow=True, interval_s=0, until=until, **QUIET, **ENGINE)
    source.close()
    for name, part in (("first", took[:100]), ("last", took[-100:])):
        wall, cpu = (statistics.median(cost[i] for cost in part) for i in (0, 1))
        most = max(cost.wall_s for cost in part)
        label = f"following, the {name} 100 of {batches}"
        print(
            f"{label:<38} {wall:8.2f} s {cpu:8.2f} CPU s a batch, at most {most:.2f} s; "
            f"{target(wall, FOLLOW_TARGET_S, ' s')}"
        )
    lake = Lake(str(root / "follow"))
    print(f"{'files of a table, at most':<38} {max(len(lake.files(name)) for name in lake.tables()):8}")


def fleet(root: Path, messages: int, rounds: int) -> None:
    for n in range(1000):
        source = Source(root / "fleet" / f"host{n}", epoch=n + 1)
        source.add(200)
        source.close()
    pipeline("1,000 small recordings", 200_000, root / "fleet", root / "fleet-lake", **ENGINE)


MANY, MANY_TARGET_S = 5000, 0.5


def many(root: Path, messages: int, rounds: int) -> None:
    for n in range(MANY):
        _record_host(root / "many" / f"host{n}", n, topics=1)
    Pipeline().run(root / "many", root / "many-lake", engine="local", **QUIET)
    costs = list[float]()
    for n in range(5):
        _record_host(root / "many" / f"new{n}", MANY + n, 20, topics=1)
        costs.append(
            pipeline(f"20 new beside {MANY:,} recordings", 20, root / "many", root / "many-lake", engine="local").cpu_s
        )
    found = statistics.median(costs)
    print(f"{'  median':<49} {found:8.2f} CPU s; {target(found, MANY_TARGET_S, ' s')}")


HOSTS, LIVES_TARGET_S = (250, 500, 1000), 10.0


def hosts(root: Path, messages: int, rounds: int) -> None:
    """The driver's part grows with the lives of the batch. Each host has two messages of each topic."""
    found: dict[str, list[float]] = {}
    for count in HOSTS:
        folder = root / f"hosts{count}"
        for n in range(count):
            _record_host(folder / f"host{n}", n)
        with _timed_parts() as spent:
            cost = timed(f"{count:,} hosts x 50 topics, one window", count * 100, lambda folder=folder, count=count: (
                Pipeline().run(folder, root / f"hosts-lake{count}", engine="local", **QUIET)
            ))  # fmt: skip
        spent["all but the tasks"] = cost.wall_s - spent["tasks"]
        for part, seconds in spent.items():
            found.setdefault(part, []).append(seconds)
    for part, seconds in found.items():
        grown = seconds[-1] / max(seconds[0], 1e-9)
        shown = ", ".join(f"{one:.2f}" for one in seconds)
        print(f"  {part:<36} {shown} s: {grown:.1f} x for {HOSTS[-1] / HOSTS[0]:.0f} x the hosts")
    most = found["all but the tasks"][-1]
    print(f"{'the driver, for 50,000 lives':<38} {most:8.2f} s; {target(most, LIVES_TARGET_S, ' s')}")


def merge(root: Path, messages: int, rounds: int) -> None:
    """Whichever way, the tasks measure the same; so the difference is what merging costs."""
    count, windows = 500, 10
    for n in range(count):
        _record_host(root / "merge" / f"host{n}", n, windows, 10_000_000_000)
    spark, usual = warm_session(root), _merge.AS_TASKS_ROWS
    for n in range(max(2, rounds)):
        for name, rows in (("the driver", 10**9), ("tasks", 0)):
            _merge.AS_TASKS_ROWS, cpu = rows, time.process_time()
            timed(f"{count * 50 * windows:,} lives, merged by {name}", count * 50 * windows, lambda name=name, n=n: (
                Pipeline().run(root / "merge", root / f"merged by {name} {n}", spark=spark, **QUIET)
            ))  # fmt: skip
            print(f"{'  of it the processor time of the driver':<49} {time.process_time() - cpu:8.1f} CPU s")
    _merge.AS_TASKS_ROWS = usual
    spark.stop()


def _record_host(path: Path, host: int, count: int = 2, step_ns: int = 1_000_000, topics: int = 50) -> None:
    made = RecordingWriter(path, recorder=path.name, fsync="never", flush_interval_s=1000)
    times = [START_NS + host * 1000 + n * step_ns for n in range(count)]
    columns = [
        range(count), times, [path.name] * count, [""] * count, [0] * count, [b""] * count, [b"some bytes"] * count,
    ]  # fmt: skip
    rows = pa.RecordBatch.from_arrays(
        [pa.array(column, f.type) for column, f in zip(columns, RING_SCHEMA, strict=True)], schema=RING_SCHEMA
    )
    for topic in range(topics):
        made.append(f"topic{topic}", 1 + host, rows, record_time_ns=times[-1] + 1_000_000)
    made.close()


@contextmanager
def _timed_parts() -> Iterator[dict[str, float]]:
    """How long the parts of a run take, each without the others within it."""
    from ringmain.lake._gold import GoldTable
    from ringmain.pipeline._batch import BatchRun
    from ringmain.pipeline._engine import LocalEngine
    from ringmain.pipeline._run import _Run

    spent: dict[str, float] = {}
    with ExitStack() as stack:
        for part, owner, name in (
            ("planning", _Run, "_plan"),
            ("tasks", LocalEngine, "run"),
            ("committing silver", BatchRun, "_append"),
            ("merging", GoldTable, "merged"),
            ("committing gold, with merging", BatchRun, "_merge"),
        ):
            stack.enter_context(_noted(spent, part, owner, name))
        yield spent


@contextmanager
def _noted(spent: dict[str, float], part: str, owner: type, name: str) -> Iterator[None]:
    """Threads that are in it at once count once."""
    there, lock, inside, began = getattr(owner, name), threading.Lock(), 0, 0.0
    spent[part] = 0.0

    def around(*args: Any, **options: Any) -> Any:
        nonlocal inside, began
        with lock:
            began = time.perf_counter() if inside == 0 else began
            inside += 1
        try:
            return there(*args, **options)
        finally:
            with lock:
                inside -= 1
                spent[part] += time.perf_counter() - began if inside == 0 else 0.0

    setattr(owner, name, around)
    yield
    setattr(owner, name, there)


def s3(root: Path, messages: int, rounds: int) -> None:
    from tests.store import make_bucket, s3_server, storage_options

    recording, spark = record(root, messages), warm_session(root)
    disk, there = list[float](), list[float]()
    with s3_server() as endpoint:
        make_bucket(endpoint, "lakes")
        for n in range(rounds):
            lake = Lake(f"s3://lakes/bench{n}", storage_options(endpoint))
            disk.append(pipeline("lake on disk", messages, recording, root / f"on-disk{n}", spark=spark).wall_s)
            there.append(pipeline("lake on S3 (moto)", messages, recording, lake, spark=spark).wall_s)
    found = statistics.median(there) / statistics.median(disk)
    print(f"{'S3 / disk':<38} {found:8.2f}; {target(found, 1.3 if messages >= LARGE else 1.5)}")
    spark.stop()


PARTS = {part.__name__: part for part in (job, scale, late, follow, fleet, many, hosts, merge, s3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="what to measure (default: all)")
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=1, help="of job and s3 (default: 1)")
    parser.add_argument("--engine", choices=["spark", "local"], default="spark", help="of follow and fleet")
    args = parser.parse_args()
    ENGINE["engine"] = args.engine
    with tempfile.TemporaryDirectory() as folder:
        for name in args.part or PARTS:
            PARTS[name](Path(folder), args.messages, args.rounds)


if __name__ == "__main__":
    main()
