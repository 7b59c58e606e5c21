"""The log of a Delta table: what the table has, and one more commit.

A log is a file for each version, with the actions that make it of the version before, and every some versions a
*checkpoint*, a Parquet file with all that counts up to there:

    _delta_log/00000000000000000009.checkpoint.parquet
    _delta_log/00000000000000000010.json            add, remove, txn, metaData, protocol, commitInfo
    _delta_log/_last_checkpoint                     which checkpoint is the newest

The invariant owned here: *a version is written once*. It is an object that is made anew, so of two writers one makes
it, and the other is told what it has not seen. A log that is known is not read again: to write a version takes two
requests, one for the checkpoint's number and one for the version. (`deltalake` takes eight.) Older versions are deleted
only where there is a newer checkpoint, so a version that is not there after the newest checkpoint was never written.

What is rare is left to `deltalake`: making tables, new columns, upkeep, and reading for users.
"""

from __future__ import annotations

import io
import json
import os
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from ringmain.errors import LakeError
from ringmain.lake._objects import Objects

CHECKPOINT_EVERY = 10  # versions, as in the configuration of our tables
_KEPT_MS = 7 * 86_400_000  # removed files stay in checkpoints for so long: readers of old versions and vacuum ask
_READER, _WRITER = frozenset({"timestampNtz"}), frozenset({"timestampNtz", "appendOnly", "invariants"})
_TRIES = 8


class TableFile(NamedTuple):
    """A file of a table's snapshot."""

    name: str
    size: int
    rows: int
    least: dict[str, Any]
    most: dict[str, Any]


@dataclass
class Snapshot:
    """What a table has at a version."""

    version: int = -1
    protocol: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, dict[str, Any]] = field(default_factory=dict)
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    removed: dict[str, dict[str, Any]] = field(default_factory=dict)
    _schema: pa.Schema | None = None
    _files: dict[str, TableFile] = field(default_factory=dict)

    def apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if (one := action.get("add")) is not None:
                self.added[one["path"]] = one
                self.removed.pop(one["path"], None)
            elif (one := action.get("remove")) is not None:
                self.added.pop(one["path"], None)
                self._files.pop(one["path"], None)
                self.removed[one["path"]] = one
            elif (one := action.get("txn")) is not None:
                self.transactions[one["appId"]] = one
            elif (one := action.get("metaData")) is not None:
                self.metadata, self._schema = one, None
            elif (one := action.get("protocol")) is not None:
                self.protocol = one

    def has(self, batch: int, application: str) -> bool:
        known = self.transactions.get(application)
        return known is not None and int(known["version"]) >= batch

    @property
    def schema(self) -> pa.Schema:
        if self._schema is None:
            self._schema = pa.schema(Schema.from_json(self.metadata["schemaString"]).to_arrow())
        return self._schema

    def files(self) -> list[TableFile]:
        """Those that the table has."""
        times = {f.name for f in self.schema if pa.types.is_timestamp(f.type)}
        for path, one in self.added.items():
            if path not in self._files:
                said = msgspec.json.decode(one.get("stats") or "{}")
                bounds = (_bounds(said.get(which), times) for which in ("minValues", "maxValues"))
                self._files[path] = TableFile(unquote(path), one["size"], said.get("numRecords"), *bounds)
        return list(self._files.values())

    def refusal(self) -> str:
        """Why its log must not be written by us; empty if it may be."""
        features = {*(self.protocol.get("readerFeatures") or ())} - _READER
        features |= {*(self.protocol.get("writerFeatures") or ())} - _WRITER
        reader, writer = self.protocol.get("minReaderVersion", 1), self.protocol.get("minWriterVersion", 2)
        if reader not in (1, 3) or writer not in (1, 2, 7):
            features.add(f"protocol {reader}, {writer}")
        return ", ".join(sorted(features))


def _bounds(values: dict[str, Any] | None, times: set[str]) -> dict[str, Any]:
    return {k: datetime.fromisoformat(v) if k in times and v is not None else v for k, v in (values or {}).items()}


