"""`--format delta`: the lake's tables as Delta tables too, without a jar and without writing any row twice.

The Parquet files are the ones that the pipeline has put in place; what is added is each table's log. The invariant
owned here: *the log follows the commits*. Each table remembers, as Delta's own application transaction, up to which
batch it has been told; whatever is complete beyond that is added. So a crash between the two is made good by the next
batch. A table that has no log yet gets one with all the files that are there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ringmain.errors import LakeError
from ringmain.pipeline._install import Written
from ringmain.pipeline._lake import Commit, Lake

APPLICATION = "ringmain.pipeline"


def sync(lake: Lake) -> None:
    """Tell every table's log of the batches that are complete."""
    for number in lake.commits():
        if number > _told(lake):
            _add(lake, lake.read_commit(number))
            _remember(lake, number)


def _add(lake: Lake, commit: Commit) -> None:
    tables: dict[str, list[Written]] = {}
    for file in commit.files:
        tables.setdefault(file.table, []).append(file)
    for table, files in tables.items():
        _add_to_table(lake, table, files, commit.batch)


def _add_to_table(lake: Lake, table: str, files: list[Written], batch: int) -> None:
    try:
        from deltalake import DeltaTable, Schema
        from deltalake.transaction import (
            AddAction,
            CommitProperties,
            RemoveAction,
            Transaction,
            create_table_with_add_actions,
        )
    except ImportError as error:
        raise LakeError("--format delta needs the package deltalake: pip install 'ringmain[delta]'") from error

    root = lake.path(table)
    uri = root.as_uri()
    known = DeltaTable(uri) if DeltaTable.is_deltatable(uri) else None
    version = known.transaction_version(APPLICATION) if known is not None else None
    if version is not None and version >= batch:
        return
    paths = sorted(root.rglob("*.parquet")) if known is None else [lake.root / file.path for file in files]
    partitions = [_partition_values(path, root) for path in paths]
    actions: list[AddAction | RemoveAction] = []
    for path, values in zip(paths, partitions, strict=True):
        status, stats = path.stat(), json.dumps({"numRecords": pq.read_metadata(path).num_rows})
        actions.append(
            AddAction(str(path.relative_to(root)), status.st_size, values, int(status.st_mtime * 1000), True, stats)
        )
    fields = pa.unify_schemas([pq.read_schema(path).remove_metadata() for path in paths])
    for name in partitions[0]:
        fields = fields.append(pa.field(name, pa.date32() if name == "date" else pa.string()))
    schema = Schema.from_arrow(fields)
    told = CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])
    if known is None:
        create_table_with_add_actions(
            uri,
            schema,
            cast("list[AddAction]", actions),
            "error",
            list(partitions[0]),
            name=table,
            commit_properties=told,
        )
        return
    there = {field.name for field in known.schema().fields}
    new = [field for field in schema.fields if field.name not in there]
    if new:
        known.alter.add_columns(new)
    known.create_write_transaction(actions, "append", known.schema(), list(partitions[0]), commit_properties=told)


def _partition_values(file: Path, root: Path) -> dict[str, str | None]:
    parts = [part for part in file.relative_to(root).parts[:-1] if "=" in part]
    return {part.partition("=")[0]: unquote(part.partition("=")[2]) for part in parts}


def _told(lake: Lake) -> int:
    path = lake.batches.parent / "delta.json"
    return int(json.loads(path.read_text())["batch"]) if path.exists() else -1


def _remember(lake: Lake, batch: int) -> None:
    from ringmain.recording._checksum import replace_file

    replace_file(lake.batches.parent / "delta.json", json.dumps({"batch": batch}).encode())
