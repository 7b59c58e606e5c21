"""Spark's DataFrames into a lake, for users' functions. pyarrow writes the files in Spark's Python workers, through the
same store as the tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import LakeError
from ringmain.lake._column_types import delta_type
from ringmain.lake._files import FileSet, Written
from ringmain.lake._gold import MINUTE_US
from ringmain.lake._log import Snapshot
from ringmain.lake._tables import Change, Tables, overlapping
from ringmain.spark._source import arrow_of
from ringmain.spark._tasks import run_on_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class _WriteRows:
    lake: Tables
    table: str
    batch: int
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[Written]]:
        files = FileSet(self.lake, self.batch)
        for batch in batches:
            if len(batch):
                arrays = [array.cast(f.type) for array, f in zip(batch.columns, self.schema, strict=True)]
                files.add(self.table, pa.RecordBatch.from_arrays(arrays, schema=self.schema))
        yield files.close()


def write_frame(frame: DataFrame, lake: Tables, table: str, batch: int) -> tuple[pa.Schema, list[Written]]:
    """Have the workers write a frame's rows, which are not committed yet."""
    schema = pa.schema([pa.field(f.name, delta_type(f.type)) for f in arrow_of(frame.schema)])
    work, group = _WriteRows(lake, table, batch, schema), f"ringmain batch {batch}"
    found = run_on_rows(frame, work, list[Written], group, f"batch {batch}: {table}")
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

    def build(found: Snapshot | None) -> Change:
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
