"""The lake: a directory of Parquet tables in which every batch is there once, whoever reads it.

    LAKE/
      bronze/date=D/topic=T/b000000012-0000.parquet     every message as recorded
      silver/TOPIC/date=D/b000000012-0000.parquet       one table a topic, decoded, each message once
      quarantine/TOPIC/date=D/b000000012-0000.parquet   what did not decode, with the reason
      gold/TABLE/date=D/t2213.parquet                   one file for each stretch of time, replaced as a whole
      steps/TABLE/date=D/b000000012-0000.parquet        what users' functions made of silver
      _ringmain/lake.json                               settings that must not change between runs
      _ringmain/batches/000000012.json                  the batch is complete; what it was made of
      _ringmain/checkpoint/                             Spark's
      _staging/                                         files on their way; nobody reads them

The invariant owned here: *a batch that runs again replaces itself*. Files carry their batch's number in their names; a
batch that had begun and was not completed is removed before it is written again, and one that was completed is not
written again. So a reader that knows nothing of us (DuckDB, pandas, polars) never sees a row twice. Spark's own file
sink promises this only to readers that understand its `_spark_metadata`.

Files get their names by rename, so the lake must be on a file system where that is atomic: a local disk, NFS, HDFS
mounted, and the like. In object stores, `--format delta` on top of a mounted store is the way.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from ringmain.errors import LakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT_VERSION = 1
BUCKET_S = 60  # of gold: a file for each minute


class Settings(msgspec.Struct, frozen=True):
    """lake.json"""

    format: int = FORMAT_VERSION
    window_s: float = 10.0
    bucket_s: int = BUCKET_S


class Written(msgspec.Struct, frozen=True):
    """A file of a batch."""

    table: str
    path: str  # below the lake
    rows: int
    bytes: int


class TopicCount(msgspec.Struct):
    """Where the rows of one topic went. `rows_in == rows_out + quarantined + duplicates`, or the batch is refused."""

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


class Lake:
    """One lake directory. Made if need be."""

    def __init__(self, root: str | Path, settings: Settings | None = None) -> None:
        self.root = Path(root).absolute()
        self.batches = self.root / "_ringmain" / "batches"
        self.checkpoint = self.root / "_ringmain" / "checkpoint"
        self._staging = self.root / "_staging"
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
        if (self.batches / f"{batch:09d}.json").exists():
            return False
        marker = self.batches / f"{batch:09d}.begun"
        if marker.exists():
            for table in ("bronze", "silver", "quarantine", "steps"):
                for leftover in (self.root / table).rglob(f"{_prefix(batch)}*.parquet"):
                    leftover.unlink()
        shutil.rmtree(self._staging, ignore_errors=True)
        marker.touch()
        return True

    def commit(self, commit: Commit) -> None:
        replace_file(self.batches / f"{commit.batch:09d}.json", msgspec.json.encode(commit))
        (self.batches / f"{commit.batch:09d}.begun").unlink(missing_ok=True)
        shutil.rmtree(self._staging, ignore_errors=True)

    # Tables

    def path(self, table: str) -> Path:
        return self.root / table

    def write(self, frame: DataFrame, table: str, batch: int, partition_by: Sequence[str]) -> list[Written]:
        """Write the rows of a batch to a table, under names that say so."""
        staged = self._stage(frame, f"{batch}/{table}", partition_by)
        moved = []
        for index, file in enumerate(sorted(staged.rglob("*.parquet"))):
            name = file.parent.relative_to(staged) / f"{_prefix(batch)}{index:04d}.parquet"
            moved.append(self._move(file, table, name))
        return moved

    def replace(self, frame: DataFrame, table: str) -> list[Written]:
        """Write rows with columns `date` and `bucket` (HHMM of their stretch of time): each bucket is one file, which
        takes the place of the one that was there."""
        staged = self._stage(frame.repartition("date", "bucket"), f"gold/{table}", ("date", "bucket"))
        moved = []
        for folder in sorted({file.parent for file in staged.rglob("*.parquet")}):
            (file,) = folder.glob("*.parquet")
            name = Path(folder.parent.name) / f"t{folder.name.removeprefix('bucket=')}.parquet"
            moved.append(self._move(file, f"gold/{table}", name))
        return moved

    def read(
        self, spark: SparkSession, table: str, files: Iterable[Written] | None = None, schema: str | None = None
    ) -> DataFrame | None:
        """A table, or some files of it; None when there is nothing. With a schema, Spark need not look into the files
        for one, which costs a job of its own."""
        reader = spark.read.option("basePath", str(self.path(table)))
        reader = reader.schema(schema) if schema is not None else reader.option("mergeSchema", "true")
        if files is not None:
            paths = [str(self.root / file.path) for file in files]
            return reader.parquet(*paths) if paths else None
        if next(self.path(table).rglob("*.parquet"), None) is None:
            return None
        return reader.parquet(str(self.path(table)))

    def silver_topics(self) -> list[str]:
        folder = self.path("silver")
        return sorted(entry.name.replace("~", "/") for entry in folder.iterdir()) if folder.is_dir() else []

    def _stage(self, frame: DataFrame, name: str, partition_by: Sequence[str]) -> Path:
        staged = self._staging / name
        frame.write.mode("overwrite").partitionBy(*partition_by).option("compression", "zstd").parquet(str(staged))
        return staged

    def _move(self, file: Path, table: str, name: Path) -> Written:
        target = self.path(table) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        rows, size = pq.read_metadata(file).num_rows, file.stat().st_size
        os.replace(file, target)
        return Written(table, str(target.relative_to(self.root)), rows, size)


def folder_name(topic: str) -> str:
    """A topic's name as one directory: `camera/left` is `camera~left`. Not percent-escaped: some readers take a path
    for an address and undo that. No topic's name has a tilde."""
    return topic.replace("/", "~")


def silver_table(topic: str) -> str:
    return f"silver/{folder_name(topic)}"


def quarantine_table(topic: str) -> str:
    return f"quarantine/{folder_name(topic)}"


def replace_file(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def _prefix(batch: int) -> str:
    return f"b{batch:09d}-"
