"""One batch through the pipeline: bronze, silver, gold, and the row counts.

The invariant owned here: *row counts are checked*. For every topic, rows in = rows out + quarantined + duplicates. Rows
in are counted by Spark, rows out and quarantined in the Parquet files on disk, duplicates where they are dropped. A
batch whose counts do not match is not committed.

Starting a Spark job takes longer than a small batch does, so there are few of them: one writes bronze, one counts, one
writes all of silver, and one makes each gold table. A batch of up to SMALL_ROWS goes through them without a shuffle.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as F

from ringmain.errors import LakeError
from ringmain.pipeline import _silver as silvering
from ringmain.pipeline._aligned import aligned
from ringmain.pipeline._bronze import COLUMNS, PARTITION_BY, bronze, count_topics
from ringmain.pipeline._gold import filed
from ringmain.pipeline._install import Staged
from ringmain.pipeline._lake import Commit, Lake, TopicCount, quarantine_table, silver_table
from ringmain.recording import Store
from ringmain.spark._decode import Decoding
from ringmain.spark._scan import lives_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Step = Callable[["DataFrame"], "DataFrame"]
SMALL_ROWS = 1 << 18
_TABLES_AT_ONCE = 4
_KEY_COLUMNS = "epoch bigint, seq bigint, publish_time timestamp, date date"
_SIDE_BY_SIDE = 100  # stretches named one by one in a filter; beyond that, all in between as well
_DAY_S = 86_400
_EPOCH = date(1970, 1, 1)


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
    """Which stretches of time (buckets, numbered from 1970) a batch has rows in."""

    buckets: list[int]

    def dates(self, bucket_s: int, *, before_s: float = 0.0) -> list[date]:
        """The days they are in, in UTC; with those that `before_s` reaches back to."""
        found = set()
        for first, last in _runs(self.buckets):
            day = int((first * bucket_s - before_s) // _DAY_S)
            found |= set(range(day, (last * bucket_s) // _DAY_S + 1))
        return [_EPOCH + timedelta(days=day) for day in sorted(found)]

    def condition(self, bucket_s: int, *, before_s: float = 0.0) -> Any:
        """Rows of these buckets, and of `before_s` before each, as a condition that prunes."""
        us = bucket_s * 1_000_000
        # Compared as timestamps, and not as numbers made of them, so that Parquet's statistics apply.
        runs = _runs(self.buckets)
        spans = runs if len(runs) <= _SIDE_BY_SIDE else [(runs[0][0], runs[-1][1])]
        wanted = F.lit(False)
        for first, last in spans:
            since = F.timestamp_micros(F.lit(first * us - int(before_s * 1e6)))
            wanted |= (F.col("publish_time") >= since) & (
                F.col("publish_time") < F.timestamp_micros(F.lit((last + 1) * us))
            )
        return wanted


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
        staged = self._lake.stage(observed, "bronze", batch, PARTITION_BY)
        rows_in = int(seen.get["rows"])
        if rows_in != sum(one.rows for one in staged):
            written_rows = sum(one.rows for one in staged)
            raise LakeError(f"batch {batch}: {rows_in} rows were read and {written_rows} written to bronze")
        topics: list[TopicCount] = []
        touched = Touched([])
        if rows_in:
            written = self._lake.read_staged(self._spark, staged, batch, COLUMNS)
            # A row for each life of each topic: does not grow with messages.
            lives = count_topics(written, self._lake.settings.bucket_s).collect()
            touched = Touched(sorted({bucket for row in lives for bucket in row.buckets}))
            topics, more = self._silver(written, lives, touched, batch, newest)
            staged += more + self._steps(more, batch)
            for row in lives:
                key = _life(row.topic, row.epoch)
                newest[key] = max(newest.get(key, -1), row.last_seq)
        self._check(batch, topics, rows_in)
        files = self._lake.install(staged, batch)
        if rows_in:
            self._gold(touched, {count.topic for count in topics}, small=rows_in <= SMALL_ROWS)
        commit = Commit(batch, topics, files, newest, time.monotonic() - began)
        self._lake.commit(commit)
        return commit

    def _silver(
        self, written: DataFrame, lives: list[Any], touched: Touched, batch: int, newest: dict[str, int]
    ) -> tuple[list[TopicCount], list[Staged]]:
        counts: dict[str, TopicCount] = {}
        for row in lives:
            count = counts.setdefault(row.topic, TopicCount(row.topic))
            count.rows_in += row.rows
            count.bytes += row.bytes
            count.lost += row.lost
        seen_before = {row.topic for row in lives if row.first_seq <= newest.get(_life(row.topic, row.epoch), -1)}
        marked = silvering.mark_known(written, self._known(seen_before, touched))
        rows, size = sum(c.rows_in for c in counts.values()), sum(c.bytes for c in counts.values())
        stores = self._stores()
        decodings = {}
        for topic in counts:
            schemas = lives_of(stores, topic)
            if any(schemas.values()):
                decodings[topic] = Decoding.of(topic, schemas)
        staged = []
        for file in silvering.write(silvering.in_order(marked, rows, size), self._lake.staging(batch), decodings):
            count = counts[file.topic]
            count.duplicates += file.duplicates
            if file.path is None:
                continue
            table = quarantine_table(file.topic) if file.quarantined else silver_table(file.topic)
            staged.append(self._lake.staged(table, Path(file.path), batch))
            if file.quarantined:
                count.quarantined += staged[-1].rows
            else:
                count.rows_out += staged[-1].rows
        return [counts[topic] for topic in sorted(counts)], staged

    def _steps(self, silver: list[Staged], batch: int) -> list[Staged]:
        """What users' functions make of the new rows of their topics."""
        made: list[Staged] = []
        for topic, name, function in self._plan.topic_steps:
            files = [one for one in silver if one.table == silver_table(topic)]
            if not files:
                continue
            result = function(self._lake.read_staged(self._spark, files, batch).drop("date"))
            partition = ["date"] if "publish_time" in result.columns else []
            if partition:
                result = result.withColumn("date", F.to_date("publish_time"))
            made += self._lake.stage(result, f"steps/{name}", batch, partition)
        return made

    def _known(self, topics: set[str], touched: Touched) -> DataFrame | None:
        """The keys of messages that earlier batches have written and that may be in this one. A message has the same
        publish time in every copy, so only that stretch of the tables is looked at."""
        found = None
        bucket_s = self._lake.settings.bucket_s
        for topic in sorted(topics):
            for table in (silver_table(topic), quarantine_table(topic)):
                dates = touched.dates(bucket_s)
                earlier = self._lake.read(self._spark, table, dates=dates, schema=_KEY_COLUMNS)
                if earlier is None:
                    continue
                inside = earlier.where(touched.condition(bucket_s)).withColumn("topic", F.lit(topic))
                keys = inside.select(*silvering.KEY)
                found = keys if found is None else found.unionByName(keys)
        return found

    def _gold(self, touched: Touched, topics: set[str], *, small: bool) -> None:
        bucket_s = self._lake.settings.bucket_s
        messages = self._lake.read(self._spark, "bronze", dates=touched.dates(bucket_s), schema=COLUMNS)
        if messages is None:
            return
        bucketed = messages.where(touched.condition(bucket_s))
        if small:
            bucketed = bucketed.coalesce(1)
        jobs: list[Callable[[], None]] = []
        for name, (function, time_column) in self._plan.tables.items():
            table = filed(function(bucketed), time_column, bucket_s)
            jobs.append(partial(self._lake.replace, table, name, small=small))
        for align in self._plan.aligns:
            if align.lead in topics or set(align.others) & topics:
                jobs.append(partial(self._align, align, touched))
        # Side by side, because planning one leaves the cores idle that another can use.
        with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
            for done in [pool.submit(job) for job in jobs]:
                done.result()

    def _align(self, align: Align, touched: Touched) -> None:
        bucket_s = self._lake.settings.bucket_s
        # A value reaches `tolerance_s` ahead, so buckets after the touched ones may change as well.
        ahead = int(align.tolerance_s // bucket_s) + 1
        wider = Touched(sorted({b + n for b in touched.buckets for n in range(ahead + 1)}))
        lead = self._lake.read(self._spark, silver_table(align.lead), dates=wider.dates(bucket_s))
        if lead is None:
            return
        others = {}
        dates = wider.dates(bucket_s, before_s=align.tolerance_s)
        for name in align.others:
            frame = self._lake.read(self._spark, silver_table(name), dates=dates)
            if frame is not None:
                others[name] = frame.where(wider.condition(bucket_s, before_s=align.tolerance_s))
        inside = lead.where(wider.condition(bucket_s)).drop("date")
        table = aligned(inside, others, align.tolerance_s)
        self._lake.replace(filed(table, "publish_time", bucket_s), align.name)

    def _check(self, batch: int, topics: list[TopicCount], rows_in: int) -> None:
        for topic in topics:
            out = topic.rows_out + topic.quarantined + topic.duplicates
            if topic.rows_in != out:
                raise LakeError(
                    f"batch {batch}, topic {topic.topic!r}: {topic.rows_in} rows in, but {topic.rows_out} out + "
                    f"{topic.quarantined} quarantined + {topic.duplicates} duplicates = {out}; nothing was committed"
                )
        if sum(topic.rows_in for topic in topics) != rows_in:
            raise LakeError(f"batch {batch}: {rows_in} rows in, and the topics have another sum")


def _life(topic: str, epoch: int) -> str:
    return f"{topic}@{epoch}"
