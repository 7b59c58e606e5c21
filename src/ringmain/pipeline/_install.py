"""Moves a batch's files into the tables, and joins small ones.

A pipeline that follows a recording makes a file for each topic and table with every batch: thousands a day. So a small
file is not put beside the one before it but joined with it, and takes its place under its name. The invariant owned
here: *a reader sees the joined file or the one it replaces, never both and never neither*, because one rename does it.
(Joining several files afterwards could not promise that.)

What was replaced stays as a hard link below `_ringmain/undo/BATCH/` until the batch is complete, so that a batch that
dies can be taken back.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

JOINED_BYTES = 8 << 20  # a joined file grows to this size: to write it again with each batch takes well under 0.1 s
SMALL_BYTES = JOINED_BYTES // 4  # a larger one is not small
JOINED_MEMORY = 64 << 20  # and unpacked to this
_ROWS = 1 << 16
_THREADS = 4


class Written(msgspec.Struct, frozen=True):
    """Rows of a batch in a file, which may hold those of earlier batches as well."""

    table: str
    path: str  # below the lake
    rows: int
    bytes: int


class Staged(NamedTuple):
    """A file of a batch that readers do not see yet."""

    table: str
    file: Path
    folder: Path  # its partition, below the table
    rows: int


def install(root: Path, undo: Path, staged: Iterable[Staged], batch: int, *, join: bool) -> list[Written]:
    """Move the files of a batch into the lake at `root`."""

    def install(folder: Path, files: list[Staged]) -> list[Written]:
        (root / folder).mkdir(parents=True, exist_ok=True)
        newest = max((root / folder).glob("b*.parquet"), default=None) if join else None
        done = []
        for index, one in enumerate(files):
            target = root / folder / f"{prefix(batch)}{index:04d}.parquet"
            if newest is not None and _may_join(newest, one.file):
                target = newest
                _keep(target, undo / target.relative_to(root), batch)
                _join(target, one.file)
            os.replace(one.file, target)
            newest = target if join else None
            done.append(Written(one.table, str(target.relative_to(root)), one.rows, target.stat().st_size))
        return done

    ordered = sorted(staged, key=lambda one: (one.table, str(one.folder), one.file.name))
    groups = [(folder, list(files)) for folder, files in groupby(ordered, lambda one: Path(one.table) / one.folder)]
    with ThreadPoolExecutor(_THREADS) as pool:
        return [written for done in pool.map(lambda group: install(*group), groups) for written in done]


def _keep(file: Path, link: Path, batch: int) -> None:
    """What the file was before this batch; one that the batch itself has made needs no keeping."""
    if not link.exists() and not file.name.startswith(prefix(batch)):
        link.parent.mkdir(parents=True, exist_ok=True)
        os.link(file, link)


def take_back(root: Path, undo: Path, batch: int) -> None:
    """Removes the files of a batch that died."""
    for table in ("bronze", "silver", "quarantine", "steps"):
        for leftover in (root / table).rglob(f"{prefix(batch)}*.parquet"):
            leftover.unlink()
    for kept in undo.rglob("*.parquet"):
        os.replace(kept, root / kept.relative_to(undo))
    shutil.rmtree(undo, ignore_errors=True)


def prefix(batch: int) -> str:
    return f"b{batch:09d}-"


def _may_join(newest: Path, fresh: Path) -> bool:
    size = fresh.stat().st_size
    if size > SMALL_BYTES or newest.stat().st_size + size > JOINED_BYTES:
        return False
    both = [pq.ParquetFile(newest), pq.ParquetFile(fresh)]
    unpacked = sum(f.metadata.row_group(i).total_byte_size for f in both for i in range(f.metadata.num_row_groups))
    one, other = (f.schema_arrow for f in both)
    same = all(one.field(name).type.equals(other.field(name).type) for name in one.names if name in other.names)
    return same and unpacked <= JOINED_MEMORY


def _join(newest: Path, fresh: Path) -> None:
    """Make `fresh` the rows of `newest` and its own. A column that only one of them has is null in the other's rows."""
    one, other = pq.read_schema(newest).remove_metadata(), pq.read_schema(fresh).remove_metadata()
    fields = [*one, *(f for f in other if f.name not in one.names)]
    schema = pa.schema([f.with_nullable(True) for f in fields])
    joined = fresh.with_name(f"joined-{fresh.name}")
    with pq.ParquetWriter(joined, schema, compression="zstd") as writer:
        for source in (newest, fresh):
            for batch in pq.ParquetFile(source).iter_batches(_ROWS):
                found = set(batch.schema.names)
                arrays = [batch.column(f.name) if f.name in found else pa.nulls(len(batch), f.type) for f in schema]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=schema))
    os.replace(joined, fresh)
