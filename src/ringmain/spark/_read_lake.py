"""`read_lake()`: a table of a lake as a DataFrame of the files of its snapshot, so a session needs no jar. Spark's own
Parquet reader reads them, which leaves out columns, files and row groups that a query does not need. In a store for
which the session has no file system, or whose credentials only the lake has, pyarrow does, in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa

from ringmain.lake._bronze import ALWAYS, BRONZE, taken
from ringmain.lake._column_types import delta_type, fitted
from ringmain.lake._comments import comments_of
from ringmain.lake._ledger import Source
from ringmain.lake._positions import sources_of
from ringmain.lake._tables import Tables, overlapping
from ringmain.spark._options import STORAGE
from ringmain.spark._read import HADOOP_SCHEMES, has_file_system
from ringmain.spark._source import arrow_of, format_ranges, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READERS = 64
_PATTERNS = set("*?[]{}\\")
_NULL = "__HIVE_DEFAULT_PARTITION__"  # of a column of partitions


@dataclass(frozen=True)
class _ReadFiles:
    lake: Tables
    table: str
    names: tuple[tuple[str, ...], ...]  # by task
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                names = self.names[number]
                for name, rows in zip(names, self.lake.read_files(self.table, names), strict=True):
                    yield from fitted(_with_parts(name, rows), self.schema).to_batches(65536)


def frame_of(spark: SparkSession, lake: Tables, table: str, names: Sequence[str], schema: pa.Schema) -> DataFrame:
    """Some files of a table."""
    plain = arrow_of(spark_schema(pa.schema([f.with_type(delta_type(f.type)) for f in schema])))
    address = _address(spark, lake)
    if names and address is not None and not _PATTERNS & set().union(*names):
        shown, comments = spark_schema(plain), comments_of(schema)
        for column in shown.fields:
            column.metadata |= {"comment": comments[column.name]} if column.name in comments else {}
        reader = spark.read.schema(shown).option("basePath", f"{address}/{table}")  # directories below it are columns
        return reader.parquet(*(f"{address}/{table}/{name}" for name in names))
    tasks = max(1, min(_READERS, len(names)))
    parts = tuple(tuple(names[n::tasks]) for n in range(tasks))
    return spark.range(0, tasks, 1, tasks).mapInArrow(_ReadFiles(lake, table, parts, plain), spark_schema(plain))


def _with_parts(name: str, rows: pa.Table) -> pa.Table:
    """With the columns that the file does not have because its directories say them: a table that another writer has
    partitioned, `kind=a/part-0.parquet`."""
    for directory in name.split("/")[:-1]:
        column, _, value = directory.partition("=")
        known = None if value == _NULL else unquote(value)
        rows = rows.append_column(column, pa.repeat(pa.scalar(known, pa.string()), len(rows)))
    return rows


def _address(spark: SparkSession, lake: Tables) -> str | None:
    """The lake's address for Spark's own reader; None if that cannot read it. It takes some characters for patterns."""
    if _PATTERNS & set(lake.uri):
        return None
    if lake.is_local:
        return f"file://{lake.uri}"
    scheme, _, rest = lake.uri.partition("://")
    scheme = HADOOP_SCHEMES.get(scheme, scheme)
    return f"{scheme}://{rest}" if not lake.storage_options and has_file_system(spark, scheme) else None


def frame_between(
    spark: SparkSession, lake: Tables, table: str, time: str, first_us: int, last_us: int
) -> DataFrame | None:
    """The rows of a table that may be within these times, None when there is no such table."""
    found = lake.snapshot(table)
    if found is None:
        return None
    names = [one.name for one in overlapping(found, time, first_us, last_us)]
    return frame_of(spark, lake, table, names, found.schema)


def bronze_frame(
    spark: SparkSession,
    lake: Tables,
    sources: list[Source],
    span: tuple[int, int] = ALWAYS,
    fail_on_loss: bool = True,
) -> DataFrame:
    """Messages as recorded, of the recordings up to where the ledger says, that may be within a span of time."""
    found = frame_between(spark, lake, BRONZE, "publish_time", *span)
    if found is not None:
        return found.drop("recording")
    ranges = format_ranges(taken(sources, lake.storage_options, *span, fail_on_loss))
    reader = spark.read.format("ringmain").option("positions", "true").option("host", "true").option("ranges", ranges)
    reader = reader.options(**{f"{STORAGE}{name}": value for name, value in lake.storage_options.items()})
    return reader.option("failOnDataLoss", str(fail_on_loss).lower()).load(lake.uri)


def read_lake(
    spark: SparkSession, lake: str | Tables, table: str, *, version: int | None = None,
    storage_options: dict[str, str] | None = None,
) -> DataFrame:  # fmt: skip
    """A table of a lake, now or at a version: by Spark's own Delta where the session has it, else from the files of
    the snapshot, which needs no jar and no file system for the store. `bronze` is every message that the lake has
    taken, as recorded, also where it is no table."""
    found = lake if isinstance(lake, Tables) else Tables(lake, storage_options or {})
    if table == BRONZE:
        return bronze_frame(spark, found, sources_of(found))
    handle = found.table(table, version)
    if "io.delta" in (spark.conf.get("spark.sql.extensions", "") or ""):
        reader = spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(f"{found.uri}/{table}")
    schema = pa.schema(handle.schema().to_arrow())
    parts = len(handle.metadata().partition_columns)  # each a directory
    names = ["/".join(str(uri).rsplit("/", parts + 1)[1:]) for uri in handle.file_uris()]
    return frame_of(spark, found, table, names, schema)