class Log:
    """The log of one table. What was read of it is kept."""

    def __init__(self, objects: Objects, table: str) -> None:
        self._objects, self._table = objects, table
        self._known: Snapshot | None = None

    def known(self) -> Snapshot | None:
        """The table as it was when it was last looked at; it is, if it never was. None if there is no such table."""
        return self._known or self.look()

    def look(self) -> Snapshot | None:
        """The table as it is now."""
        if self._known is None or (not self._read_on(self._known) and self._is_behind(self._known)):
            self._known = self._read()
        return self._known

    def forget(self) -> None:
        """Something else has written the log."""
        self._known = None

    def add(self, found: Snapshot, actions: Sequence[dict[str, Any]], removed: Sequence[str]) -> bool:
        """One more version with these actions, in which these files of the table are removed. False if another writer
        has removed one of these, or has written the same transaction."""
        mine = os.urandom(16).hex()
        info = {"commitInfo": {"timestamp": int(time.time() * 1000), "txnId": mine, **actions[0]["commitInfo"]}}
        lines = b"\n".join(map(msgspec.json.encode, [info, *actions[1:]]))
        transactions = [action["txn"] for action in actions if "txn" in action]
        for _ in range(_TRIES):
            if not found.added.keys() >= {*removed}:
                return False
            name = self._name(found.version + 1)
            if self._is_behind(found):
                newer = self._read()
            elif self._objects.put_new(name, lines):
                self._written(found, actions)
                return True
            else:
                newer = self.look()
                # A store may say no to a version that is ours, if its first answer was lost.
                data = self._objects.get(name)
                if newer is not None and data is not None and _id_of(data) == mine:
                    return True
            if newer is None:
                raise LakeError(f"{self._table} was deleted while it was written")
            self._known = found = newer
            if any(found.has(one["version"], one["appId"]) for one in transactions):
                return False
        raise LakeError(f"{self._table} is changed by others all the time: nothing was committed")

    def _written(self, found: Snapshot, actions: Sequence[dict[str, Any]]) -> None:
        found.apply(actions)
        found.version += 1
        # Tables that have the same number of versions have their checkpoints with different batches.
        if (found.version + zlib.crc32(self._table.encode())) % CHECKPOINT_EVERY == 0:
            self._put_checkpoint(found)

    def checkpoint(self) -> None:
        """Write what is known as one file."""
        if self._known is not None and self._known.version > self._last_checkpoint():
            self._put_checkpoint(self._known)

    def _put_checkpoint(self, found: Snapshot) -> None:
        data = _checkpoint(found)
        self._objects.put(f"{self._table}/_delta_log/{found.version:020d}.checkpoint.parquet", data)
        last = {"version": found.version, "size": len(found.added), "sizeInBytes": len(data)}
        self._objects.put(f"{self._table}/_delta_log/_last_checkpoint", msgspec.json.encode(last))

    def _name(self, version: int) -> str:
        return f"{self._table}/_delta_log/{version:020d}.json"

    def _last_checkpoint(self) -> int:
        data = self._objects.get(f"{self._table}/_delta_log/_last_checkpoint")
        return -1 if data is None else int(json.loads(data)["version"])

    def _is_behind(self, found: Snapshot) -> bool:
        return self._last_checkpoint() > found.version

    def _read(self) -> Snapshot | None:
        """All of it."""
        found, first = Snapshot(), self._last_checkpoint()
        if first >= 0:
            data = self._objects.get(f"{self._table}/_delta_log/{first:020d}.checkpoint.parquet")
            if data is None:
                raise LakeError(f"the checkpoint {first} of {self._table} is not there, or not one file")
            found.apply(_of_checkpoint(data))
            found.version = first
        self._read_on(found)
        if found.version < 0:
            return None
        if why := found.refusal():
            raise LakeError(f"{self._table} was changed by another program, and needs what this one lacks: {why}")
        return found

    def _read_on(self, found: Snapshot) -> bool:
        """Read the versions that came since. Were there any?"""
        before = found.version
        while (data := self._objects.get(self._name(found.version + 1))) is not None:
            found.apply(map(msgspec.json.decode, filter(None, data.splitlines())))
            found.version += 1
        return found.version > before


def _id_of(data: bytes) -> str | None:
    return next((a["commitInfo"].get("txnId") for a in map(json.loads, data.splitlines()) if "commitInfo" in a), None)


_TEXT, _LONG, _BOOL, _MAP = pa.string(), pa.int64(), pa.bool_(), pa.map_(pa.string(), pa.string())
_PARTITIONS = ("partitionValues", _MAP)
_CHECKPOINT = pa.schema(
    [
        ("txn", pa.struct([("appId", _TEXT), ("version", _LONG), ("lastUpdated", _LONG)])),
        ("add", pa.struct([
            ("path", _TEXT), _PARTITIONS, ("size", _LONG), ("modificationTime", _LONG), ("dataChange", _BOOL),
            ("stats", _TEXT)])),
        ("remove", pa.struct([
            ("path", _TEXT), ("deletionTimestamp", _LONG), ("dataChange", _BOOL), ("extendedFileMetadata", _BOOL),
            _PARTITIONS, ("size", _LONG)])),
        ("metaData", pa.struct([
            ("id", _TEXT), ("name", _TEXT), ("description", _TEXT),
            ("format", pa.struct([("provider", _TEXT), ("options", _MAP)])), ("schemaString", _TEXT),
            ("partitionColumns", pa.list_(_TEXT)), ("configuration", _MAP), ("createdTime", _LONG)])),
        ("protocol", pa.struct([
            ("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()), ("readerFeatures", pa.list_(_TEXT)),
            ("writerFeatures", pa.list_(_TEXT))])),
    ]
)  # fmt: skip
_MAPS = frozenset({"partitionValues", "configuration", "options"})


def _checkpoint(found: Snapshot) -> bytes:
    """All that counts, as one file."""
    since = time.time() * 1000 - _KEPT_MS
    found.removed = {p: one for p, one in found.removed.items() if (one.get("deletionTimestamp") or 0) > since}
    rows: list[dict[str, Any]] = [{"protocol": found.protocol}, {"metaData": found.metadata}]
    rows += ({"txn": one} for one in found.transactions.values())
    rows += ({"add": {**one, "dataChange": False}} for one in found.added.values())
    rows += ({"remove": {**one, "dataChange": False}} for one in found.removed.values())
    columns = [pa.array([row.get(f.name) for row in map(_with_pairs, rows)], f.type) for f in _CHECKPOINT]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, schema=_CHECKPOINT), sink, compression="zstd")
    return sink.getvalue()


def _with_pairs(value: Any) -> Any:
    """Maps as pyarrow takes them."""
    if not isinstance(value, dict):
        return value
    return {k: list((v or {}).items()) if k in _MAPS else _with_pairs(v) for k, v in value.items()}


def _of_checkpoint(data: bytes) -> Iterable[dict[str, Any]]:
    # In this thread alone: one of Arrow that still has a file of Python when the interpreter ends aborts the process.
    table = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False)
    for name in (name for name in _CHECKPOINT.names if name in table.column_names):
        column = table.column(name)
        for value in column.filter(column.is_valid()).to_pylist():
            yield {name: _with_maps(value)}


def _with_maps(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {k: dict(v or ()) if k in _MAPS else _with_maps(v) for k, v in value.items()}
