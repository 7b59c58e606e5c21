"""`read_lake()`: a table of a lake as a DataFrame. pyarrow reads the files of the table's snapshot in Spark's Python
workers, through the table's own store. So a session needs no jar, and no file system for S3, GCS or Azure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ringmain.spark._source import arrow_of, spark_schema
from ringmain.spark._tables import Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_READERS = 64


@dataclass(frozen=True)
class _ReadFiles:
    lake: Tables
    table: str
    names: tuple[tuple[str, ...], ...]  # by task
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for rows in self.lake.read_files(self.table, self.names[number]):
                    yield from fitted(rows, self.schema).to_batches(65536)


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """With exactly these columns; one that a file does not have is null."""
    there = set(rows.column_names)
    columns = [rows.column(f.name).cast(f.type) if f.name in there else pa.nulls(len(rows), f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def frame_of(spark: SparkSession, lake: Tables, table: str, names: Sequence[str], schema: pa.Schema) -> DataFrame:
    """Some files of a table."""
    plain = arrow_of(spark_schema(pa.schema([f.with_type(delta_type(f.type)) for f in schema])))
    tasks = max(1, min(_READERS, len(names)))
    parts = tuple(tuple(names[n::tasks]) for n in range(tasks))
    return spark.range(0, tasks, 1, tasks).mapInArrow(_ReadFiles(lake, table, parts, plain), spark_schema(plain))


def read_lake(
    spark: SparkSession, lake: str | Tables, table: str, *, version: int | None = None,
    storage_options: dict[str, str] | None = None,
) -> DataFrame:  # fmt: skip
    """A table of a lake, now or at a version: by Spark's own Delta where the session has it, else the files of the
    snapshot, which needs no jar and no file system for the store."""
    found = lake if isinstance(lake, Tables) else Tables(lake, storage_options or {})
    handle = found.table(table, version)
    if "io.delta" in (spark.conf.get("spark.sql.extensions", "") or ""):
        reader = spark.read.format("delta")
        return (reader if version is None else reader.option("versionAsOf", version)).load(f"{found.uri}/{table}")
    schema = pa.schema(handle.schema().to_arrow())
    names = [str(uri).rsplit("/", 1)[-1] for uri in handle.file_uris()]
    return frame_of(spark, found, table, names, schema)


def delta_type(type_: pa.DataType) -> pa.DataType:
    """The type that a Delta table has for it: a duration is whole microseconds."""
    if pa.types.is_duration(type_):
        return pa.int64()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(delta_type(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, delta_type(f.type)) for f in type_])
    if pa.types.is_map(type_):
        return pa.map_(delta_type(type_.key_type), delta_type(type_.item_type))
    return type_
