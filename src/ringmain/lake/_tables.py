"""Delta tables below one address, on a local disk, S3, GCS or Azure, read and written through `deltalake` alone.

The invariant owned here: *a table has each batch once*. Every commit carries its batch's number as Delta's application
transaction. `commit` is the only way in: it loads the table, asks which batch it has, and commits on that handle. Two
writers that start from one version cannot both commit. A handle is loaded again before the next commit, because a fresh
handle accepts a transaction that its table has already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs as pafs

from ringmain.errors import LakeError
from ringmain.lake._column_types import without_views
from ringmain.recording._format import decoded_name, is_ours
from ringmain.recording._segment.object_store import check_credentials, open_filesystem

APPLICATION = "ringmain.pipeline"
LOG_RETENTION = "delta.logRetentionDuration"
# A commit reads the log from the last checkpoint on. By default it also looks through all of the log for what is old.
_LOG = {"delta.checkpointInterval": "10", LOG_RETENTION: "interval 168 hours"}
_CLEAN_EVERY = 64  # batches
# The columns whose bounds the log has; where messages are decoded, `time` may be a field of theirs.
BOUNDED = ("epoch", "seq", "publish_time", "window_start", "time", "batch", "host")
DECODED = tuple(map(decoded_name, ("epoch", "seq", "publish_time", "host")))
_TIME, _HOST = decoded_name("publish_time"), decoded_name("host")
_HOSTS = ("host", _HOST)
_APART = "apart-"
_FOLDERS = ("bronze", "gold", "ops", "quarantine", "silver", "steps", "train")


class Written(msgspec.Struct, frozen=True):
    """A Parquet file under its final name, which no reader sees until it is committed."""

    table: str
    name: str  # below the table
    size: int
    rows: int
    stats: str

    def action(self, data_change: bool = True) -> AddAction:
        return AddAction(self.name, self.size, {}, int(time.time() * 1000), data_change, self.stats)


class TableFile(NamedTuple):
    """A file of a table's snapshot."""

    name: str
    size: int
    rows: int
    least: dict[str, Any]
    most: dict[str, Any]


class Change(NamedTuple):
    """What a batch does to a table."""

    schema: pa.Schema
    add: Sequence[Written]
    remove: Sequence[TableFile] = ()
    bounded: Sequence[str] | None = None  # by default those of BOUNDED or DECODED
    properties: Mapping[str, str] = {}  # of a new table, besides

    def configuration(self) -> dict[str, str | None]:
        """Of a new table: how its log is kept, and which columns have bounds in it. Readers take a column without
        bounds for one without values, so it must be said."""
        usual = DECODED if any(map(is_ours, self.schema.names)) else BOUNDED
        bounded = usual if self.bounded is None else self.bounded
        names = ",".join(f.name for f in self.schema if f.name in bounded and _has_bounds(f))
        bounds = {"delta.dataSkippingStatsColumns": names} if names else {"delta.dataSkippingNumIndexedCols": "0"}
        return {**bounds, **_LOG, **self.properties}


