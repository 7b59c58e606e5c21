"""`build`: the tables of a lake that models are trained on, made by Spark or in this process, and kept up to date.

    train/NAME         the cells of its episodes; its recipe is in the table's metadata
    gold/episodes      a row for each episode, also for those that are refused
    ops/train          how far each data set has come, a row for each (_progress.py)

A build reads what the lake has got since the last one. Of the hosts with new rows, it makes the episodes again that
these may have changed, and those that are new; all others stay.

The invariant owned here: *the table is what the recipe makes of the lake at one moment*. The versions of all tables
that are read are written down before the first is, so a build that died is done again with the same rows.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import ringmain
from ringmain import _crash
from ringmain.datasets._changes import Stretch, added, is_whole
from ringmain.datasets._episodes import Episodes, Span
from ringmain.datasets._grid import Grid
from ringmain.datasets._gridded import EPISODE, one_episode, schema_of
from ringmain.datasets._holes import EPISODES, Verdict, as_rows
from ringmain.datasets._of_lake import OfLake
from ringmain.datasets._progress import BEGUN, DONE, Progress, Progresses
from ringmain.datasets._recipe import RECIPE, recipe
from ringmain.datasets._sources import LOOK_AHEAD_S
from ringmain.datasets._spans import spans_of
from ringmain.errors import InvalidArgument, LakeError
from ringmain.lake import Lake
from ringmain.lake._column_types import delta_type
from ringmain.lake._files import FileSet, Written
from ringmain.lake._health import INCIDENTS
from ringmain.lake._log import Snapshot, TableFile
from ringmain.lake._tables import Change, Tables, latest, micros
from ringmain.recording._decode import conform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Engine = Literal["spark", "local"]
EPISODES_TABLE = "gold/episodes"
EPISODES_SCHEMA = EPISODES.insert(0, pa.field("dataset", pa.string()))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_FILE_BYTES = 128 << 20  # about: an episode is never divided
_TASKS_PER_CORE = 3


class Built(msgspec.Struct):
    """What a build did."""

    made: int = 0
    """Episodes that were made, or made again,"""
    kept: int = 0
    """and of these those that are in the table,"""
    refused: int = 0
    """and those that are not: `gold/episodes` says why."""
    gone: int = 0
    """Episodes that are none any more, as when the end of one was recorded late."""
    steps: int = 0
    seconds: float = 0.0
    engine: str = ""

    def __str__(self) -> str:
        return (
            f"{self.made} episodes made, {self.refused} of them refused, {self.gone} gone; {self.steps} steps, "
            f"{self.seconds:.1f} s{self.engine and ', by '}{self.engine}"
        )


class Report(msgspec.Struct):
    """What a task has done."""

    verdicts: list[Verdict] = []
    files: list[Written] = []


@dataclass(frozen=True)
class Job:
    """All episodes to make, in tasks. Picklable: Spark sends it to its workers."""

    source: OfLake
    grid: Grid
    episodes: Episodes
    table: str
    build: int
    schema: pa.Schema
    tasks: tuple[tuple[Span, ...], ...]

    def run(self, number: int) -> Report:
        files, report, size = FileSet(self.source.lake, self.build), Report(), 0
        for span in self.tasks[number]:
            verdict, cells = one_episode(self.source, self.grid, self.episodes, span)
            report.verdicts.append(verdict)
            if cells is None:
                continue
            for batch in _fitted(cells, self.schema).combine_chunks().to_batches():
                files.put(self.table, batch)
            files.end_group()  # so an episode is found without the others
            size += cells.nbytes
            if size > _FILE_BYTES:
                files.cut()
                size = 0
        report.files = files.close()
        return report


def build(
    lake: Lake | str,
    name: str,
    grid: Grid,
    episodes: Episodes,
    *,
    engine: Engine = "spark",
    spark: SparkSession | None = None,
    master: str | None = None,
    rebuild: bool = False,
) -> Built:
    """Make the table `train/NAME` of a lake, or bring it up to date. `gold/episodes` has its episodes.

    The columns are those that `cells(lake, grid, episodes)` has when the table is first made, and so are the rows.

    engine: the episodes are made by a job of Spark: in the session `spark`, or one that is started, on `master`. With
    "local" this process makes them one after the other, without a JVM.
    rebuild: all episodes are made again, also if a build had begun: for one that died, when upkeep has deleted since
    what it had read.
    """
    if not _NAME.fullmatch(name):
        raise InvalidArgument(f"{name!r}: the name of a data set has letters, digits, - and _, at most 100")
    if engine not in ("spark", "local"):
        raise InvalidArgument(f"engine={engine!r}: choose 'spark' or 'local'")
    if engine == "local" and (spark is not None or master is not None):
        raise InvalidArgument('engine="local" runs without Spark, so it takes no session and no master')
    tables = lake if isinstance(lake, Lake) else Lake(lake)
    tables.check_version()
    run = _runner(engine, spark, master)
    return _Build(tables, name, grid, episodes, run, rebuild).do()


Run = Callable[[Callable[[int], Job]], tuple[list[Report], str]]
"""Of a function from how many tasks there are to the job: (the reports, what ran it)."""


def _runner(engine: Engine, given: SparkSession | None, master: str | None) -> Run:
    def local(job_of: Callable[[int], Job]) -> tuple[list[Report], str]:
        return [job_of(1).run(0)], f"the local engine of ringmain {ringmain.__version__}, without Spark"

    def by_spark(job_of: Callable[[int], Job]) -> tuple[list[Report], str]:
        from ringmain.spark._session import cores_of, prepare, session
        from ringmain.spark._tasks import run_numbered

        spark = session(master=master, brief=True) if given is None else prepare(given)
        job = job_of(cores_of(spark) * _TASKS_PER_CORE)
        about = f"build {job.build} of {job.table}: {sum(map(len, job.tasks))} episodes"
        reports = run_numbered(spark, len(job.tasks), job.run, Report, f"ringmain {job.table}", about)
        return reports, f"Spark {spark.version}"

    return local if engine == "local" else by_spark


@dataclass
class _Build:
    lake: Lake
    name: str
    grid: Grid
    episodes: Episodes
    run: Run
    rebuild: bool
    built: Built = field(default_factory=Built)

    @property
    def table(self) -> str:
        return f"train/{self.name}"

    def do(self) -> Built:
        began = time.monotonic()
        progresses, wanted = Progresses(self.lake, self.name), recipe(self.grid, self.episodes)
        last = progresses.last()
        if last is not None and last.recipe != wanted:
            raise LakeError(f"{self.table} of {self.lake.uri} has another recipe, {last.recipe}: use another name")
        topics = self.episodes.needs(self.grid.topics)
        if last is not None and last.state == BEGUN and not self.rebuild:
            now = last
            self._check_readable(now)
        else:
            before = {} if last is None or self.rebuild else last.versions
            versions = dict(OfLake(self.lake).pinned(topics).versions)
            same = last is not None and self._same(versions, before) and self.episodes.table is None
            if same and not self.rebuild:
                return self.built
            there = self.lake.snapshot(EPISODES_TABLE)
            number, known = 0 if last is None else last.build + 1, -1 if there is None else there.version
            now = Progress(self.name, number, BEGUN, wanted, versions, before, known, self.rebuild)
            progresses.put(now)
        _crash.point("build: begun, nothing written")
        self._make(now)
        _crash.point("build: tables committed, not done")
        progresses.put(msgspec.structs.replace(now, state=DONE))
        self.built.seconds = time.monotonic() - began
        return self.built

    def _same(self, versions: dict[str, int], before: dict[str, int]) -> bool:
        """Is there nothing new to read?"""
        names = {*versions, *before} - (set() if self.episodes.incidents else {INCIDENTS.name})
        return all(versions.get(name) == before.get(name) for name in names)

    def _check_readable(self, begun: Progress) -> None:
        """Raises if upkeep has deleted what a build that died had begun to read."""
        for name, version in [*begun.versions.items(), (EPISODES_TABLE, begun.episodes_version)]:
            if version >= 0 and not is_whole(self.lake, name, version):
                raise LakeError(
                    f"a build of {self.table} of {self.lake.uri} died, and cannot go on: it had read version {version} "
                    f"of {name}, of which upkeep has deleted files. build(..., rebuild=True) makes all episodes again"
                )

    def _make(self, now: Progress) -> None:
        source = OfLake(self.lake, now.versions)
        known = self._known(now.episodes_version)
        todo, gone = self._changed(source, known, now.before)
        if now.whole:
            gone = {*known.column("episode").to_pylist()} - {span.id for span in todo}
        schema = self._schema(source)

        def job_of(tasks: int) -> Job:
            edges = np.linspace(0, len(todo), min(tasks, len(todo)) + 1).astype(int).tolist()
            packed = tuple(tuple(todo[first:end]) for first, end in pairwise(edges))
            return Job(source, self.grid, self.episodes, self.table, now.build, schema, packed)

        reports, self.built.engine = self.run(job_of) if todo else ([], "")
        files = [one for report in reports for one in report.files]
        self._check_files(files)
        verdicts = sorted((v for report in reports for v in report.verdicts), key=lambda v: (v.host, v.begin, v.end))
        again = {one.id for one in todo}
        old = [row for row in known.to_pylist() if row["episode"] in again or row["episode"] in gone]
        _crash.point("build: files written, not committed")
        self._commit_cells(now, schema, files, old)
        _crash.point("build: cells committed, episodes not")
        self._commit_episodes(now.build, verdicts, old)
        self.built.made, self.built.gone = len(verdicts), len(gone)
        self.built.refused = sum(one.refused for one in verdicts)
        self.built.kept = self.built.made - self.built.refused
        self.built.steps = sum(one.steps for one in verdicts if not one.refused)

    def _known(self, version: int) -> pa.Table:
        """The rows that this data set has in the table of episodes, when the build began."""
        if version < 0:
            return EPISODES_SCHEMA.empty_table()
        rows = self.lake.dataset(EPISODES_TABLE, version).to_table(filter=pc.field("dataset") == self.name)
        return _fitted(rows, EPISODES_SCHEMA)

    def _changed(self, source: OfLake, known: pa.Table, before: dict[str, int]) -> tuple[list[Span], set[str]]:
        """(episodes to make, those known that are none any more), of the hosts that have new rows."""
        stretches = [
            one
            for table, version in source.versions.items()
            if table != INCIDENTS.name
            for one in added(self.lake, table, before.get(table, -1), version)
        ]
        own = {span.host for span in self.episodes.table or ()}
        own |= {host for host, _ in source.all_incidents()} if self.episodes.incidents else set()
        there = dict(zip(known.column("episode").to_pylist(), known.column("host").to_pylist(), strict=True))
        todo, gone = [], set[str]()
        for host in sorted({*source.hosts(), *own}):
            new = [one for one in stretches if one.may_have(host)]
            if not new and host not in own:
                continue
            spans = spans_of(self.episodes, source, host, list(self.grid.topics))
            todo += [span for span in spans if span.id not in there or any(_touches(one, span) for one in new)]
            gone |= {id for id, of in there.items() if of == host} - {span.id for span in spans}
        return todo, gone

    def _schema(self, source: OfLake) -> pa.Schema:
        """Of the table, as it is; a field that a topic gets later is not in it."""
        there = self.lake.schema(self.table)
        if there is not None:
            return there
        return pa.schema([f.with_type(delta_type(f.type)) for f in schema_of(source, self.grid)])

    def _check_files(self, files: Sequence[Written]) -> None:
        """Raises if workers have written to disks of their own."""
        for one in files if self.lake.is_local else ():
            if not os.path.exists(f"{self.lake.uri}/{one.table}/{one.name}"):
                raise LakeError(
                    f"Spark's workers wrote to {self.lake.uri}, and {one.table}/{one.name} is not here: put the lake "
                    "on a file system that all of them share, or in an object store"
                )

    def _commit_cells(self, now: Progress, schema: pa.Schema, files: list[Written], old: list[dict[str, Any]]) -> None:
        made: list[Written] = []
        replaced = [row for row in old if row["state"] != "refused"]

        def change(found: Snapshot | None) -> Change:
            hit, rest = _without(self.lake, self.table, found, "rm_time", EPISODE, replaced, schema)
            if now.whole:  # a build that died may have left episodes that no table of episodes knows
                hit, rest = [] if found is None else found.files(), []
            made.extend(self._written(now.build, self.table, rest))
            properties = {RECIPE: msgspec.json.encode(now.recipe).decode()}
            return Change(schema, [*files, *made], hit, ("rm_host", "rm_time"), properties)

        if not self.lake.commit(self.table, now.build, change, f"ringmain.train.{self.name}"):
            self.lake.discard([*files, *made])

    def _commit_episodes(self, number: int, verdicts: list[Verdict], old: list[dict[str, Any]]) -> None:
        rows = as_rows(verdicts)
        rows = rows.add_column(0, EPISODES_SCHEMA.field("dataset"), pa.repeat(pa.scalar(self.name), len(rows)))
        made: list[Written] = []

        def change(found: Snapshot | None) -> Change:
            hit, rest = _without(self.lake, EPISODES_TABLE, found, "begin", "episode", old, EPISODES_SCHEMA, self.name)
            together = pa.concat_tables([*rest, rows])
            made.extend(self._written(number, EPISODES_TABLE, [together] if len(together) else []))
            return Change(EPISODES_SCHEMA, made, hit, ("host", "begin"))

        if not self.lake.commit(EPISODES_TABLE, number, change, f"ringmain.train.{self.name}"):
            self.lake.discard(made)

    def _written(self, number: int, table: str, parts: list[pa.Table]) -> list[Written]:
        files = FileSet(self.lake, number)
        for part in parts:
            for batch in part.combine_chunks().to_batches():
                files.put(table, batch)
            files.cut()
        return files.close()


def _without(
    lake: Tables, table: str, found: Snapshot | None, time: str, column: str, old: list[dict[str, Any]],
    schema: pa.Schema, dataset: str | None = None,
) -> tuple[list[TableFile], list[pa.Table]]:  # fmt: skip
    """(the files of a table that have rows of these episodes, what else is in each)."""
    if found is None or not old:
        return [], []
    ids = pa.array([row["episode"] for row in old])
    hit, rest = [], []
    for one in found.files():
        if one.least.get(time) is not None and not any(
            micros(one.least[time]) <= micros(row["end"]) and latest(one, time) >= micros(row["begin"]) for row in old
        ):
            continue
        (rows,) = lake.read_files(table, [one.name])
        gone = pc.is_in(rows.column(column), ids)
        if dataset is not None:
            gone = pc.and_(gone, pc.equal(rows.column("dataset"), dataset))
        if pc.any(gone).as_py():
            hit.append(one)
            left = rows.filter(pc.invert(gone))
            rest += [_fitted(left, schema)] if len(left) else []
    return hit, rest


def _touches(one: Stretch, span: Span) -> bool:
    """May these rows change the episode? What is lost at its end is counted in the message after it."""
    return one.first_us < span.end_us + LOOK_AHEAD_S * 1_000_000 and one.last_us >= span.begin_us


def _fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """With the types of a table, whatever fields its topics have by now."""
    return pa.table([conform(rows.column(f.name), f.type) for f in schema], schema=schema)
