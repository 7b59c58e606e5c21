"""The Delta logs beside the lake's files: they follow the commits, make up for a crash in between, and gain columns.

Without Spark: files and commits are written as the pipeline writes them, and read back by deltalake.
"""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

from deltalake import DeltaTable

from ringmain.pipeline._delta import sync
from ringmain.pipeline._lake import Commit, Lake, Written


def put(lake: Lake, batch: int, table: str, folder: str, columns: dict[str, Any]) -> Written:
    path = lake.path(table) / folder / f"b{batch:09d}-0000.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    rows = len(next(iter(columns.values())))
    return Written(table, str(path.relative_to(lake.root)), rows, path.stat().st_size)


def rows_of(lake: Lake, table: str) -> pa.Table:
    return DeltaTable(lake.path(table).as_uri()).to_pyarrow_table()


def test_logs_follow_the_commits(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    lake.checkpoint.mkdir()
    # Spark escapes the slash of a topic's name in a partition's directory.
    escaped = put(lake, 0, "bronze", "date=2026-01-02/topic=camera%2Fleft", {"seq": [1, 2]})
    plain = put(lake, 0, "bronze", "date=2026-01-02/topic=imu", {"seq": [1]})
    silver = put(lake, 0, "silver/camera~left", "date=2026-01-02", {"seq": [1, 2]})
    lake.commit(Commit(0, [], [escaped, plain, silver], {}))
    sync(lake)
    sync(lake)
    assert rows_of(lake, "bronze").num_rows == 3
    assert set(rows_of(lake, "bronze")["topic"].to_pylist()) == {"camera/left", "imu"}
    assert rows_of(lake, "silver/camera~left")["date"].to_pylist() == [datetime.date(2026, 1, 2)] * 2

    # A crash after some tables were told and before the lake noted it: the next sync adds to none of them twice.
    (lake.batches.parent / "delta.json").unlink()
    wider = put(lake, 1, "silver/camera~left", "date=2026-01-03", {"seq": [3], "note": ["new"]})
    lake.commit(Commit(1, [], [wider], {}))
    sync(lake)
    assert rows_of(lake, "bronze").num_rows == 3
    found = rows_of(lake, "silver/camera~left").sort_by("seq").to_pydict()
    assert (found["seq"], found["note"]) == ([1, 2, 3], [None, None, "new"])
