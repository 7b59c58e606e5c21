"""`run()`: recordings in, a lake out; once, or for as long as the recorder goes on.

Both are the same streaming query. Without `follow` it ends when what was there has been read, and a later run goes on
from that place, so a nightly run costs what the day recorded and not what the year did.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from ringmain.errors import LakeError, RingmainError, SparkUnavailable
from ringmain.pipeline import _gold
from ringmain.pipeline._batch import Align, BatchRun, Plan, Step
from ringmain.pipeline._lake import BUCKET_S, Commit, Lake, Settings
from ringmain.recording import Store
from ringmain.spark._locations import absolute, find_recordings
from ringmain.spark._session import prepare, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_BATCH_BYTES = "1GiB"
BRIEF_BYTES = 512 << 20  # a recording of this size is through in a minute or so
MAX_PAYLOAD = "256MiB"
_POLL_S = 1
_TRIES = 3
_SLOW_PYTHON = "Python worker failed to connect back"
_OURS = re.compile(r"ringmain\.errors\.\w+: ([^\n]+)")


@dataclass
class Summary:
    """What a run did. `rows_in == rows_out + quarantined + duplicates`, checked for every batch and again here."""

    rows_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    duplicates: int = 0
    lost: int = 0
    bytes: int = 0
    batches: int = 0
    seconds: float = 0.0

    def add(self, commit: Commit) -> None:
        for topic in commit.topics:
            self.rows_in += topic.rows_in
            self.rows_out += topic.rows_out
            self.quarantined += topic.quarantined
            self.duplicates += topic.duplicates
            self.lost += topic.lost
            self.bytes += topic.bytes
        self.batches += 1
        if self.rows_in != self.rows_out + self.quarantined + self.duplicates:
            raise LakeError(f"row counts do not match, rows in must be rows out + quarantined + duplicates: {self}")

    def __str__(self) -> str:
        return (
            f"{self.rows_in:,} rows in = {self.rows_out:,} out + {self.quarantined:,} quarantined + "
            f"{self.duplicates:,} duplicates; {self.lost:,} lost at source; {self.bytes:,} bytes in {self.batches} "
            f"batches, {self.seconds:.1f} s"
        )


@dataclass
class Pipeline:
    """What to make of recordings. Add functions of your own before `run`.

    pipeline = Pipeline()

    @pipeline.on("imu", table="imu_smooth")          # silver of one topic, batch by batch
    def smooth(frame): return frame.withColumn(...)

    @pipeline.step("per_kind", time="window_start")  # gold: bronze of some minutes, all topics
    def per_kind(messages): return messages.groupBy(...).agg(...)
    """

    window_s: float = 10.0
    aligns: list[Align] = field(default_factory=list)
    format: str = "parquet"
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        if self.window_s <= 0 or (BUCKET_S / self.window_s) % 1:
            raise ValueError(f"window_s={self.window_s}: gold is filed by the minute, so it must divide 60")
        if self.format not in ("parquet", "delta"):
            raise ValueError(f"format={self.format!r}: choose 'parquet' or 'delta'")
        self.plan = Plan(aligns=self.aligns)
        self.plan.tables["topic_health"] = (partial(_gold.topic_health, window_s=self.window_s), "window_start")
        self.plan.tables["gaps"] = (_gold.gaps, "time")
        self.plan.tables["senders"] = (partial(_gold.senders, window_s=self.window_s), "window_start")

    def on(self, topic: str, *, table: str) -> Callable[[Step], Step]:
        """Register a function of one topic's silver rows. It is given each batch; what it returns goes to
        `steps/TABLE`. Rows it drops are still in silver, so the row counts still match."""

        def add(function: Step) -> Step:
            self.plan.topic_steps.append((topic, table, function))
            return function

        return add

    def step(self, table: str, *, time: str = "publish_time") -> Callable[[Step], Step]:
        """Register a gold table: a function of bronze messages that keeps a time column, by which its rows are filed.
        It is given all messages of the minutes that have changed."""

        def add(function: Step) -> Step:
            self.plan.tables[table] = (function, time)
            return function

        return add

    def run(
        self,
        recordings: str | Path | list[str | Path],
        lake: str | Path,
        *,
        spark: SparkSession | None = None,
        master: str | None = None,
        follow: bool = False,
        interval_s: float = 10.0,
        max_bytes_per_batch: str = DEFAULT_BATCH_BYTES,
        fail_on_data_loss: bool = True,
        max_payload: str = MAX_PAYLOAD,
        progress: Callable[[str], None] | None = None,
        until: Callable[[Summary], bool] | None = None,
    ) -> Summary:
        """Process what is there, or with `follow` also what comes, until Ctrl-C or `until(summary)`.

        fail_on_data_loss=False: rows that cannot be read are a gap that `ringmain.spark.gaps` lists, and not an error.
        max_payload: a larger message is an error, because Spark, which holds several copies of a row, would run out of
        memory and take the whole JVM with it. With much memory (`spark.driver.memory`) it can be raised.
        """
        paths = [str(p) for p in recordings] if isinstance(recordings, list) else [str(recordings)]
        source = absolute(",".join(paths))
        there = find_recordings(source, must_exist=not follow).values()
        brief = not follow and sum(map(_size, there)) < BRIEF_BYTES
        spark = session(master=master, brief=brief) if spark is None else prepare(spark)
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise SparkUnavailable(
                "the pipeline works through its batches in the driver, which Spark Connect keeps on the server: unset "
                "SPARK_REMOTE, and name the cluster by --master (master=) instead. Reading and streaming do work"
            )
        tables = Lake(lake, Settings(window_s=self.window_s), join_small=self.format != "delta")
        worker = BatchRun(spark, tables, self.plan, lambda: list(find_recordings(source, must_exist=False).values()))
        summary, began = Summary(), time.monotonic()
        tell = progress or (lambda line: print(line, file=sys.stderr, flush=True))
        raised: list[Exception] = []

        def each(frame: Any, batch: int) -> None:
            try:
                commit = worker.process(frame, batch)
            except Exception as error:
                raised.append(error)
                raise
            if self.format == "delta":
                from ringmain.pipeline._delta import sync

                sync(tables)
            if commit is not None and commit.topics:
                summary.add(commit)
                summary.seconds = time.monotonic() - began
                tell(_line(commit, summary))

        writer = (
            spark.readStream.format("ringmain")
            .option("positions", "true")
            .option("maxBytesPerTrigger", max_bytes_per_batch)
            .option("maxPayload", max_payload)
            .option("failOnDataLoss", str(fail_on_data_loss).lower())
            .load(source)
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", str(tables.checkpoint))
        )
        trigger = (
            writer.trigger(processingTime=f"{interval_s} seconds") if follow else writer.trigger(availableNow=True)
        )
        _see_through(trigger.start, lambda: until is not None and until(summary), raised)
        summary.seconds = time.monotonic() - began
        return summary


def _see_through(start: Callable[[], Any], enough: Callable[[], bool], raised: list[Exception]) -> None:
    """Run a query until it ends, `enough()` or Ctrl-C. What the batches raised is in `raised`."""
    for tries_left in reversed(range(_TRIES)):
        query = start()
        try:
            while not query.awaitTermination(_POLL_S):
                if enough():
                    query.stop()
            return
        except KeyboardInterrupt:
            query.stop()
            return
        except StreamingQueryException as error:
            # Spark gives a Python process 10 s to start, which a crowded machine may not manage. A batch that is tried
            # again replaces itself, so there is no harm in it.
            if _SLOW_PYTHON not in str(error) or not tries_left:
                raise _plain(raised[-1] if raised else error) from error
            raised.clear()


def _plain(error: Exception) -> Exception:
    """What went wrong, without the pages of Java around it: an error of ours may have come through two processes."""
    ours = _OURS.findall(str(error))
    return LakeError(ours[-1]) if ours and not isinstance(error, RingmainError) else error


def _size(store: Store) -> int:
    """The bytes of a recording; those in an object store count as many."""
    if store.directory is None or store.sealed_uri:
        return BRIEF_BYTES
    return sum(entry.stat().st_size for entry in os.scandir(store.directory) if entry.is_file())


def _line(commit: Commit, summary: Summary) -> str:
    rows = sum(topic.rows_in for topic in commit.topics)
    rate = rows / commit.seconds if commit.seconds else 0.0
    return (
        f"batch {commit.batch}: {rows:,} rows of {len(commit.topics)} topics in {commit.seconds:.1f} s "
        f"({rate:,.0f}/s); {summary.rows_in:,} rows so far"
    )


def run(recordings: str | Path | list[str | Path], lake: str | Path, **options: Any) -> Summary:
    """The pipeline as it comes: `run("recordings/", "lake/")`. Options are those of `Pipeline` and `Pipeline.run`."""
    own = {name: options.pop(name) for name in ("window_s", "aligns", "format") if name in options}
    return Pipeline(**own).run(recordings, lake, **options)
