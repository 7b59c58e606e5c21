"""One batch through the pipeline: bronze, silver, gold, and the books.

The invariant owned here: *the books balance*. For every topic, rows in = rows out + quarantined + duplicates. Rows in
is what Spark read; rows out and quarantined are what the Parquet files on disk say; duplicates are counted by a query
of their own. A batch that does not balance is not committed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from ringmain.errors import LakeError
from ringmain.pipeline import silver as silvering
from ringmain.pipeline.aligned import aligned
from ringmain.pipeline.bronze import COLUMNS, PARTITION_BY, bronze, count_topics
from ringmain.pipeline.gold import filed
from ringmain.pipeline.lake import Commit, Lake, TopicCount, Written, quarantine_table, silver_table
from ringmain.recording import Store
from ringmain.spark.decode import ERROR, Decoding
from ringmain.spark.scan import lives_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Step = Callable[["DataFrame"], "DataFrame"]
_TOPICS_AT_ONCE = 4
_SIDE_BY_SIDE = 500  # buckets named one by one in a filter; beyond that, a range


@dataclass(frozen=True)
class Align:
    """An `aligned` table: each message of `lead` with the newest of `others`, none older than `tolerance_s`."""

    lead: str
    others: tuple[str, ...]
    tolerance_s: float = 1.0
    table: str = ""

    @classmethod
    def parse(cls, text: str) -> Align:
        """From `camera/front:imu,gps@0.5`."""
        match = re.fullmatch(r"([^:@]+):([^@]+?)(?:@([0-9.]+)s?)?", text)
        if match is None:
            raise ValueError(f"{text!r} is not understood: say LEAD:TOPIC,...@SECONDS, as in camera:imu,gps@0.5")
        return cls(match[1], tuple(part.strip() for part in match[2].split(",")), float(match[3] or 1.0))

    @property
    def name(self) -> str:
        return self.table or "aligned_" + self.lead.replace("/", "_")


@dataclass
class Plan:
    """What is made besides bronze and silver."""

    tables: dict[str, tuple[Step, str]] = field(default_factory=dict)  # gold: name -> (function, its time column)
    topic_steps: list[tuple[str, str, Step]] = field(default_factory=list)  # (topic, table, function)
    aligns: list[Align] = field(default_factory=list)


@dataclass(frozen=True)
class Touched:
    """Which stretches of time a batch has rows in."""

    dates: list[Any]
    buckets: list[int]

    def condition(self, bucket_s: int, *, before_s: float = 0.0, any_date: bool = False) -> Any:
        """Rows of these buckets, and of `before_s` before each, as a condition that prunes."""
        us = bucket_s * 1_000_000
        # Compared as timestamps, and not as numbers made of them, so that Parquet's statistics apply.
        spans = _runs(self.buckets) if len(self.buckets) <= _SIDE_BY_SIDE else [(self.buckets[0], self.buckets[-1])]
        wanted = F.lit(False)
        for first, last in spans:
            since = F.timestamp_micros(F.lit(first * us - int(before_s * 1e6)))
            wanted |= (F.col("publish_time") >= since) & (
                F.col("publish_time") < F.timestamp_micros(F.lit((last + 1) * us))
            )
        return wanted if before_s or any_date else wanted & F.col("date").isin(self.dates)


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


class BatchRun:
    """Processes batches into a lake; what `foreachBatch` calls."""

    def __init__(self, spark: SparkSession, lake: Lake, plan: Plan, stores: Callable[[], list[Store]]) -> None:
        self._spark, self._lake, self._plan, self._stores = spark, lake, plan, stores

    def process(self, messages: DataFrame, batch: int) -> Commit | None:
        """None when this batch was complete already."""
        began = time.monotonic()
        if not self._lake.begin(batch):
            return None
        last = self._lake.last()
        newest = dict(last.newest) if last is not None else {}
        seen = Observation()
        observed = bronze(messages).observe(seen, F.count(F.lit(1)).alias("rows"))
        files = self._lake.write(observed, "bronze", batch, PARTITION_BY)
        rows_in = int(seen.get["rows"])
        if rows_in != sum(file.rows for file in files):
            raise LakeError(
                f"batch {batch}: {rows_in} rows were read and {sum(f.rows for f in files)} written to bronze"
            )
        topics: list[TopicCount] = []
        if rows_in:
            written = self._lake.read(self._spark, "bronze", files, COLUMNS)
            assert written is not None
            counted = count_topics(written).collect()  # a row for each life of each topic: does not grow with messages
            names = sorted({row.topic for row in counted})
            with ThreadPoolExecutor(_TOPICS_AT_ONCE) as pool:
                jobs = [
                    pool.submit(self._silver, written, topic, [r for r in counted if r.topic == topic], batch, newest)
                    for topic in names
                ]
                for job in jobs:
                    topic_count, more = job.result()
                    topics.append(topic_count)
                    files += more
            for row in counted:
                key = _life(row.topic, row.epoch)
                newest[key] = max(newest.get(key, -1), row.last_seq)
            self._gold(self._touched(written), names)
        commit = Commit(batch, topics, files, newest, time.monotonic() - began)
        self._check(commit, rows_in)
        self._lake.commit(commit)
        return commit

    def _silver(
        self, written: DataFrame, topic: str, lives: list[Any], batch: int, newest: dict[str, int]
    ) -> tuple[TopicCount, list[Written]]:
        rows_in = sum(row.rows for row in lives)
        count = TopicCount(topic, rows_in, bytes=sum(row.bytes for row in lives), lost=sum(row.lost for row in lives))
        messages = written.where(F.col("topic") == topic)
        per_life: dict[int, int] = {}
        for row in lives:
            per_life[row.epoch] = per_life.get(row.epoch, 0) + 1
        repeated = any(not row.is_intact for row in lives) or max(per_life.values()) > 1
        seen_before = any(row.first_seq <= newest.get(_life(topic, row.epoch), -1) for row in lives)
        if repeated:
            distinct = messages.select(*silvering.KEY).distinct().count()
            count.duplicates += rows_in - distinct
            messages = silvering.deduplicate(messages)
        if seen_before:
            known = self._known(topic, messages)
            if known is not None:
                keys = messages.select(*silvering.KEY).distinct()
                count.duplicates += keys.join(known.distinct(), list(silvering.KEY), "left_semi").count()
                messages = silvering.without(messages, known)
        files = self._decode(messages, topic, rows_in, batch)
        table = silver_table(topic)
        count.rows_out = sum(file.rows for file in files if file.table == table)
        count.quarantined = sum(file.rows for file in files if file.table == quarantine_table(topic))
        return count, files

    def _decode(self, messages: DataFrame, topic: str, rows: int, batch: int) -> list[Written]:
        table = silver_table(topic)
        lives = lives_of(self._stores(), topic)
        if not any(lives.values()):
            frame = silvering.ordered(silvering.untyped(messages), rows)
            files = self._lake.write(frame, table, batch, silvering.PARTITION_BY)
        else:
            errors = Observation()
            decoded = silvering.decode(messages, Decoding.of(topic, lives))
            counting = decoded.observe(errors, F.count(F.col(ERROR)).alias("failed"))
            frame = silvering.ordered(silvering.good(counting), rows)
            files = self._lake.write(frame, table, batch, silvering.PARTITION_BY)
            if errors.get["failed"]:
                wrong = silvering.ordered(silvering.failed(decoded), int(errors.get["failed"]))
                files += self._lake.write(wrong, quarantine_table(topic), batch, silvering.PARTITION_BY)
        for wanted, name, function in self._plan.topic_steps:
            if wanted == topic and any(file.rows for file in files if file.table == table):
                made = self._lake.read(self._spark, table, [file for file in files if file.table == table])
                assert made is not None
                result = function(made.drop("date"))
                partition = ["date"] if "publish_time" in result.columns else []
                if partition:
                    result = result.withColumn("date", F.to_date("publish_time"))
                files += self._lake.write(result, f"steps/{name}", batch, partition)
        return files

    def _known(self, topic: str, messages: DataFrame) -> DataFrame | None:
        """The keys of messages that earlier batches have written and that may be in this one. A message has the same
        publish time in every copy, so only that stretch of the tables is looked at."""
        bounds = messages.agg(
            F.min("publish_time").alias("first"),
            F.max("publish_time").alias("last"),
            F.collect_set(F.to_date("publish_time")).alias("dates"),
        ).collect()[0]
        found = None
        for table in (silver_table(topic), quarantine_table(topic)):
            earlier = self._lake.read(self._spark, table, schema=silvering.KEY_COLUMNS)
            if earlier is None:
                continue
            inside = earlier.where(
                F.col("date").isin(bounds.dates) & F.col("publish_time").between(bounds.first, bounds.last)
            )
            keys = inside.select(*silvering.KEY)
            found = keys if found is None else found.unionByName(keys)
        return found

    def _touched(self, written: DataFrame) -> Touched:
        bucket_s = self._lake.settings.bucket_s
        bucket = F.floor(F.unix_micros("publish_time") / (bucket_s * 1_000_000)).cast("long")
        found = (
            written.select("date", bucket.alias("bucket")).distinct().collect()
        )  # minutes of the batch, not messages
        return Touched(sorted({row.date for row in found}), sorted({row.bucket for row in found}))

    def _gold(self, touched: Touched, names: list[str]) -> None:
        messages = self._lake.read(self._spark, "bronze", schema=COLUMNS)
        if messages is None:
            return
        bucket_s = self._lake.settings.bucket_s
        bucketed = messages.where(touched.condition(bucket_s))
        for name, (function, time_column) in self._plan.tables.items():
            self._lake.replace(filed(function(bucketed), time_column, bucket_s), name)
        for align in self._plan.aligns:
            if align.lead in names or set(align.others) & set(names):
                self._align(align, touched)

    def _align(self, align: Align, touched: Touched) -> None:
        bucket_s = self._lake.settings.bucket_s
        # A value reaches `tolerance_s` ahead, so buckets after the touched ones may change as well.
        ahead = int(align.tolerance_s // bucket_s) + 1
        wider = Touched(touched.dates, sorted({b + n for b in touched.buckets for n in range(ahead + 1)}))
        lead = self._lake.read(self._spark, silver_table(align.lead))
        if lead is None:
            return
        others = {}
        for name in align.others:
            frame = self._lake.read(self._spark, silver_table(name))
            if frame is not None:
                others[name] = frame.where(wider.condition(bucket_s, before_s=align.tolerance_s))
        inside = lead.where(wider.condition(bucket_s, any_date=True)).drop("date")
        table = aligned(inside, others, align.tolerance_s)
        self._lake.replace(filed(table, "publish_time", bucket_s), align.name)

    def _check(self, commit: Commit, rows_in: int) -> None:
        for topic in commit.topics:
            out = topic.rows_out + topic.quarantined + topic.duplicates
            if topic.rows_in != out:
                raise LakeError(
                    f"batch {commit.batch}, topic {topic.topic!r}: {topic.rows_in} rows in, but {topic.rows_out} out + "
                    f"{topic.quarantined} quarantined + {topic.duplicates} duplicates = {out}; nothing was committed"
                )
        if sum(topic.rows_in for topic in commit.topics) != rows_in:
            raise LakeError(f"batch {commit.batch}: {rows_in} rows in, and the topics have another sum")


def _life(topic: str, epoch: int) -> str:
    return f"{topic}@{epoch}"
