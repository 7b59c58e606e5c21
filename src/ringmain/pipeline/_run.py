"""`run()`: recordings in, a lake out; once, or for as long as the recorder goes on.

The pipeline drives its own batches. The ledger says where the last one ended, and what one that died was to read. So a
nightly run costs what the day recorded and not what the year did, and nothing but the lake has to be kept. The engine
is started when there is a first batch.
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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from deltalake.exceptions import CommitFailedError, DeltaError

from ringmain import _crash
from ringmain._names import parse_bytes
from ringmain.errors import InvalidArgument, LakeError, RingmainError, SparkUnavailable, TopicNotFound
from ringmain.lake import Lake
from ringmain.lake._bronze import BRONZE
from ringmain.lake._files import Written
from ringmain.lake._health import GOLD
from ringmain.lake._ledger import BEGUN, COMPLETE_BEFORE, DONE, LEDGER, Batch, Source
from ringmain.lake._names import quarantine_table, silver_table
from ringmain.lake._positions import Positions
from ringmain.pipeline._batch import BatchRun, Settings, shared_lives
from ringmain.pipeline._engine import Engine, EngineName, choose_engine
from ringmain.pipeline._incidents import note_incidents
from ringmain.pipeline._own_tables import Align, OwnTables, Step
from ringmain.pipeline._recordings import Reading, Recordings, as_path
from ringmain.recording._locations import absolute
from ringmain.recording._offsets import At
from ringmain.recording._plan import SPLIT_BYTES, Range
from ringmain.recording._segment.store import one_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_BATCH_BYTES = "1GiB"
MAX_PAYLOAD = "256MiB"
TURNS = 8  # batches, in which every table is looked at for compaction
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")


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
    engine: str = ""
    """What ran the tasks of the last batch: Spark with its version and application, or the local engine."""

    def add(self, batch: Batch) -> None:
        for topic in batch.topics:
            for name in ("rows_in", "rows_out", "quarantined", "duplicates", "lost", "bytes"):
                setattr(self, name, getattr(self, name) + getattr(topic, name))
        self.damaged += sum(one.damaged for one in batch.recordings)
        self.batches += 1
        self.engine = batch.made_by()
        if self.rows_in != self.rows_out + self.quarantined + self.duplicates:
            raise LakeError(f"row counts do not match, rows in must be rows out + quarantined + duplicates: {self}")

    def __str__(self) -> str:
        damaged = f"; {self.damaged:,} damaged, skipped" if self.damaged else ""
        engine = f", by {self.engine}" if self.engine else ""
        return (
            f"{self.rows_in:,} rows in = {self.rows_out:,} out + {self.quarantined:,} quarantined + "
            f"{self.duplicates:,} duplicates; {self.lost:,} lost at source{damaged}; {self.bytes:,} bytes in "
            f"{self.batches} batch{'es' * (self.batches != 1)}, {self.seconds:.1f} s{engine}"
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
    _own: OwnTables = field(init=False, default_factory=OwnTables, repr=False)

    def __post_init__(self) -> None:
        self._own.aligns = self.aligns
        if self.window_s <= 0 or (60 / self.window_s) % 1:
            raise InvalidArgument(f"window_s={self.window_s:g}: windows are within a minute, so it must divide 60")
        if self.bronze not in ("recordings", "copy"):
            raise InvalidArgument(f"bronze={self.bronze!r}: choose 'recordings' or 'copy'")

    def on(self, topic: str, *, table: str) -> Callable[[Step], Step]:
        """Register a function of one topic's silver rows. It is given each batch; what it returns goes to
        `steps/TABLE`. Rows it drops are still in silver, so the row counts still match."""

        def add(function: Step) -> Step:
            self._own.topic_steps.append((topic, table, function))
            return function

        return add

    def step(self, table: str, *, time: str = "publish_time") -> Callable[[Step], Step]:
        """Register a gold table: a function of messages that keeps a time column, by which its rows are filed.
        It is given all messages of the minutes that have changed."""

        def add(function: Step) -> Step:
            self._own.steps[table] = (function, time)
            return function

        return add

    def run(
        self,
        recordings: str | Path | list[str | Path],
        lake: str | Path | Lake,
        *,
        engine: EngineName = "spark",
        spark: SparkSession | None = None,
        master: str | None = None,
        follow: bool = False,
        interval_s: float = 10.0,
        max_bytes_per_batch: str = DEFAULT_BATCH_BYTES,
        split_bytes: int = SPLIT_BYTES,
        fail_on_data_loss: bool = True,
        max_payload: str = MAX_PAYLOAD,
        incident: str | None = None,
        progress: Callable[[str], None] | None = None,
        until: Callable[[Summary], bool] | None = None,
    ) -> Summary:
        """Process what is there, or with `follow` also what comes, until Ctrl-C or `until(summary)`. The next run
        goes on where Ctrl-C interrupted this one.

        engine: the tasks of every batch are a job of Spark: of the session `spark`, or of one that is started, on
        `master`. With "local" this process runs them one after the other, without a JVM, and there are no steps and no
        aligned tables.
        split_bytes: about how much of a recording one task reads.
        fail_on_data_loss=False: rows that cannot be read are a gap that `ringmain.spark.gaps` lists, and not an error.
        max_payload: a larger message is an error, because a worker holds several copies of a row.
        incident: of flight recordings, only the incidents that are over and whose ids match, by a pattern or a part of
        the id ("*" is all of them). A lake has either incidents or whole recordings of one directory.
        """
        tables = lake if isinstance(lake, Lake) else Lake(str(lake), self.storage_options)
        reading = Reading(
            absolute(as_path(recordings)), tables.storage_options, must_exist=not follow,
            fail_on_loss=fail_on_data_loss, split_bytes=split_bytes,
            max_bytes=_size("max_bytes_per_batch", max_bytes_per_batch), max_payload=_size("max_payload", max_payload),
            incident=incident,
        )  # fmt: skip
        chosen = choose_engine(engine, spark, master, brief=not follow)
        if engine == "local" and self._own:
            raise InvalidArgument('steps and aligned tables are made by Spark: leave them out, or engine="local"')
        tell = progress or (lambda line: print(line, file=sys.stderr, flush=True))
        one = _Run(self, tables, reading, chosen, tell, brief=not follow)
        summary, began = Summary(), time.monotonic()
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
            one.close()
        except KeyboardInterrupt:
            if not follow:
                tell("interrupted: what was done is in the lake, and the next run goes on with the rest")
                raise
        except Exception as error:
            told = _explained(error, tables, chosen)
            if told is error:
                raise
            raise told from error
        summary.seconds = time.monotonic() - began
        return summary


class _Run:
    """A run on one lake: batch after batch."""

    def __init__(
        self, pipeline: Pipeline, lake: Lake, reading: Reading, engine: Engine, tell: Callable[[str], None], *,
        brief: bool,
    ) -> None:  # fmt: skip
        self._own, self._window_s, self._reading = pipeline._own, pipeline.window_s, reading
        self._lake, self._recordings, self._engine = lake, Recordings(reading), engine
        settings = Settings(pipeline.window_s, reading.split_bytes, pipeline.bronze == "copy")
        self._batches = BatchRun(lake, settings, engine, tell)
        self._ledger = self._batches.ledger
        self._done = -1  # the newest batch that is done
        self._has_read = False  # a batch, in this run
        self._version: int | None = None  # of the ledger, when its positions were read
        self._positions = Positions(lake, self._ledger)
        last = lake.check_version(self._ledger)
        if last is not None and last.window_s != pipeline.window_s:
            raise LakeError(
                f"{lake.uri} was built with window_s={last.window_s}, not with {pipeline.window_s}: use the same "
                "(--window), or a new lake"
            )
        last = self._remember(last)
        self._first: tuple[Batch | None] | None = (last,)  # not looked for again
        if brief:
            self._recordings.stop_at_end()
            self._refuse_unknown([topic for align in pipeline.aligns for topic in (align.lead, *align.others)])

    def _refuse_unknown(self, topics: list[str]) -> None:
        """Raises if neither the recordings nor the lake have one of these topics."""
        known = {topic for lives in self._recordings.lives(()).values() for topic, _ in lives} if topics else set()
        if not known.issuperset(topics):
            known |= self._recordings.topics()
        for topic in topics:
            if topic not in known and self._lake.snapshot(silver_table(topic)) is None:
                there = ", ".join(sorted(known)) or "none"
                raise TopicNotFound(f"there is no topic {topic!r} to align: the recordings have {there}", topic=topic)

    def next(self) -> Batch | None:
        """The batch that comes next, done; None when there is nothing to read."""
        last = self._ledger.last() if self._first is None else self._first[0]
        self._first = None
        last = self._remember(last)
        if self._has_read and last is not None and last.state == DONE and self._recordings.all_read():
            return None  # what came meanwhile is for the next run
        if last is not None and last.state == BEGUN:
            self._ledger.refuse_second(last)
            batch, start, end = last, _positions(last, "begin"), _positions(last, "end")
            ranges = self._recordings.ranges(start, end, last.consumer)
            sources = self._recordings.begun(last)
        else:
            planned = self._plan(last)
            if planned is None:
                note_incidents(self._lake, self._recordings.flights())
                return None
            batch, ranges, end, sources = planned
            note_incidents(self._lake, self._recordings.flights())
            self._engine.start()  # before the batch is begun: one that does not start leaves nothing behind
            self._ledger.begin(batch)
        _crash.point("batch: begun, nothing written")
        lives = self._recordings.lives(sources)
        shared = shared_lives(sources, lives)
        more = partial(self._more, batch, sources)
        if not self._batches.process(batch, ranges, lives, shared, self._reading.scan(batch.consumer), more):
            raise LakeError(
                f"another pipeline has completed batch {batch.batch} of {self._lake.uri}: a lake takes one pipeline at "
                "a time. Nothing is doubled"
            )
        self._recordings.read_up_to(end)
        self._positions.advance(batch)
        self._positions.write(batch.batch, now=batch.lake_version < COMPLETE_BEFORE)
        self._compact(batch)
        self._done, self._version, self._has_read = batch.batch, self._ledger.version(), True
        return batch

    def close(self) -> None:
        """The next run finds what this one knows at once."""
        self._positions.write(self._done, now=True)

    def _remember(self, last: Batch | None) -> Batch | None:
        """What the lake knows, which is read again if the ledger has changed otherwise than by this run. Returns its
        newest batch."""
        if self._version is None or self._version != self._ledger.version():
            if self._version is not None:
                self._lake.forget()
                last = self._ledger.last()
            self._positions.read(last)
            self._version = self._ledger.version()
            if last is not None and last.state == DONE:
                self._done = last.batch
                self._positions.write(last.batch, now=last.lake_version < COMPLETE_BEFORE)
        self._recordings.remember(self._positions.known, last)
        return last

    def _plan(self, last: Batch | None) -> tuple[Batch, list[Range], At, list[Source]] | None:
        consumer = last.consumer if last is not None else f"lake-{os.urandom(4).hex()}"
        start = self._recordings.start(consumer)
        end = self._recordings.advance(start)
        if start == end:
            return None
        ranges = self._recordings.ranges(start, end, consumer)
        sources = self._recordings.sources(start, end, ranges)
        if not any(one.rows for one in sources):
            return None
        number = 0 if last is None else last.batch + 1
        batch = Batch(number, BEGUN, self._window_s, consumer, recordings=self._recordings.news(sources))
        return batch, ranges, end, sources

    def _more(self, batch: Batch, sources: list[Source], files: dict[str, list[Written]], minutes: list[int]) -> None:
        """The tables of users' own."""
        if self._own:
            fail_on_loss = self._reading.fail_on_loss
            self._own.make(self._engine.spark(), self._lake, batch, sources, files, minutes, fail_on_loss)

    def _compact(self, batch: Batch) -> None:
        """Each table has its turn every few batches, and not all have it after the same batch."""

        def compact(name: str) -> None:
            with suppress(CommitFailedError):  # another writer changed the table; there is a next time
                self._lake.compact(name)

        silver = [silver_table(one.topic) for one in batch.topics]
        silver += [quarantine_table(one.topic) for one in batch.topics if one.quarantined]
        all_names = (LEDGER, BRONZE, *silver, *(table.name for table in GOLD), *self._own.names())
        turn = [n for n in all_names if (crc32(n.encode()) + batch.batch) % TURNS == 0]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(compact, turn))