@dataclass
class Tables:
    """The tables below an address. Credentials come from the environment or from the options, which are those of
    `deltalake`. They are never written anywhere."""

    uri: str
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    _handles: dict[str, DeltaTable] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        text = str(self.uri).removeprefix("file://")
        self.uri = text.rstrip("/") if "://" in text else str(Path(text).absolute())

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handles": {}}  # open tables are not copied to workers

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def filesystem(self) -> pafs.FileSystem:
        """The files below the lake's address, for pyarrow: the same store and credentials as the tables'."""
        check_credentials(self.uri, self.storage_options)
        return pafs.PyFileSystem(DeltaStorageHandler(self.uri, self.storage_options or None))

    def dataset(self, name: str, version: int | None = None) -> Any:
        """A table for pyarrow's threads. They use files of Arrow's own: one that still has a file of Python when the
        interpreter ends aborts the process."""
        if self.is_local:
            filesystem, path = pafs.LocalFileSystem(), self._address(name)
        else:
            filesystem, path = open_filesystem(self._address(name), self.storage_options)
        return self.table(name, version).to_pyarrow_dataset(filesystem=pafs.SubTreeFileSystem(path, filesystem))

    def tables(self) -> list[str]:
        """The names of all tables: `silver/imu`, `gold/topic_health`, ..."""
        if self.is_local and not os.path.isdir(self.uri):
            return []
        files, found = self.filesystem(), []
        for folder in _FOLDERS:
            below = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
            names = [folder, *(f"{folder}/{info.base_name}" for info in below if not info.is_file)]
            found += [name for name in names if not name.endswith("/_delta_log") and self.load(name) is not None]
        return sorted(found)

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        """A table as `deltalake` has it, now or at a version."""
        found = self.load(name)
        if found is None:
            there = ", ".join(self.tables()) or "none: run the pipeline first (ringmain pipeline run)"
            raise LakeError(f"{self.uri} has no table {name}; it has {there}")
        if version is None:
            return found
        return DeltaTable(self._address(name), version=version, storage_options=self.storage_options or None)

    def schema(self, name: str) -> pa.Schema | None:
        """A table's columns, None when there is no such table."""
        found = self.load(name)
        return None if found is None else pa.schema(found.schema().to_arrow())

    def files(self, name: str) -> list[TableFile]:
        """The files of a table's snapshot."""
        found = self.load(name)
        return [] if found is None else table_files(found)

    def load(self, name: str) -> DeltaTable | None:
        """The table as it is now, None when there is no such table."""
        known = self._handles.get(name)
        if known is None:
            check_credentials(self.uri, self.storage_options)
        try:
            if known is not None:
                known.update_incremental()
                return known
            self._handles[name] = DeltaTable(self._address(name), storage_options=self.storage_options or None)
        except TableNotFoundError:
            self._handles.pop(name, None)
            return None
        return self._handles[name]

    def commit(
        self, name: str, batch: int, build: Callable[[DeltaTable | None], Change], application: str = APPLICATION
    ) -> bool:
        """Give the table what `build` makes of its present state. False if it has this batch already, or if another
        writer gave it just now."""
        found = self.load(name)
        if found is not None and _has(found, batch, application):
            return False
        change = build(found)
        mark = CommitProperties({"ringmain.batch": str(batch)}, app_transactions=[Transaction(application, batch)])
        after = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=batch % _CLEAN_EVERY == 0)
        try:
            found = found if found is not None else self._create(name, change)
            there = {f.name for f in found.schema().fields}
            new = [f for f in Schema.from_arrow(change.schema).fields if f.name not in there]
            if new:
                found.alter.add_columns(new)
            if _has(found, batch, application):  # the handle is newer than the one that was asked above
                return False
            now = int(time.time() * 1000)
            removed = [RemoveAction(one.name, True, now, one.size, {}) for one in change.remove]
            actions: list[AddAction | RemoveAction] = [*(one.action() for one in change.add), *removed]
            found.create_write_transaction(
                actions, "append", found.schema(), [], commit_properties=mark, post_commithook_properties=after
            )
        except (CommitFailedError, DeltaError) as error:
            again = self.load(name)
            if again is not None and _has(again, batch, application):
                return False
            if isinstance(error, CommitFailedError):
                raise LakeError(
                    f"another writer changed {name} of {self.uri} while batch {batch} was committed: a lake takes one "
                    "pipeline at a time. Nothing is doubled; run it again when the other has ended"
                ) from error
            raise
        return True

    def exchange(
        self, table: DeltaTable, why: str, add: Sequence[Written], remove: Sequence[TableFile], *, data_change: bool
    ) -> None:
        """Give a table some files in place of others that it has; its history says why. Raises
        CommitFailedError if another writer was faster with one of them."""
        now = int(time.time() * 1000)
        removed = [RemoveAction(one.name, data_change, now, one.size, {}) for one in remove]
        actions: list[AddAction | RemoveAction] = [*(one.action(data_change) for one in add), *removed]
        try:
            mark = CommitProperties({"ringmain.upkeep": why})
            table.create_write_transaction(actions, "append", table.schema(), [], commit_properties=mark)
        except DeltaError:
            self.discard(add)
            raise

    def _create(self, name: str, change: Change) -> DeltaTable:
        """An empty table, made by this or by another writer. It gets its first rows by a commit like all others: of two
        that create a table with rows, both may succeed."""
        options = self.storage_options or None
        failed: DeltaError | None = None
        try:
            DeltaTable.create(
                self._address(name), Schema.from_arrow(change.schema), "ignore", name=name,
                configuration=change.configuration(), storage_options=options, raise_if_key_not_exists=False,
            )  # fmt: skip
        except DeltaError as error:
            failed = error
        found = self.load(name)
        if found is None:
            raise failed or LakeError(f"{self.uri} has no table {name}, which was made just now: was it deleted?")
        return found  # also if another writer was faster

    def write(self, name: str, batch: int | None, rows: pa.Table, *, apart: bool = False) -> Written:
        """One file with these rows, not committed yet."""
        files = FileSet(self, batch)
        for part in rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]:
            files.put(name, part, apart=apart)
        (written,) = files.close()
        return written

    def read_files(self, name: str, names: Iterable[str], columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows of each of some files of a table. Delta's own writer leaves types that few functions take."""
        # Arrow's threads may still have a file when the interpreter ends: one of Python aborts the process then.
        local = pafs.SubTreeFileSystem(self.uri, pafs.LocalFileSystem()) if self.is_local else None
        files = local or self.filesystem()
        for one in names:
            with files.open_input_file(f"{name}/{one}") as source:
                rows = pq.ParquetFile(source).read(columns)
            yield rows.cast(pa.schema([f.with_type(without_views(f.type)) for f in rows.schema]))

    def discard(self, written: Iterable[Written]) -> None:
        """Deletes files that were not committed."""
        files = self.filesystem()
        for one in written:
            files.delete_file(f"{one.table}/{one.name}")

    def _address(self, name: str) -> str:
        return f"{self.uri}/{name}"


class FileSet:
    """The files that one task writes, one for each table, under names that no other try has. Without a batch they are
    rows of earlier ones. Decoded rows whose times are not `within` [since, until) µs go to files apart."""

    def __init__(self, tables: Tables, batch: int | None, within: tuple[int, int] | None = None) -> None:
        self._tables, self._batch, self._within = tables, batch, within
        self._files: pafs.FileSystem | None = None
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
            for one in outside.column(_HOST).value_counts().to_pylist():
                self.apart[one["values"]] = self.apart.get(one["values"], 0) + one["counts"]
            self.put(table, outside, apart=True)
            rows = rows.filter(inside)
        if len(rows):
            self.put(table, rows)

    def put(self, table: str, rows: pa.RecordBatch, *, apart: bool = False) -> None:
        known = self._open.get((table, apart))
        if known is None:
            if self._tables.is_local:
                os.makedirs(self._tables.uri, exist_ok=True)
            self._files = self._files or self._tables.filesystem()
            known = self._open[table, apart] = _OpenFile(self._files, table, file_name(self._batch, apart), rows.schema)
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
    def __init__(self, files: pafs.FileSystem, table: str, name: str, schema: pa.Schema) -> None:
        self.rows = 0
        self._table, self._name, self._waiting, self._bytes = table, name, list[pa.RecordBatch](), 0
        self._sink = files.open_output_stream(f"{table}/{name}")
        self._meta: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(self._sink, schema, metadata_collector=self._meta, **_encoding(schema))

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
    texts = [f.name for f in schema if pa.types.is_string(f.type)]
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


def _has_bounds(column: pa.Field) -> bool:
    """Does `statistics` have bounds for such a column?"""
    if pa.types.is_string(column.type):
        return column.name in _HOSTS
    return bool(pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type))


def _bound(value: Any) -> Any:
    return value if isinstance(value, int | str) else value.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def table_files(table: DeltaTable) -> list[TableFile]:
    """The files of the snapshot that a handle has."""
    rows = pa.table(table.get_add_actions()).to_pylist()
    return [
        TableFile(r["path"], r["size_bytes"], r["num_records"], r.get("min") or {}, r.get("max") or {}) for r in rows
    ]


def _has(table: DeltaTable, batch: int, application: str) -> bool:
    version = table.transaction_version(application)
    return version is not None and version >= batch


def overlapping(found: DeltaTable | None, column: str, first_us: int, last_us: int) -> list[TableFile]:
    """The files that may have rows within these times."""

    def may_have(one: TableFile) -> bool:
        if one.least.get(column) is None:
            return True
        return micros(one.least[column]) <= last_us and latest(one, column) >= first_us

    return [] if found is None else [one for one in table_files(found) if may_have(one)]


def latest(one: TableFile, column: str) -> int:
    """The upper bound of a file's times: Delta's own writer cuts it to milliseconds."""
    return micros(one.most[column]) + 999


def micros(moment: Any) -> int:
    """A time as microseconds since 1970."""
    return int(pa.scalar(moment, pa.timestamp("us", "UTC")).value)
