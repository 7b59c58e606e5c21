"""A job of Spark that does our own work in its Python workers and reports to the driver what it has done.

Rows do not pass through the JVM: a worker reads and writes files itself, and what comes back is a small report.

An error of ours comes back as a report, too, with its class and fields: as an exception it would be a text of Python
within one of Java, and Spark would try the task again, which cannot help. Other errors are left to Spark's tries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
import pyarrow as pa

from ringmain.errors import RingmainError
from ringmain.spark._session import is_connect, label_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")
_COLUMNS = "report binary, error binary"
_SCHEMA = pa.schema([pa.field("report", pa.binary()), pa.field("error", pa.binary())])
PROGRESS_S = 10.0
Progress: TypeAlias = Callable[[int, int], None]
"""Is told how many tasks are done, and how many there are."""


@dataclass(frozen=True)
class _Numbered:
    """Runs the tasks whose numbers a worker gets."""

    run: Callable[[int], Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self.run(number)


@dataclass(frozen=True)
class _Reported:
    """The reports as rows that Spark carries."""

    work: Callable[[Iterator[pa.RecordBatch]], Iterator[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            for report in self.work(batches):
                yield _row(msgspec.msgpack.encode(report), None)
        except RingmainError as error:
            yield _row(None, pickle.dumps(error))


def _row(report: bytes | None, error: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([one], pa.binary()) for one in (report, error)], schema=_SCHEMA)


def run_numbered(
    spark: SparkSession, count: int, run: Callable[[int], R], kind: type[R], group: str, about: str,
    progress: Progress | None = None,
) -> list[R]:  # fmt: skip
    """`run(0)` to `run(count - 1)`, each as a task of one job, and what they return."""
    if not count:
        return []
    return run_on_rows(spark.range(0, count, 1, count), _Numbered(run), kind, group, about, progress)


def run_on_rows(
    frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[R]], kind: type[R], group: str, about: str,
    progress: Progress | None = None,
) -> list[R]:  # fmt: skip
    """What the work makes of the frame's rows, partition by partition. The job is waited for in another thread:
    PySpark's handler of Ctrl-C cancels it through the JVM, which fails with pages of errors in a thread that is in the
    middle of a call to the JVM. `group` and `about`: how Spark shows the job. `progress` is told how far it is every
    PROGRESS_S."""
    spark = frame.sparkSession

    def collect() -> Any:
        label_jobs(spark, group, about)
        return frame.mapInArrow(_Reported(work), _COLUMNS).collect()

    with _watched(spark, group) as tasks_done, ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(collect)
        while not wait([waiting], PROGRESS_S if progress is not None else None).done:
            done, tasks = pool.submit(tasks_done).result()
            if progress is not None and done < tasks:
                progress(done, tasks)
        rows = waiting.result()
    for row in rows:
        if row.error is not None:
            raise pickle.loads(bytes(row.error))
    return [msgspec.msgpack.decode(bytes(row.report), type=kind) for row in rows]


def show(spark: SparkSession, group: str, about: str) -> None:
    """An entry in Spark's pages, if it has pages: a query of no task, for its description. Numbers that tasks of Python
    know have no other place there: their accumulators have no names, and Spark shows no metrics of `observe`."""
    wanted = ("spark.ui.enabled", "true"), ("spark.eventLog.enabled", "false")
    if is_connect(spark) or all(spark.conf.get(name, usual) != "true" for name, usual in wanted):
        return

    def ask() -> None:
        label_jobs(spark, group, about)
        spark.sql("values (0)").collect()

    with ThreadPoolExecutor(1) as pool:  # the label is of the thread
        pool.submit(ask).result()


@contextmanager
def _watched(spark: SparkSession, group: str) -> Iterator[Callable[[], tuple[int, int]]]:
    """What says of the jobs that run: (tasks that are done, all tasks). Of those of the group; to a client of Spark
    Connect the server tells, every two seconds, how far its newest query is."""
    if not is_connect(spark):
        yield partial(_tasks_done, spark, group)
        return
    client: Any = spark
    told = 0, 0

    def listen(stages: Iterable[Any] | None, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        nonlocal told
        known = [(stage.num_completed_tasks, stage.num_tasks) for stage in stages or ()]
        told = sum(done for done, _ in known), sum(tasks for _, tasks in known)

    client.registerProgressHandler(listen)
    try:
        yield lambda: told
    finally:
        client.removeProgressHandler(listen)


def _tasks_done(spark: SparkSession, group: str) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    running = {*tracker.getJobIdsForGroup(group)} & {*tracker.getActiveJobsIds()}
    jobs = (tracker.getJobInfo(job) for job in running)
    stages = (tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds)
    known = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
    return sum(done for done, _ in known), sum(tasks for _, tasks in known)
