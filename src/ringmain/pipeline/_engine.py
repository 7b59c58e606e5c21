"""What runs the tasks of a batch: Spark, or this process. The tasks are the same, and so is the lake.

The invariant owned here: *the engine is the one that was asked for*. Every batch is a job of Spark, however small, and
only `engine="local"` runs without.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeVar

import ringmain
from ringmain.errors import InvalidArgument, SparkUnavailable
from ringmain.spark import _tasks
from ringmain.spark._session import cores_of, is_connect, prepare, session
from ringmain.spark._tasks import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EngineName = Literal["spark", "local"]
NAMES: tuple[EngineName, ...] = ("spark", "local")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Identity(NamedTuple):
    """Which engine, as the ledger has it."""

    engine: EngineName
    version: str
    application: str


class Tasks(Protocol[R_co]):
    """Tasks of a batch, which have numbers. Picklable; what a task returns is a Struct or a list of them."""

    @property
    def batch(self) -> int: ...

    def __len__(self) -> int: ...

    def run(self, number: int) -> R_co: ...


class Engine(Protocol):
    """Runs the tasks of batches."""

    def start(self) -> Identity:
        """Start it, unless it runs. Raises if it does not start."""

    def cores(self) -> int:
        """How many tasks it runs at once, as far as is known."""

    def run(self, work: Tasks[R], kind: type[R], about: str, progress: Progress | None = None) -> list[R]:
        """Run all these tasks, each of which returns one `kind`. `about` is shown to those who look at the engine, and
        `progress` is told how many tasks are done, if that takes long."""

    def show(self, batch: int, about: str) -> None:
        """Tell those who look at the engine what a batch has come to."""

    def spark(self) -> SparkSession:
        """The session for users' functions, which are of DataFrames."""

    def errors(self) -> tuple[type[Exception], ...]:
        """What it raises when its tasks fail, around their own errors."""


class LocalEngine:
    """The tasks one after the other in this process, without a JVM."""

    def start(self) -> Identity:
        return Identity("local", ringmain.__version__, "")

    def cores(self) -> int:
        return 1

    def run(self, work: Tasks[R], kind: type[R], about: str, progress: Progress | None = None) -> list[R]:
        reports, due = list[R](), time.monotonic() + _tasks.PROGRESS_S
        for number in range(len(work)):
            if progress is not None and time.monotonic() >= due:
                progress(number, len(work))
                due = time.monotonic() + _tasks.PROGRESS_S
            reports.append(work.run(number))
        return reports

    def show(self, batch: int, about: str) -> None:
        pass

    def spark(self) -> SparkSession:
        raise SparkUnavailable('steps and aligned tables are made by Spark, and engine="local" runs without it')

    def errors(self) -> tuple[type[Exception], ...]:
        return ()


class SparkEngine:
    """The tasks as a job of Spark, in one session for all batches of a run."""

    def __init__(self, given: SparkSession | None, master: str | None, *, brief: bool) -> None:
        self._given, self._master, self._brief = given, master, brief
        self._session: SparkSession | None = None
        self._cores = 0  # of a server, which is asked once

    def start(self) -> Identity:
        spark = self.spark()
        return Identity("spark", spark.version, spark.conf.get("spark.app.id", "") or "")

    def cores(self) -> int:
        spark = self.spark()
        self._cores = self._cores if self._cores and is_connect(spark) else cores_of(spark)
        return self._cores

    def run(self, work: Tasks[R], kind: type[R], about: str, progress: Progress | None = None) -> list[R]:
        return _tasks.run_numbered(self.spark(), len(work), work.run, kind, _group(work.batch), about, progress)

    def show(self, batch: int, about: str) -> None:
        _tasks.show(self.spark(), _group(batch), about)

    def spark(self) -> SparkSession:
        if self._session is None:
            given = self._given
            self._session = session(master=self._master, brief=self._brief) if given is None else prepare(given)
        return self._session

    def errors(self) -> tuple[type[Exception], ...]:
        if self._session is None:
            return ()
        from pyspark.errors import PySparkException

        return (PySparkException,)


def _group(batch: int) -> str:
    """The group of all its jobs."""
    return f"ringmain batch {batch}"


def choose_engine(name: str, spark: SparkSession | None, master: str | None, *, brief: bool) -> Engine:
    """Raises InvalidArgument for an unknown engine, or for settings of Spark beside one that is not."""
    if name not in NAMES:
        raise InvalidArgument(f"engine={name!r}: choose one of {', '.join(map(repr, NAMES))}")
    if name == "spark":
        return SparkEngine(spark, master, brief=brief)
    if spark is not None or master is not None:
        raise InvalidArgument('engine="local" runs without Spark, so it takes no session and no master (--master)')
    return LocalEngine()
