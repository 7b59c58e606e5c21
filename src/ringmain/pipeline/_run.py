"""`run()`: recordings in, a lake out; once, or for as long as the recorder goes on.

The pipeline drives its own batches. The ledger says where the last one ended, and what one that died was to read. So a
nightly run costs what the day recorded and not what the year did, and nothing but the lake has to be kept. Spark does
the tasks of a batch that has several; it is started when the first such batch comes.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from ringmain.errors import LakeError, RecordingCorrupt, RingmainError, SparkUnavailable
from ringmain.pipeline import _frames as frames
from ringmain.pipeline._aligned import Align, aligned
from ringmain.pipeline._batch import BatchRun, Settings
from ringmain.pipeline._lake import Lake
from ringmain.pipeline._ledger import BEGUN, LEDGER, Batch, reached
from ringmain.pipeline._source import Recordings, as_path, options_for
from ringmain.pipeline._work import quarantine_table, silver_table
from ringmain.recording._segment.store import shown
from ringmain.spark._locations import absolute
from ringmain.spark._plan import SPLIT_BYTES, Range
from ringmain.spark._read_lake import frame_of
from ringmain.spark._session import prepare, session
from ringmain.spark._stream import Offset
from ringmain.spark._tables import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Step = Callable[["DataFrame"], "DataFrame"]
DEFAULT_BATCH_BYTES = "1GiB"
MAX_PAYLOAD = "256MiB"
TURNS = 8  # batches, in which every table is looked at for compaction
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OURS = re.compile(r"ringmain\.errors\.\w+: ([^\n]+)")


@dataclass
class Summary:
    """What a run did. `rows_in == rows_out + quarantined + duplicates`, checked for every batch and again here.
    `damaged` rows are in the recordings and could not be read."""

    rows_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    duplicates: int = 0
    lost: int = 0
    damaged: int = 0
    bytes: int = 0
    batches: int = 0
    seconds: float = 0.0

    def add(self, batch: Batch) -> None:
        for topic in batch.topics:
            for name in ("rows_in", "rows_out", "quarantined", "duplicates", "lost", "bytes"):
                setattr(self, name, getattr(self, name) + getattr(topic, name))
        self.damaged += sum(one.damaged for one in batch.recordings)
        self.batches += 1
        if self.rows_in != self.rows_out + self.quarantined + self.duplicates:
            raise LakeError(f"row counts do not match, rows in must be rows out + quarantined + duplicates: {self}")

    def __str__(self) -> str:
        damaged = f"; {self.damaged:,} damaged, skipped" if self.damaged else ""
        return (
            f"{self.rows_in:,} rows in = {self.rows_out:,} out + {self.quarantined:,} quarantined + "
            f"{self.duplicates:,} duplicates; {self.lost:,} lost at source{damaged}; {self.bytes:,} bytes in "
            f"{self.batches} batches, {self.seconds:.1f} s"
        )


@dataclass
class Pipeline:
    """What to make of recordings. Add functions of your own before `run`.

    pipeline = Pipeline()

    @pipeline.on("imu", table="imu_smooth")          # silver of one topic, batch by batch
    def smooth(frame): return frame.withColumn(...)

    @pipeline.step("per_kind", time="window_start")  # gold: messages of some minutes, all topics
    def per_kind(messages): return messages.groupBy(...).agg(...)

    storage_options: of the object store that the lake is on, and the recordings where they are on one.
    bronze: "recordings" (they are bronze) or "copy", a table of all messages, for those who delete recordings.
    """

    window_s: float = 10.0
    aligns: list[Align] = field(default_factory=list)
    bronze: str = "recordings"
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    _steps: dict[str, tuple[Step, str]] = field(init=False, default_factory=dict, repr=False)
    _topic_steps: list[tuple[str, str, Step]] = field(init=False, default_factory=list, repr=False)

    def __post_init__(self) -> None:
        if self.window_s <= 0 or (60 / self.window_s) % 1:
            raise ValueError(f"window_s={self.window_s}: windows are within a minute, so it must divide 60")
        if self.bronze not in ("recordings", "copy"):
            raise ValueError(f"bronze={self.bronze!r}: choose 'recordings' or 'copy'")

    def on(self, topic: str, *, table: str) -> Callable[[Step], Step]:
        """Register a function of one topic's silver rows. It is given each batch; what it returns goes to
        `steps/TABLE`. Rows it drops are still in silver, so the row counts still match."""

        def add(function: Step) -> Step:
            self._topic_steps.append((topic, table, function))
            return function

        return add

    def step(self, table: str, *, time: str = "publish_time") -> Callable[[Step], Step]:
        """Register a gold table: a function of messages that keeps a time column, by which its rows are filed.
        It is given all messages of the minutes that have changed."""

        def add(function: Step) -> Step:
            self._steps[table] = (function, time)
            return function

        return add

    def run(
        self,
        recordings: str | Path | list[str | Path],
        lake: str | Path | Lake,
        *,
        spark: SparkSession | None = None,
        master: str | None = None,
        follow: bool = False,
        interval_s: float = 10.0,
        max_bytes_per_batch: str = DEFAULT_BATCH_BYTES,
        split_bytes: int = SPLIT_BYTES,
        fail_on_data_loss: bool = True,
        max_payload: str = MAX_PAYLOAD,
        progress: Callable[[str], None] | None = None,
        until: Callable[[Summary], bool] | None = None,
    ) -> Summary:
        """Process what is there, or with `follow` also what comes, until Ctrl-C or `until(summary)`. The next run
        goes on where Ctrl-C interrupted this one.

        split_bytes: about how much of a recording one task reads. A batch of one task needs no Spark.
        fail_on_data_loss=False: rows that cannot be read are a gap that `ringmain.spark.gaps` lists, and not an error.
        max_payload: a larger message is an error, because a worker holds several copies of a row.
        """
        tables = lake if isinstance(lake, Lake) else Lake(str(lake), self.storage_options)
        options = options_for(
            absolute(as_path(recordings)), tables.storage_options, max_bytes=max_bytes_per_batch,
            max_payload=max_payload, fail_on_loss=fail_on_data_loss, split_bytes=split_bytes,
        )  # fmt: skip
        one = _Run(self, tables, Recordings(options, must_exist=not follow), split_bytes, spark, master, not follow)
        summary, began = Summary(), time.monotonic()
        tell = progress or (lambda line: print(line, file=sys.stderr, flush=True))
        try:
            while True:
                due = time.monotonic() + interval_s
                batch = one.next()
                if batch is not None:
                    summary.add(batch)
                    summary.seconds = time.monotonic() - began
                    tell(_line(batch, summary))
                if (until is not None and until(summary)) or (batch is None and not follow):
                    break
                if follow:
                    time.sleep(max(0.0, due - time.monotonic()))
        except KeyboardInterrupt:
            if not follow:
                tell("interrupted: what was done is in the lake, and the next run goes on with the rest")
                raise
        except (PySparkException, RecordingCorrupt) as error:
            raise _plain(error) from error
        except (RingmainError, FileNotFoundError):
            raise
        except (OSError, DeltaError) as error:
            doing = "cannot be written" if tables.is_local else "cannot be reached"
            raise LakeError(
                f"the lake at {tables.uri} {doing}: {_sentence(error)}. Nothing is lost or doubled: "
                "run the pipeline again"
            ) from error
        summary.seconds = time.monotonic() - began
        return summary


class _Run:
    """A run on one lake: batch after batch."""

    def __init__(
        self, pipeline: Pipeline, lake: Lake, recordings: Recordings, split_bytes: int, spark: SparkSession | None,
        master: str | None, brief: bool,
    ) -> None:  # fmt: skip
        lake.check()
        self._pipeline, self._lake, self._recordings = pipeline, lake, recordings
        self._given, self._master, self._brief = spark, master, brief
        settings = Settings(pipeline.window_s, split_bytes, pipeline.bronze == "copy")
        self._batches = BatchRun(lake, settings, self._spark)
        self._ledger = self._batches.ledger
        last = self._ledger.last()
        if last is not None and last.window_s != pipeline.window_s:
            raise LakeError(
                f"{lake.uri} was built with window_s={last.window_s}, not with {pipeline.window_s}: use the same "
                "(--window), or a new lake"
            )
        recordings.remember(last)
        recordings.find()
        if brief:
            recordings.prepareForTriggerAvailableNow()

    def next(self) -> Batch | None:
        """The batch that comes next, done; None when there is nothing to read."""
        last = self._ledger.last()
        self._recordings.remember(last)
        if last is not None and last.state == BEGUN:
            self._ledger.refuse_second(last)
            batch, start, end = last, _offset(last, "begin"), _offset(last, "end")
            ranges = self._recordings.ranges(start, end)
        else:
            planned = self._plan(last)
            if planned is None:
                return None
            batch, ranges, end = planned
            self._ledger.begin(batch)
        reached("L1")
        lives = self._recordings.lives({item.key for item in ranges})
        scan = self._recordings.scan(batch.consumer)
        if not self._batches.process(batch, ranges, lives, scan, self._more):
            raise LakeError(
                f"another pipeline has completed batch {batch.batch} of {self._lake.uri}: a lake takes one pipeline at "
                "a time. Nothing is doubled"
            )
        self._recordings.commit(end)
        self._compact(batch)
        return batch

    def _plan(self, last: Batch | None) -> tuple[Batch, list[Range], Offset] | None:
        consumer = last.consumer if last is not None else f"lake-{os.urandom(4).hex()}"
        start = self._recordings.start(consumer)
        end = self._recordings.advance(start)
        if start["at"] == end["at"]:
            return None
        ranges = self._recordings.ranges(start, end)
        sources = self._recordings.sources(start, end, ranges)
        if not any(one.rows for one in sources):
            return None
        number = 0 if last is None else last.batch + 1
        return Batch(number, BEGUN, self._pipeline.window_s, consumer, recordings=sources), ranges, end

    def _more(self, batch: Batch, files: dict[str, list[Written]], minutes: list[int]) -> None:
        """The tables of users' own."""
        lake, number = self._lake, batch.batch
        for topic, table, function in self._pipeline._topic_steps:
            new = files.get(silver_table(topic))
            if new:
                schema = lake.schema(silver_table(topic))
                assert schema is not None
                rows = frame_of(self._spark(), lake, silver_table(topic), [one.name for one in new], schema)
                frames.append(function(rows), lake, f"steps/{table}", number)
        if minutes and self._pipeline._steps:
            span = minutes[0] * frames.MINUTE_US, (minutes[-1] + 1) * frames.MINUTE_US - 1
            messages = frames.bronze_frame(self._spark(), lake, batch.recordings, span, self._recordings.fail_on_loss)
            messages = messages.where(_within(minutes))
            for table, (function, column) in self._pipeline._steps.items():
                frames.replace(function(messages), lake, f"gold/{table}", number, column, minutes)
        topics = {count.topic for count in batch.topics}
        for align in self._pipeline.aligns:
            if minutes and topics & {align.lead, *align.others}:
                self._align(align, number, minutes)

    def _align(self, align: Align, batch: int, touched: list[int]) -> None:
        # A value reaches `tolerance_s` ahead, so minutes after the touched ones may change as well.
        ahead = int(align.tolerance_s // 60) + 1
        minutes = sorted({minute + n for minute in touched for n in range(ahead + 1)})
        tolerance_us = int(align.tolerance_s * 1e6)
        span = minutes[0] * frames.MINUTE_US, (minutes[-1] + 1) * frames.MINUTE_US - 1
        lead = frames.silver_frame(self._spark(), self._lake, silver_table(align.lead), *span)
        if lead is None:
            return
        others = {}
        for name in align.others:
            found = frames.silver_frame(self._spark(), self._lake, silver_table(name), span[0] - tolerance_us, span[1])
            if found is not None:
                others[name] = found
        table = aligned(lead.where(_within(minutes)), others, align.tolerance_s)
        frames.replace(table, self._lake, f"gold/{align.name}", batch, "publish_time", minutes)

    def _compact(self, batch: Batch) -> None:
        """Each table has its turn every few batches, and not all have it after the same batch."""

        def compact(name: str) -> None:
            with suppress(CommitFailedError):  # another writer changed the table; there is a next time
                self._lake.compact(name)

        silver = [silver_table(one.topic) for one in batch.topics]
        silver += [quarantine_table(one.topic) for one in batch.topics if one.quarantined]
        own = [*self._pipeline._steps, *(align.name for align in self._pipeline.aligns)]
        gold = [f"gold/{name}" for name in ("topic_health", "senders", "fields", "quarantine", "gaps", *own)]
        steps = [f"steps/{table}" for _, table, _ in self._pipeline._topic_steps]
        turn = [n for n in (LEDGER, "bronze", *silver, *gold, *steps) if (crc32(n.encode()) + batch.batch) % TURNS == 0]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(compact, turn))

    def _spark(self) -> SparkSession:
        if self._given is None:
            self._given = session(master=self._master, brief=self._brief)
        elif type(self._given).__module__.startswith("pyspark.sql.connect"):
            raise SparkUnavailable(
                "the pipeline does not run through Spark Connect: unset SPARK_REMOTE, and name the cluster by --master "
                "(master=) instead. Reading and streaming do work"
            )
        else:
            prepare(self._given)
        return self._given


