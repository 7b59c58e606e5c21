"""Parquet files of tables, before they are committed: how they are named, encoded and described. Upkeep writes them the
same way.

The invariant owned here: *no two tries write one file*. Each has a name of its own, which no reader sees until a commit
says it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringmain.recording._format import decoded_name

_TIME, _HOST = decoded_name("publish_time"), decoded_name("host")
_HOSTS = ("host", _HOST)
_APART = "apart-"


class Written(msgspec.Struct, frozen=True):
    """A Parquet file under its final name, which no reader sees until it is committed."""

    table: str
    name: str  # below the table
    size: int
    rows: int
    stats: str

    def action(self, data_change: bool = True) -> dict[str, Any]:
        """As a table's log has it."""
        return {
            "add": {
                "path": self.name, "partitionValues": {}, "size": self.size,
                "modificationTime": int(time.time() * 1000), "dataChange": data_change, "stats": self.stats,
            }
        }  # fmt: skip


class Sinks(Protocol):
    """Where files are written."""

    def open_sink(self, path: str) -> Any:
        """A new file below the lake."""


class FileSet:
    """The files that one task writes, one for each table, under names that no other try has. Without a batch they are
    rows of earlier ones. Decoded rows whose times are not `within` [since, until) µs go to files apart."""

    def __init__(self, tables: Sinks, batch: int | None, within: tuple[int, int] | None = None) -> None:
        self._tables, self._batch, self._within = tables, batch, within
        self._open: dict[tuple[str, bool], _OpenFile] = {}
        self._done: list[Written] = []
        self.apart: dict[str, int] = {}
        """How many rows of which host have gone to files apart."""

    def add(self, table: str, rows: pa.RecordBatch) -> None:
        if self._within is None or _TIME not in rows.schema.names:
            self.put(table, rows)
            return
        at = rows.column(_TIME).cast(pa.int64())
        inside = pc.and_(pc.greater_equal(at, self._within[0]), pc.less(at, self._within[1]))
        outside = rows.filter(pc.invert(inside))
        if len(outside):
            for one in outside.column(_HOST).cast(pa.string()).value_counts().to_pylist():
                self.apart[one["values"]] = self.apart.get(one["values"], 0) + one["counts"]
            self.put(table, outside, apart=True)
            rows = rows.filter(inside)
        if len(rows):
            self.put(table, rows)

    def put(self, table: str, rows: pa.RecordBatch, *, apart: bool = False) -> None:
        known = self._open.get((table, apart))
        if known is None:
            name = file_name(self._batch, apart)
            known = self._open[table, apart] = _OpenFile(self._tables.open_sink, table, name, rows.schema)
        known.add(rows)
        if known.rows >= ROWS_PER_FILE:
            self._done.append(self._open.pop((table, apart)).close())

    def end_group(self) -> None:
        """What comes next goes to other row groups."""
        for file in self._open.values():
            file.flush()

    def cut(self) -> None:
        """What comes next goes to other files."""
        self._done += [file.close() for file in self._open.values()]
        self._open = {}

    def close(self) -> list[Written]:
        self.cut()
        done, self._done = self._done, []
        return done


ROWS_PER_FILE = 1 << 20
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 64 << 20  # of a Parquet row group


class _OpenFile:
    def __init__(self, open_sink: Callable[[str], Any], table: str, name: str, schema: pa.Schema) -> None:
        self.rows = 0
        self._table, self._name, self._waiting, self._bytes = table, name, list[pa.RecordBatch](), 0
        self._sink = open_sink(f"{table}/{name}")
        self._meta: list[pq.FileMetaData] = []
        # Texts may come as dictionaries, as which readers must not take them: so Arrow's own schema stays out.
        self._writer = pq.ParquetWriter(
            self._sink, schema, metadata_collector=self._meta, store_schema=False, **_encoding(schema)
        )

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += len(rows)
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if sum(map(len, self._waiting)) >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self.flush()

    def close(self) -> Written:
        self.flush()
        self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        (meta,) = self._meta
        return Written(self._table, self._name, size, meta.num_rows, statistics(meta))

    def flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting).combine_chunks())
        self._waiting, self._bytes = [], 0


def _encoding(schema: pa.Schema) -> dict[str, Any]:
    """How columns are written. Whole numbers and times differ little from row to row; texts are often the same. By
    default pyarrow tries a dictionary on every column, which takes twice the processor time and more space."""
    whole = [f.name for f in schema if pa.types.is_integer(f.type) or pa.types.is_timestamp(f.type)]
    texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_dictionary(f.type)]
    deltas = dict.fromkeys(whole, "DELTA_BINARY_PACKED")
    return {"compression": "zstd", "use_dictionary": texts, "column_encoding": deltas}


def file_name(batch: int | None, apart: bool = False) -> str:
    return f"{'again-' if batch is None else prefix(batch)}{_APART * apart}{os.urandom(8).hex()}.parquet"


def is_apart(name: str) -> bool:
    """Has the file the rows whose times are far from those of the others?"""
    return _APART in name


def prefix(batch: int) -> str:
    """How the files of a batch begin, as long as they are not compacted."""
    return f"b{batch:09d}-"


def statistics(meta: pq.FileMetaData) -> str:
    """Delta's statistics of a file: rows, and bounds of whole numbers, times and hosts, by which readers skip files."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for index, column in enumerate(meta.schema.names):
        if meta.schema.column(index).max_definition_level > 1 or meta.schema.column(index).path != column:
            continue
        found = [meta.row_group(group).column(index).statistics for group in range(meta.num_row_groups)]
        if (
            (meta.schema.column(index).physical_type != "INT64" and column not in _HOSTS)
            or not all(s and s.has_min_max for s in found)
            or not found
        ):
            continue
        least[column] = _bound(min(s.min for s in found))
        most[column] = _bound(max(s.max for s in found))
    return msgspec.json.encode({"numRecords": meta.num_rows, "minValues": least, "maxValues": most}).decode()


def has_bounds(column: pa.Field) -> bool:
    """Does `statistics` have bounds for such a column?"""
    if pa.types.is_string(column.type):
        return column.name in _HOSTS
    return bool(pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type))


def _bound(value: Any) -> Any:
    return value if isinstance(value, int | str) else value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