def _positions(batch: Batch, edge: str) -> At:
    return {one.recording: getattr(one, edge) for one in batch.recordings}


def _size(what: str, text: str) -> int:
    size = parse_bytes(text, what)
    if size <= 0:
        raise InvalidArgument(f"{what}={text!r}: at least one byte")
    return size


def _explained(error: Exception, lake: Lake, engine: Engine) -> Exception:
    """What a user is told of what went wrong. Errors of ours come from the workers as they are."""
    if isinstance(error, engine.errors()):
        # Workers that cannot load our modules have no way to say so but the text of Spark's error.
        missing = _MISSING.search(str(error))
        return (
            error
            if missing is None
            else SparkUnavailable(
                f"Spark's workers have no module {missing[1]}: install ringmain[spark] for the Python that they run "
                "(PYSPARK_PYTHON), in the same version as here"
            )
        )
    if isinstance(error, RingmainError | FileNotFoundError) or not isinstance(error, OSError | DeltaError):
        return error
    doing = "cannot be written" if lake.is_local else "cannot be reached"
    return LakeError(
        f"the lake at {lake.uri} {doing}: {one_line(error)}. Nothing is lost or doubled: run the pipeline again"
    )


def _line(batch: Batch, summary: Summary) -> str:
    rows = sum(topic.rows_in for topic in batch.topics)
    rate = rows / batch.seconds if batch.seconds else 0.0
    hosts = ", ".join(f"{one.host} ({one.rows:,} rows)" for one in batch.apart)
    apart = f"; times far from those of the others: {hosts}" if hosts else ""
    return (
        f"batch {batch.batch}: {rows:,} rows of {len(batch.topics)} topics in {batch.seconds:.1f} s "
        f"({rate:,.0f}/s); {summary.rows_in:,} rows so far{apart}"
    )


def run(recordings: str | Path | list[str | Path], lake: str | Path | Lake, **options: Any) -> Summary:
    """The pipeline as it comes: `run("recordings/", "lake/")`. Options are those of `Pipeline` and `Pipeline.run`."""
    own = {name: options.pop(name) for name in ("window_s", "aligns", "bronze", "storage_options") if name in options}
    return Pipeline(**own).run(recordings, lake, **options)
