"""The lake: a directory of Parquet tables in which every batch appears exactly once, for every reader.

    LAKE/
      bronze/date=D/topic=T/b000000012-0000.parquet     every message as recorded
      silver/TOPIC/date=D/b000000012-0000.parquet       one table a topic, decoded, each message once
      quarantine/TOPIC/date=D/b000000012-0000.parquet   what did not decode, with the reason
      gold/TABLE/date=D/t2213.parquet                   one file for each stretch of time, replaced as a whole
      steps/TABLE/date=D/b000000012-0000.parquet        what users' functions made of silver
      _ringmain/lake.json                               settings that must not change between runs
      _ringmain/batches/000000012.json                  the batch is complete; what it was made of
      _ringmain/folded.json                             the sums of older batches, whose own files are gone
      _ringmain/checkpoint/                             Spark's
      _ringmain/undo/000000012/                         files that an unfinished batch has replaced
      _staging/                                         files of unfinished batches; not read

The invariant owned here: *a batch that runs again replaces itself*. Files carry their batch's number in their names
(that of the first, where small files were joined: install.py); a batch that had begun and was not completed is taken
back before it is written again, and one that was completed is not written again. So a reader that knows nothing of us
(DuckDB, pandas, polars) never sees a row twice. Spark's own file sink promises this only to readers that understand its
`_spark_metadata`.

Files get their names by rename, so the lake must be on a file system where that is atomic: a local disk, NFS, HDFS
mounted, and the like. In object stores, `--format delta` on top of a mounted store is the way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow.parquet as pq

from ringmain.errors import LakeError
from ringmain.pipeline._install import Staged, Written, install, take_back
from ringmain.recording._checksum import replace_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT_VERSION = 1
BUCKET_S = 60  # of gold: a file for each minute
KEPT_COMMITS = 200  # older ones are folded into one file, or following a recording would leave thousands a day


class Settings(msgspec.Struct, frozen=True):
    """lake.json"""

    format: int = FORMAT_VERSION
    window_s: float = 10.0
    bucket_s: int = BUCKET_S


class TopicCount(msgspec.Struct):
    """The row counts of one topic. `rows_in == rows_out + quarantined + duplicates`, or the batch is refused."""

    topic: str
    rows_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    duplicates: int = 0
    lost: int = 0
    bytes: int = 0


class Commit(msgspec.Struct):
    """batches/N.json: written when all else is in place. `newest` is carried from batch to batch: the largest sequence
    number so far of each life of each topic, by which later batches know whether they can hold duplicates at all."""

    batch: int
    topics: list[TopicCount]
    files: list[Written]
    newest: dict[str, int]
    seconds: float = 0.0


class Folded(msgspec.Struct):
    """folded.json: what the batches up to `batch` came to."""

    batch: int = -1
    topics: list[TopicCount] = msgspec.field(default_factory=list)


class Lake:
    """One lake directory. Made if need be. join_small: keep small files few, see install.py; not with Delta, whose log
    names every file."""

    def __init__(self, root: str | Path, settings: Settings | None = None, *, join_small: bool = True) -> None:
        self.root = Path(root).absolute()
        self._join_small = join_small
        self.batches = self.root / "_ringmain" / "batches"
        self.checkpoint = self.root / "_ringmain" / "checkpoint"
        self._staging = self.root / "_staging"
        self._undo = self.root / "_ringmain" / "undo"
        self.batches.mkdir(parents=True, exist_ok=True)
        self.settings = self._agree(settings or Settings())
        if self.commits() and not self.checkpoint.is_dir():
            raise LakeError(
                f"{self.root} holds batches, but its checkpoint ({self.checkpoint}) is gone: what was processed is not "
                "known any more. Build a new lake, or put the checkpoint back"
            )

    def _agree(self, wanted: Settings) -> Settings:
        path = self.root / "_ringmain" / "lake.json"
        if not path.exists():
            replace_file(path, msgspec.json.encode(wanted))
            return wanted
        there = msgspec.json.decode(path.read_bytes(), type=Settings)
        if there != wanted:
            raise LakeError(f"{self.root} was built with {there}, not with {wanted}: use the same, or a new directory")
        return there

    # Batches

    def commits(self) -> list[int]:
        return sorted(int(path.stem) for path in self.batches.glob("*.json"))

    def last(self) -> Commit | None:
        numbers = self.commits()
        return self.read_commit(numbers[-1]) if numbers else None

    def read_commit(self, batch: int) -> Commit:
        return msgspec.json.decode((self.batches / f"{batch:09d}.json").read_bytes(), type=Commit)

    def begin(self, batch: int) -> bool:
        """May this batch be written? Not if it is complete. What an earlier try left is removed."""
        if batch <= self.folded().batch or (self.batches / f"{batch:09d}.json").exists():
            return False
        marker = self.batches / f"{batch:09d}.begun"
        if marker.exists():
            take_back(self.root, self._undo / f"{batch:09d}", batch)
        shutil.rmtree(self._undo, ignore_errors=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        marker.touch()
        return True

    def commit(self, commit: Commit) -> None:
        replace_file(self.batches / f"{commit.batch:09d}.json", msgspec.json.encode(commit))
        (self.batches / f"{commit.batch:09d}.begun").unlink(missing_ok=True)
        shutil.rmtree(self._undo, ignore_errors=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        self._fold()

    def folded(self) -> Folded:
        return _read_folded(self.root)

    def _fold(self) -> None:
        """Add the oldest commits to the sums. The sums say how far they go, so dying in between adds nothing twice."""
        numbers = self.commits()
        if len(numbers) < 2 * KEPT_COMMITS:
            return
        folded = self.folded()
        for number in numbers[:-KEPT_COMMITS]:
            if number > folded.batch:
                folded = Folded(number, add_topics(folded.topics, self.read_commit(number).topics))
        replace_file(self.batches.parent / "folded.json", msgspec.json.encode(folded))
        for number in numbers[:-KEPT_COMMITS]:
            (self.batches / f"{number:09d}.json").unlink()

    # Tables

    def path(self, table: str) -> Path:
        return self.root / table

    def staging(self, batch: int) -> Path:
        """Where files of a batch are made."""
        return self._staging / str(batch)

    def stage(self, frame: DataFrame, table: str, batch: int, partition_by: Sequence[str]) -> list[Staged]:
        """Has Spark write the rows of a batch to a directory that readers do not see."""
        folder = self.staging(batch) / table
        _write(frame, folder, partition_by)
        return [self.staged(table, file, batch) for file in folder.rglob("*.parquet")]

    def staged(self, table: str, file: Path, batch: int) -> Staged:
        folder = file.parent.relative_to(self.staging(batch) / table)
        return Staged(table, file, folder, pq.read_metadata(file).num_rows)

    def install(self, staged: Iterable[Staged], batch: int) -> list[Written]:
        """Move the staged files of a batch to where they are read."""
        return install(self.root, self._undo / f"{batch:09d}", staged, batch, join=self._join_small)

    def replace(self, frame: DataFrame, table: str, *, small: bool = False) -> None:
        """Write rows with columns `date` and `bucket` (HHMMSS of their stretch of time): each bucket is one file, which
        takes the place of the one that was there. small: it is all in one partition already."""
        staged = self._staging / "gold" / table
        _write(frame if small else frame.repartition("date", "bucket"), staged, ("date", "bucket"))
        for folder in sorted({file.parent for file in staged.rglob("*.parquet")}):
            (file,) = folder.glob("*.parquet")
            target = self.path(f"gold/{table}") / folder.parent.name / f"t{folder.name.removeprefix('bucket=')}.parquet"
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)

    def read_staged(
        self, spark: SparkSession, staged: Sequence[Staged], batch: int, schema: str | None = None
    ) -> DataFrame:
        """Staged files of one table, of which there must be some."""
        reader = spark.read.option("basePath", str(self.staging(batch) / staged[0].table))
        reader = reader.schema(schema) if schema is not None else reader.option("mergeSchema", "true")
        return reader.parquet(*sorted({str(one.file.parent) for one in staged}))

    def read(
        self, spark: SparkSession, table: str, *, dates: Iterable[Any] | None = None, schema: str | None = None
    ) -> DataFrame | None:
        """A table, or some days of it; None when there is nothing. Naming days keeps Spark from listing all the others,
        and with a schema it need not look into files for one."""
        root = self.path(table)
        folders = [root] if dates is None else [root / f"date={date}" for date in dates]
        there = [str(folder) for folder in folders if next(folder.rglob("*.parquet"), None) is not None]
        if not there:
            return None
        reader = spark.read.option("basePath", str(root))
        reader = reader.schema(schema) if schema is not None else reader.option("mergeSchema", "true")
        return reader.parquet(*there)


def totals(root: Path) -> list[TopicCount]:
    """The row counts of a lake by topic, over all its batches."""
    folded = _read_folded(root)
    sums = folded.topics
    for path in (root / "_ringmain" / "batches").glob("*.json"):
        if int(path.stem) > folded.batch:
            sums = add_topics(sums, msgspec.json.decode(path.read_bytes(), type=Commit).topics)
    return sums


def _read_folded(root: Path) -> Folded:
    path = root / "_ringmain" / "folded.json"
    return msgspec.json.decode(path.read_bytes(), type=Folded) if path.exists() else Folded()


def add_topics(some: list[TopicCount], more: list[TopicCount]) -> list[TopicCount]:
    """The sums of both, by topic."""
    sums = {count.topic: msgspec.structs.replace(count) for count in some}
    for count in more:
        known = sums.setdefault(count.topic, TopicCount(count.topic))
        for name in ("rows_in", "rows_out", "quarantined", "duplicates", "lost", "bytes"):
            setattr(known, name, getattr(known, name) + getattr(count, name))
    return list(sums.values())


def _write(frame: DataFrame, folder: Path, partition_by: Sequence[str]) -> None:
    frame.write.mode("overwrite").partitionBy(*partition_by).option("compression", "zstd").parquet(str(folder))


def folder_name(topic: str) -> str:
    """A topic's name as one directory: `camera/left` is `camera~left`. Not percent-escaped: some readers take a path
    for an address and undo that. No topic's name has a tilde."""
    return topic.replace("/", "~")


def silver_table(topic: str) -> str:
    return f"silver/{folder_name(topic)}"


def quarantine_table(topic: str) -> str:
    return f"quarantine/{folder_name(topic)}"
