"""One batch, on the driver: cut it into tasks, have them run, check the counts, commit every table, then the ledger.

The invariant owned here: *row counts are checked*. For every topic, rows in = rows out + quarantined + duplicates. Rows
in are counted where they are read, rows out and quarantined are those of the files, duplicates are counted where they
are dropped. A batch whose counts do not match is not committed.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from ringmain import _crash
from ringmain.errors import LakeError
from ringmain.lake._fields import PUBLISH_TIME
from ringmain.lake._files import Written, prefix
from ringmain.lake._health import GAPS, GOLD
from ringmain.lake._ledger import DONE, Batch, HostCount, Ledger, Source, TopicCount, totals
from ringmain.lake._log import Snapshot, TableFile
from ringmain.lake._names import quarantine_table, silver_table
from ringmain.lake._tables import Change, Tables, latest, micros, overlapping
from ringmain.pipeline import _merge
from ringmain.pipeline._engine import Engine
from ringmain.pipeline._main_stretch import main_stretch
from ringmain.pipeline._merge import Measured, expected_rows, replaced
from ringmain.pipeline._recordings import Life
from ringmain.pipeline._work import (
    BRONZE_SCHEMA,
    QUARANTINE_SCHEMA,
    RAW_SCHEMA,
    Columns,
    Report,
    Shared,
    Task,
    Work,
)
from ringmain.recording._plan import Range, split
from ringmain.recording._scan import Scan

_COMMITS_AT_ONCE = 8
SMALLEST_TASK_BYTES = 4 << 20  # what starting a task costs is little beside reading so much
TASKS_A_CORE = 4  # of a large batch: so that no core waits long for the last one
MOST_RANGES = 4  # of the usual size, for a task: what Spark does again when one fails


@dataclass(frozen=True)
class Settings:
    """Of a run, for all its batches."""

    window_s: float
    split_bytes: int
    copy: bool


class BatchRun:
    """Takes one batch through the lake. What it has written, by table, is in `files` afterwards."""

    def __init__(self, lake: Tables, settings: Settings, engine: Engine, tell: Callable[[str], None]) -> None:
        self.lake, self.settings, self._engine, self._tell = lake, settings, engine, tell
        self.ledger = Ledger(lake)

    def process(
        self,
        batch: Batch,
        ranges: list[Range],
        lives: dict[str, dict[Life, bytes]],
        shared: Shared,
        scan: Scan,
        more: Callable[[dict[str, list[Written]], list[int]], None],
    ) -> bool:
        """All of a batch that is begun. `more` makes the tables of users' own. False: another pipeline was faster."""
        began = time.monotonic()
        typed = self._columns({item.key for item in ranges}, lives)
        tasks = self._tasks(batch.batch, ranges, shared)
        window_us = int(self.settings.window_s * 1e6)
        stretch = main_stretch(ranges, time.time_ns() // 1000)
        as_tasks = expected_rows(ranges, lives, typed, window_us) >= _merge.AS_TASKS_ROWS
        sampled = _merge.SAMPLED if as_tasks else 0
        work = Work(self.lake, batch.batch, window_us, tasks, scan, typed, shared, self.settings.copy, stretch, sampled)
        topics = len({topic for item in ranges for topic, _ in lives.get(item.key, {})})
        rows, size = sum(one.rows for one in batch.recordings), sum(item.bytes for item in ranges)
        batch.engine, batch.engine_version, batch.application = self._engine.start()
        about = f"batch {batch.batch}: {rows} rows of {topics} topics, {size} bytes"

        def progress(done: int, tasks: int) -> None:
            self._tell(f"{about}: {done} of {tasks} tasks done")

        reports = self._engine.run(work, Report, about, progress)
        self._check_files(reports)
        batch.topics = check_counts(batch, reports)
        apart = sum((Counter(report.apart) for report in reports), Counter[str]())
        batch.apart = [HostCount(host, rows) for host, rows in sorted(apart.items())]
        _crash.point("batch: files written, not committed")
        files: dict[str, list[Written]] = {}
        for written in (one for report in reports for one in report.files):
            files.setdefault(written.table, []).append(written)
        gold = [measured for table in GOLD if (measured := Measured.of(table, reports))]
        minutes = sorted({minute for report in reports for minute in report.minutes})
        silver = {silver_table(topic): columns for topic, columns in typed.items()}
        with ThreadPoolExecutor(_COMMITS_AT_ONCE) as pool:
            list(pool.map(lambda item: self._append(batch.batch, silver, *item), files.items()))
            _crash.point("batch: silver committed, gold not")
            list(pool.map(lambda measured: self._merge(batch.batch, measured), gold))
        more(files, minutes)
        _crash.point("batch: tables committed, not done")
        batch.state, batch.seconds = DONE, batch.seconds + time.monotonic() - began
        first = self.ledger.done(batch)
        _crash.point("batch: done, recordings not told")
        self._engine.show(batch.batch, _come_to(batch, [one for made in files.values() for one in made]))
        return first

    def _check_files(self, reports: list[Report]) -> None:
        """Raises if workers have written to disks of their own."""
        for one in (one for report in reports for one in (*report.files, *report.gold_files)):
            if not self.lake.is_local:
                return
            if not os.path.exists(f"{self.lake.uri}/{one.table}/{one.name}"):
                raise LakeError(
                    f"Spark's workers wrote to {self.lake.uri}, and {one.table}/{one.name} is not here: "
                    "put the lake on a file system that all of them share, or in an object store"
                )

    def _columns(self, keys: Iterable[str], lives: dict[str, dict[Life, bytes]]) -> dict[str, Columns]:
        """How to decode the topics of these recordings, with the schemas of all their lives."""
        wanted = {topic for key in keys for topic, _ in lives.get(key, {})}
        schemas: dict[str, dict[int, bytes]] = {topic: {} for topic in wanted}
        for known in lives.values():
            for (topic, epoch), schema in known.items():
                if topic in wanted and (schema or epoch not in schemas[topic]):
                    schemas[topic][epoch] = schema
        typed = {topic: found for topic, found in schemas.items() if any(found.values())}
        return {topic: Columns.of(topic, found, self._schema(silver_table(topic))) for topic, found in typed.items()}

    def _schema(self, table: str) -> pa.Schema | None:
        """A table's columns. Only pipelines add some, and what another has written was forgotten (_run.py)."""
        found = self.lake.snapshot(table, known=True)
        return None if found is None else found.schema

    def _tasks(self, batch: int, ranges: list[Range], shared: Shared) -> tuple[Task, ...]:
        """Ranges packed up to the size of a task, and slices of the stretches where recordings overlap."""
        tasks: list[Task] = []
        limit = task_bytes(ranges, self._engine.cores(), self.settings.split_bytes)
        if limit < self.settings.split_bytes:
            ranges = [part for item in ranges for part in spread(item, limit)]
        pack, size = list[Range](), 0
        for item in ranges:
            if pack and size + item.bytes > limit:
                tasks.append(Task(tuple(pack)))
                pack, size = [], 0
            pack.append(item)
            size += item.bytes
        if pack:
            tasks.append(Task(tuple(pack)))
        known = [
            (topic, table, one)
            for topic in shared.lives
            for table in (silver_table(topic), quarantine_table(topic))
            for one in self.lake.files(table)
            if not one.name.startswith(prefix(batch))  # of an earlier try
        ]
        for since, until in shared.stretches:
            inside = [item for item in ranges if item.min_ns < until and item.max_ns >= since]
            pieces = max(1, min(len(inside), sum(item.bytes for item in inside) // self.settings.split_bytes))
            edges = [since + (until - since) * n // pieces for n in range(pieces)] + [until]
            for lo, hi in pairwise(edges):
                part = tuple(item for item in inside if item.min_ns < hi and item.max_ns >= lo)
                if part:
                    tasks.append(Task(part, lo, hi, _grouped(known, lo, hi)))
        return tuple(tasks)

    def _append(self, batch: int, silver: dict[str, Columns], table: str, files: list[Written]) -> None:
        fixed = {"gold": GAPS.schema, "quarantine": QUARANTINE_SCHEMA, "bronze": BRONZE_SCHEMA}
        columns = silver.get(table)
        schema = fixed.get(table.partition("/")[0]) or (RAW_SCHEMA if columns is None else columns.schema)
        about = "" if columns is None else columns.about
        self.lake.commit(table, batch, lambda found: Change(schema, files, about=about), as_known=True)

    def _merge(self, batch: int, measured: Measured) -> None:
        """Replace the rows of these windows by what they have come to."""
        table, window_s, new = measured.table, self.settings.window_s, list[Written]()

        def build(found: Snapshot | None) -> Change:
            self.lake.discard(new)  # of the try before
            new.clear()
            hit = overlapping(found, "window_start", *measured.windows_us())
            if measured.files:
                work = measured.work(self.lake, batch, hit, window_s, self._engine.cores())
                about = f"batch {batch}: {measured.count} rows merged into {table.name}"
                new.extend(one for made in self._engine.run(work, list[Written], about) for one in made)
            else:
                known = map(table.of, self.lake.read_files(table.name, [one.name for one in hit]))
                pieces = replaced(table, measured.rows, known, window_s)
                new.extend(self.lake.write(table.name, batch, piece) for piece in pieces)
            _crash.point("batch: gold merged, not committed")
            return Change(table.schema, new, hit)

        if not self.lake.commit(table.name, batch, build, as_known=True):
            self.lake.discard(new)
        self.lake.discard(measured.files)


def _come_to(batch: Batch, files: list[Written]) -> str:
    count = TopicCount("")
    for one in batch.topics:
        count.add(one)
    return (
        f"batch {batch.batch} is done: {count.rows_in} rows in = {count.rows_out} out + {count.quarantined} "
        f"quarantined + {count.duplicates} duplicates, {count.lost} lost at source; {len(files)} files of "
        f"{len({one.table for one in files})} tables, {sum(one.size for one in files)} bytes; {batch.seconds:.1f} s"
    )


def task_bytes(ranges: list[Range], cores: int, split_bytes: int) -> int:
    """About how much a task reads: so much that every core has one, as long as it is worth a task; and of a large batch
    more than one range, because each task writes files of its own of every topic."""
    total = sum(item.bytes for item in ranges)
    usual = min(split_bytes, max(SMALLEST_TASK_BYTES, -(-total // cores)))
    return max(usual, min(MOST_RANGES * split_bytes, total // (TASKS_A_CORE * cores)))


def spread(item: Range, limit: int) -> list[Range]:
    """A range in parts of about that size. Of an object store, rows that are stored together stay so: each part would
    fetch them all."""
    remote = bool(item.ref.store.sealed_uri) and item.ref.sealed
    return [item] if remote else split(item, max(1, round(item.bytes / limit)))


def shared_lives(sources: Iterable[Source], lives: dict[str, dict[Life, bytes]]) -> Shared:
    """The lives that several recordings have, and the stretches of time in which at least two of those are there."""
    spans: dict[Life, list[tuple[int, int]]] = {}
    for one in sources:
        if one.first_us is not None and one.last_us is not None:
            for life in lives.get(one.recording, {}):
                spans.setdefault(life, []).append((one.first_us * 1000, (one.last_us + 1) * 1000))
    topics: dict[str, set[int]] = {}
    found: list[tuple[int, int]] = []
    for (topic, epoch), known in spans.items():
        twice = _overlaps(known)
        if twice:
            topics.setdefault(topic, set()).add(epoch)
            found += twice
    return Shared({topic: frozenset(epochs) for topic, epochs in topics.items()}, tuple(_union(found)))


def _overlaps(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found, reach = [], None
    for since, until in sorted(spans):
        if reach is not None and since < reach:
            found.append((since, min(until, reach)))
        reach = until if reach is None else max(reach, until)
    return found


def _union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for since, until in sorted(spans):
        if joined and since <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], until))
        else:
            joined.append((since, until))
    return joined


def _grouped(known: list[tuple[str, str, TableFile]], lo: int, hi: int) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """The files that may have rows in [lo, hi), by topic and table."""
    found: dict[tuple[str, str], list[str]] = {}
    for topic, table, one in known:
        if micros(one.least[PUBLISH_TIME]) * 1000 < hi and (latest(one, PUBLISH_TIME) + 1) * 1000 > lo:
            found.setdefault((topic, table), []).append(one.name)
    return tuple((*key, tuple(names)) for key, names in found.items())


def check_counts(batch: Batch, reports: list[Report]) -> list[TopicCount]:
    """The counts of every topic, if they add up. Rows that are there and could not be read are damaged."""
    counts = totals(count for report in reports for count in report.topics.values())
    for topic, count in counts.items():
        left = sum(report.left_to_slices.get(topic, 0) for report in reports)
        found = sum(report.read_by_slices.get(topic, 0) for report in reports)
        out = count.rows_out + count.quarantined + count.duplicates
        if count.rows_in != out or left != found:
            raise LakeError(
                f"batch {batch.batch}, topic {topic!r}: {count.rows_in} rows in, but {count.rows_out} out + "
                f"{count.quarantined} quarantined + {count.duplicates} duplicates = {out} (of which {left} were "
                f"looked for among several recordings, and {found} found); nothing was committed",
                topic=topic,
            )
    for one in batch.recordings:
        seen = (report.read.get(one.recording, 0) + report.left_out.get(one.recording, 0) for report in reports)
        one.damaged = one.rows - sum(seen)
    read = sum(rows for report in reports for rows in report.read.values())
    if sum(count.rows_in for count in counts.values()) != read:
        raise LakeError(f"batch {batch.batch}: {read} rows in, and the topics have another sum; nothing was committed")
    return [counts[topic] for topic in sorted(counts)]