def _offset(batch: Batch, edge: str) -> Offset:
    return {"consumer": batch.consumer, "at": {one.recording: getattr(one, edge) for one in batch.recordings}}


def _within(minutes: list[int]) -> Any:
    minute = F.floor(F.unix_micros("publish_time") / frames.MINUTE_US)
    return minute.isin(minutes) if len(minutes) <= 1000 else minute.between(minutes[0], minutes[-1])


def _plain(error: Exception) -> Exception:
    """What went wrong, without the pages of Java around it: an error of ours may have come through two processes."""
    missing = _MISSING.search(str(error))
    if missing is not None:
        return SparkUnavailable(
            f"Spark's workers have no module {missing[1]}: install ringmain[spark] for the Python that they run "
            "(PYSPARK_PYTHON), in the same version as here"
        )
    ours = _OURS.findall(str(error))
    text = ours[-1] if ours else str(error) if isinstance(error, RecordingCorrupt) else None
    if text is None:
        return error
    return LakeError(text.replace("failOnDataLoss=false turns", "fail_on_data_loss=False (--skip-damage) turns"))


def _sentence(error: Exception) -> str:
    """An error of a store on one line, without colours and without what an address may have of credentials."""
    return shown(" ".join(re.sub(r"\x1b\[\d*m", "", str(error)).split()))


def _line(batch: Batch, summary: Summary) -> str:
    rows = sum(topic.rows_in for topic in batch.topics)
    rate = rows / batch.seconds if batch.seconds else 0.0
    return (
        f"batch {batch.batch}: {rows:,} rows of {len(batch.topics)} topics in {batch.seconds:.1f} s "
        f"({rate:,.0f}/s); {summary.rows_in:,} rows so far"
    )


def run(recordings: str | Path | list[str | Path], lake: str | Path | Lake, **options: Any) -> Summary:
    """The pipeline as it comes: `run("recordings/", "lake/")`. Options are those of `Pipeline` and `Pipeline.run`."""
    own = {name: options.pop(name) for name in ("window_s", "aligns", "bronze", "storage_options") if name in options}
    return Pipeline(**own).run(recordings, lake, **options)
