"""A job of Spark that does our own work in its Python workers and reports to the driver what it has done.

Rows do not pass through the JVM: a worker reads and writes files itself, and what comes back is a small report.

An error of ours comes back as a report, too, with its class and fields: as an exception it would be a text of Python
within one of Java, and Spark would try the task again, which cannot help. Other errors are left to Spark's tries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from ringmain.errors import RingmainError
from ringmain.spark._session import label_jobs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")
_COLUMNS = "report binary, error binary"
_SCHEMA = pa.schema([pa.field("report", pa.binary()), pa.field("error", pa.binary())])


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
    spark: SparkSession, count: int, run: Callable[[int], R], kind: type[R], group: str, about: str
) -> list[R]:
    """`run(0)` to `run(count - 1)`, each as a task of one job, and what they return."""
    return run_on_rows(spark.range(0, count, 1, count), _Numbered(run), kind, group, about) if count else []


def run_on_rows(
    frame: DataFrame, work: Callable[[Iterator[pa.RecordBatch]], Iterator[R]], kind: type[R], group: str, about: str
) -> list[R]:
    """What the work makes of the frame's rows, partition by partition. The job is waited for in another thread:
    PySpark's handler of Ctrl-C cancels it through the JVM, which fails with pages of errors in a thread that is in the
    middle of a call to the JVM. `group` and `about`: how Spark shows the job."""

    def collect() -> Any:
        label_jobs(frame.sparkSession, group, about)
        return frame.mapInArrow(_Reported(work), _COLUMNS).collect()

    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(collect).result()
    for row in rows:
        if row.error is not None:
            raise pickle.loads(bytes(row.error))
    return [msgspec.msgpack.decode(bytes(row.report), type=kind) for row in rows]
