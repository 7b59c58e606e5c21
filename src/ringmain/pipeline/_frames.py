"""Spark's DataFrames from and to the lake, for users' functions. pyarrow writes the files in Spark's Python workers,
through the same store as the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from ringmain.errors import LakeError
from ringmain.pipeline._ledger import Ledger, Source
from ringmain.pipeline._source import taken
from ringmain.pipeline._work import REPORT_SCHEMA, run_tasks
from ringmain.spark._options import STORAGE
from ringmain.spark._read_lake import delta_type, frame_of
from ringmain.spark._scan import Scan, source_schema
from ringmain.spark._source import arrow_of, format_ranges
from ringmain.spark._tables import Change, FileSet, Tables, Written, overlapping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MINUTE_US = 60_000_000
_ALWAYS = (-(1 << 62), 1 << 62)


@dataclass(frozen=True)
class _WriteRows:
    lake: Tables
    table: str
    batch: int
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = FileSet(self.lake, self.batch)
        for batch in batches:
            if len(batch):
                arrays = [array.cast(f.type) for array, f in zip(batch.columns, self.schema, strict=True)]
                files.add(self.table, pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        done = msgspec.msgpack.encode(files.close())
        yield pa.RecordBatch.from_arrays([pa.array([done], pa.binary())], schema=REPORT_SCHEMA)


def silver_frame(spark: SparkSession, lake: Tables, table: str, first_us: int, last_us: int) -> DataFrame | None:
    """The rows of a table that may be within these times, None when there is no such table."""
    found = lake.load(table)
    if found is None:
        return None
    names = [one.name for one in overlapping(found, "publish_time", first_us, last_us)]
    return frame_of(spark, lake, table, names, pa.schema(found.schema().to_arrow()))


def write_frame(frame: DataFrame, lake: Tables, table: str, batch: int) -> tuple[pa.Schema, list[Written]]:
    """Have the workers write a frame's rows, which are not committed yet."""
    schema = pa.schema([pa.field(f.name, delta_type(f.type)) for f in arrow_of(frame.schema)])
    found = run_tasks(frame, _WriteRows(lake, table, batch, schema), list[Written])
    return schema, [one for files in found for one in files]


def append(frame: DataFrame, lake: Tables, table: str, batch: int) -> None:
    schema, files = write_frame(frame, lake, table, batch)
    if files and not lake.commit(table, batch, lambda found: Change(schema, files)):
        lake.discard(files)


def replace(frame: DataFrame, lake: Tables, table: str, batch: int, time: str, minutes: list[int]) -> None:
    """The rows of these minutes (numbered from 1970, by the column `time`) become the frame's."""
    schema, files = write_frame(frame, lake, table, batch)
    first, last = minutes[0] * MINUTE_US, (minutes[-1] + 1) * MINUTE_US - 1
    _check_times(table, time, files, first, last)
    made = list(files)

    def build(found: DeltaTable | None) -> Change:
        hit = overlapping(found, time, first, last)
        for rows in lake.read_files(table, [one.name for one in hit]):
            minute = pc.divide(pc.cast(rows.column(time), pa.int64()), MINUTE_US)
            rest = rows.filter(pc.invert(pc.is_in(minute, pa.array(minutes, pa.int64()))))
            if len(rest):
                made.append(lake.write(table, batch, rest))
        return Change(schema, made, hit, (time,))

    if not lake.commit(table, batch, build):
        lake.discard(made)


def _check_times(table: str, time: str, files: list[Written], first: int, last: int) -> None:
    for one in files:
        stats = msgspec.json.decode(one.stats)
        least, most = (stats[key].get(time) for key in ("minValues", "maxValues"))
        if least is None:
            raise LakeError(f"{table}: its time column {time!r} is not a timestamp in every row: say step(..., time=)")
        bounds = [pa.scalar(text.rstrip("Z")).cast(pa.timestamp("us")).value for text in (least, most)]
        if bounds[0] < first or bounds[1] > last:
            raise LakeError(
                f"{table}: the function gave rows at {least} to {most}, outside of the minutes whose messages it got: "
                "truncate times to the minute or less"
            )


def bronze_frame(
    spark: SparkSession,
    lake: Tables,
    sources: list[Source],
    span: tuple[int, int] = _ALWAYS,
    fail_on_loss: bool = True,
) -> DataFrame:
    """Messages as recorded, of the recordings up to where the ledger says, that may be within a span of time."""
    found = silver_frame(spark, lake, "bronze", *span)
    if found is not None:
        return found.drop("recording")
    ranges = format_ranges(taken(sources, lake.storage_options, *span, fail_on_loss))
    reader = spark.read.format("ringmain").option("positions", "true").option("host", "true").option("ranges", ranges)
    reader = reader.options(**{f"{STORAGE}{name}": value for name, value in lake.storage_options.items()})
    return reader.option("failOnDataLoss", str(fail_on_loss).lower()).load(lake.uri)


def bronze(lake: Tables, spark: SparkSession | None) -> Any:
    last = Ledger(lake).last()
    sources = [] if last is None else last.recordings
    if spark is not None:
        return bronze_frame(spark, lake, sources)
    if lake.load("bronze") is not None:
        return lake.dataset("bronze").scanner().to_reader()
    schema = source_schema(None, True, True)
    return pa.RecordBatchReader.from_batches(
        schema, (rows for item in taken(sources, lake.storage_options, *_ALWAYS) for rows in Scan(schema).read(item))
    )
