"""Delta tables below one address, on a local disk, S3, GCS or Azure.

The invariant owned here: *a table has each batch once*. Every commit carries its batch's number as Delta's application
transaction. `commit` is the only way in: it asks which batch the table has, and commits the version after that state.
Two writers that start from one version cannot both commit (_log.py), and the one that lost asks again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs as pafs

import ringmain
from ringmain.errors import LakeError
from ringmain.lake._column_types import without_views
from ringmain.lake._comments import commented, comments_of, table_comment
from ringmain.lake._files import FileSet, Written, has_bounds
from ringmain.lake._log import Log, Snapshot, TableFile
from ringmain.lake._objects import WHOLE_BYTES, Objects, StoredObjects, open_objects
from ringmain.recording._format import decoded_name, is_ours
from ringmain.recording._segment.object_store import check_credentials, open_filesystem

APPLICATION = "ringmain.pipeline"
LOG_RETENTION = "delta.logRetentionDuration"
# A commit reads the log from the last checkpoint on. By default it also looks through all of the log for what is old.
_LOG = {"delta.checkpointInterval": "10", LOG_RETENTION: "interval 168 hours"}
_CLEAN_EVERY = 64  # batches
_DELETED_AT_ONCE = 16
_ENGINE = f"ringmain {ringmain.__version__}"
# The columns whose bounds the log has; where messages are decoded, `time` may be a field of theirs.
BOUNDED = ("epoch", "seq", "publish_time", "window_start", "time", "batch", "host")
DECODED = tuple(map(decoded_name, ("epoch", "seq", "publish_time", "host")))
_FOLDERS = ("bronze", "gold", "ops", "quarantine", "silver", "steps", "train")


class Change(NamedTuple):
    """What a batch does to a table."""

    schema: pa.Schema
    add: Sequence[Written]
    remove: Sequence[TableFile] = ()
    bounded: Sequence[str] | None = None  # by default those of BOUNDED or DECODED
    properties: Mapping[str, str] = {}  # of a new table, besides
    about: str = ""  # likewise, in the words of a user

    def configuration(self) -> dict[str, str | None]:
        """Of a new table: how its log is kept, and which columns have bounds in it. Readers take a column without
        bounds for one without values, so it must be said."""
        usual = DECODED if any(map(is_ours, self.schema.names)) else BOUNDED
        bounded = usual if self.bounded is None else self.bounded
        names = ",".join(f.name for f in self.schema if f.name in bounded and has_bounds(f))
        bounds = {"delta.dataSkippingStatsColumns": names} if names else {"delta.dataSkippingNumIndexedCols": "0"}
        return {**bounds, **_LOG, **self.properties}


@dataclass
class Tables:
    """The tables below an address. Credentials come from the environment or from the options, which are those of
    `deltalake`. They are never written anywhere."""

    uri: str
    storage_options: dict[str, str] = field(default_factory=dict, repr=False)
    _handles: dict[str, DeltaTable] = field(default_factory=dict, init=False, repr=False)
    _logs: dict[str, Log] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        text = str(self.uri).removeprefix("file://")
        self.uri = text.rstrip("/") if "://" in text else str(Path(text).absolute())

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name != "objects"}
        return {**kept, "_handles": {}, "_logs": {}}  # open tables are not copied to workers

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    def filesystem(self) -> pafs.FileSystem:
        """The files below the lake's address, for pyarrow: the same store and credentials as the tables'."""
        check_credentials(self.uri, self.storage_options)
        return pafs.PyFileSystem(DeltaStorageHandler(self.uri, self.storage_options or None))

    @cached_property
    def objects(self) -> Objects:
        """The same files, for what is read and written whole."""
        check_credentials(self.uri, self.storage_options)
        return open_objects(self.uri, self.storage_options)

    def _log(self, name: str) -> Log:
        return self._logs.setdefault(name, Log(self.objects, name))

    def dataset(self, name: str, version: int | None = None) -> Any:
        """A table for pyarrow's threads. They use files of Arrow's own: one that still has a file of Python when the
        interpreter ends aborts the process."""
        return self.table(name, version).to_pyarrow_dataset(filesystem=self._files_of(name))

    def _files_of(self, name: str) -> pafs.FileSystem:
        if self.is_local:
            return pafs.SubTreeFileSystem(self._address(name), pafs.LocalFileSystem())
        filesystem, path = open_filesystem(self._address(name), self.storage_options)
        return pafs.SubTreeFileSystem(path, filesystem)

    def tables(self) -> list[str]:
        """The names of all tables: `silver/imu`, `gold/topic_health`, ..."""
        if self.is_local and not os.path.isdir(self.uri):
            return []
        files, found = self.filesystem(), []
        for folder in _FOLDERS:
            below = files.get_file_info(pafs.FileSelector(folder, allow_not_found=True))
            names = [folder, *(f"{folder}/{info.base_name}" for info in below if not info.is_file)]
            found += [name for name in names if not name.endswith("/_delta_log") and self.snapshot(name) is not None]
        return sorted(found)

    def table(self, name: str, version: int | None = None) -> DeltaTable:
        """A table as `deltalake` has it, now or at a version."""
        found = self.load(name)
        if found is None:
            raise self._absent(name)
        if version is None:
            return found
        return DeltaTable(self._address(name), version=version, storage_options=self.storage_options or None)

    def schema(self, name: str) -> pa.Schema | None:
        """A table's columns, None when there is no such table."""
        found = self.snapshot(name)
        return None if found is None else found.schema

    def comments(self, name: str) -> dict[str, str]:
        """What a table's columns are about, with units, by their names: those of ours, and fields whose type says it
        (`Meta(description=..., extra={"unit": ...})`), each as it was said when the table got the column."""
        return comments_of(self.existing(name).schema)

    def files(self, name: str) -> list[TableFile]:
        """The files of a table's snapshot."""
        found = self.snapshot(name)
        return [] if found is None else found.files()

    def snapshot(self, name: str, *, known: bool = False) -> Snapshot | None:
        """What the table has now, or with `known` when it was last looked at. None when there is no such table."""
        log = self._log(name)
        return log.known() if known else log.look()

    def existing(self, name: str) -> Snapshot:
        """The same; an error says which tables there are."""
        found = self.snapshot(name)
        if found is None:
            raise self._absent(name)
        return found

    def _absent(self, name: str) -> LakeError:
        there = ", ".join(self.tables()) or "none: run the pipeline first (ringmain pipeline run)"
        return LakeError(f"{self.uri} has no table {name}; it has {there}")

    def forget(self) -> None:
        """Another pipeline has written to the lake: what is known of its tables is not true any more."""
        self._logs.clear()

    def load(self, name: str) -> DeltaTable | None:
        """The table as `deltalake` has it now, None when there is no such table."""
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
        self,
        name: str,
        batch: int,
        build: Callable[[Snapshot | None], Change],
        application: str = APPLICATION,
        *,
        as_known: bool = False,
    ) -> bool:
        """Give the table what `build` makes of its present state. False if it has this batch already, or if another
        writer gave it just now. With `as_known` it is first made of the state that is known, which may be old: if that
        does not do, `build` is called again, of the present one."""
        log = self._log(name)
        for again in (False, True) if as_known else (True,):
            found = log.look() if again else log.known()
            if found is not None and found.has(batch, application):
                return False
            try:
                change = build(found)
            except FileNotFoundError:  # upkeep has deleted what the table had when it was last looked at
                if again:
                    raise
                continue
            found = self._with_columns(log, name, change, found)
            if found.has(batch, application):
                return False
            now = int(time.time() * 1000)
            mark = {"txn": {"appId": application, "version": batch, "lastUpdated": now}}
            removed = [_remove(one, now, True) for one in change.remove]
            info = _info("Append", {"ringmain.batch": str(batch)})
            actions = [info, mark, *(one.action() for one in change.add), *removed]
            if log.add(found, actions, [one.name for one in change.remove]):
                if (batch + crc32(name.encode())) % _CLEAN_EVERY == 0:
                    self.table(name).cleanup_metadata()
                return True
        found = log.known()
        if found is not None and found.has(batch, application):
            return False
        raise LakeError(
            f"another writer changed {name} of {self.uri} while batch {batch} was committed: a lake takes one "
            "pipeline at a time. Nothing is doubled; run it again when the other has ended"
        )

    def checkpoint(self, name: str) -> None:
        """What is known of a table as one file of its log: the next process that reads it needs no other."""
        self._log(name).checkpoint()

    def exchange(
        self, name: str, why: str, add: Sequence[Written], remove: Sequence[TableFile], *, data_change: bool
    ) -> None:
        """Give a table some files in place of others that it has; its history says why. Raises
        CommitFailedError if another writer was faster with one of them."""
        now, log = int(time.time() * 1000), self._log(name)
        removed = [_remove(one, now, data_change) for one in remove]
        info = _info("Overwrite", {"ringmain.upkeep": why})
        actions = [info, *(one.action(data_change) for one in add), *removed]
        found = log.known()
        if found is None or not log.add(found, actions, [one.name for one in remove]):
            self.discard(add)
            raise CommitFailedError(f"another writer changed {name} of {self.uri} while it was maintained")

    def _with_columns(self, log: Log, name: str, change: Change, found: Snapshot | None) -> Snapshot:
        """The table, with all columns of the change. One that is made now, by this or by another writer, gets its first
        rows by a commit like all others: of two that create a table with rows, both may succeed."""
        if found is None:
            failed: DeltaError | None = None
            try:
                DeltaTable.create(
                    self._address(name), Schema.from_arrow(commented(name, change.schema)), "ignore", name=name,
                    description="; ".join(filter(None, (table_comment(name), change.about))),
                    configuration=change.configuration(), storage_options=self.storage_options or None,
                    raise_if_key_not_exists=False,
                )  # fmt: skip
            except DeltaError as error:
                failed = error
            found = log.look()
            if found is None:
                raise failed or LakeError(f"{self.uri} has no table {name}, which was made just now: was it deleted?")
        there = {*found.schema.names}
        new = [f for f in Schema.from_arrow(commented(name, change.schema)).fields if f.name not in there]
        if new:
            try:
                self.table(name).alter.add_columns(new)
            except CommitFailedError as error:
                raise LakeError(
                    f"another writer changed {name} of {self.uri}: run it again when it has ended"
                ) from error
            found = log.look()
            assert found is not None
        return found

    def write(self, name: str, batch: int | None, rows: pa.Table, *, apart: bool = False) -> Written:
        """One file with these rows, not committed yet."""
        files = FileSet(self, batch)
        for part in rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]:
            files.put(name, part, apart=apart)
        (written,) = files.close()
        return written

    def read_files(self, name: str, names: Iterable[str], columns: list[str] | None = None) -> Iterator[pa.Table]:
        """The rows of each of some files of a table. Delta's own writer leaves types that few functions take."""
        names = list(names)
        known = self.snapshot(name, known=True) if names and not self.is_local else None
        sizes = {} if known is None else {one.name: one.size for one in known.files()}
        for one in names:
            with self._open_input(f"{name}/{one}", sizes.get(one, WHOLE_BYTES + 1)) as source:
                rows = pq.ParquetFile(source).read(columns, use_threads=self.is_local)  # see _open_input()
            yield rows.cast(pa.schema([f.with_type(without_views(f.type)) for f in rows.schema]))

    def read_where(self, name: str, names: Iterable[str], where: pc.Expression | None) -> Iterator[pa.Table]:
        """The rows of each of some files for which this is so. Row groups whose bounds say that they have none are not
        read."""
        files = self._files_of(name)
        for one in names:
            rows = pq.read_table(one, filesystem=files, filters=where, use_threads=False, partitioning=None)
            yield rows.cast(pa.schema([f.with_type(without_views(f.type)) for f in rows.schema]))

    def _open_input(self, path: str, size: int) -> Any:
        if self.is_local:
            # Arrow's threads may still have a file when the interpreter ends: one of Python aborts the process then.
            return pa.OSFile(f"{self.uri}/{path}")
        data = self.objects.get(path) if size <= WHOLE_BYTES else None
        return self.filesystem().open_input_file(path) if data is None else pa.BufferReader(data)

    def open_sink(self, path: str) -> Any:
        """A new file below the lake."""
        if isinstance(self.objects, StoredObjects):
            return pa.PythonFile(self.objects.writer(path), "w")
        os.makedirs(os.path.dirname(f"{self.uri}/{path}"), exist_ok=True)
        return pa.OSFile(f"{self.uri}/{path}", "wb")

    def discard(self, written: Iterable[Written]) -> None:
        """Deletes files that were not committed."""
        paths = [f"{one.table}/{one.name}" for one in written]
        if paths:
            with ThreadPoolExecutor(_DELETED_AT_ONCE) as pool:
                list(pool.map(self.filesystem().delete_file, paths))

    def _address(self, name: str) -> str:
        return f"{self.uri}/{name}"


def _info(mode: str, said: dict[str, str]) -> dict[str, Any]:
    """What a table's history says of a commit."""
    return {"commitInfo": {"operation": "WRITE", "operationParameters": {"mode": mode}, "engineInfo": _ENGINE, **said}}


def _remove(one: TableFile, now_ms: int, data_change: bool) -> dict[str, Any]:
    """As a table's log has it."""
    return {
        "remove": {
            "path": one.name, "deletionTimestamp": now_ms, "dataChange": data_change, "extendedFileMetadata": True,
            "partitionValues": {}, "size": one.size,
        }
    }  # fmt: skip


def overlapping(found: Snapshot | None, column: str, first_us: int, last_us: int) -> list[TableFile]:
    """The files that may have rows within these times."""

    def may_have(one: TableFile) -> bool:
        if one.least.get(column) is None:
            return True
        return micros(one.least[column]) <= last_us and latest(one, column) >= first_us

    return [] if found is None else [one for one in found.files() if may_have(one)]


def latest(one: TableFile, column: str) -> int:
    """The upper bound of a file's times: Delta's own writer cuts it to milliseconds."""
    return micros(one.most[column]) + 999


def micros(moment: Any) -> int:
    """A time as microseconds since 1970."""
    return int(pa.scalar(moment, pa.timestamp("us", "UTC")).value)
