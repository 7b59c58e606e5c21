"""A lake that is followed for long stays small in files and in bookkeeping, and a batch can always be taken back.

Without Spark: staged files are made as the pipeline makes them, and read back with pyarrow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ringmain.pipeline import _install
from ringmain.pipeline import _lake as lake_module
from ringmain.pipeline._install import Staged
from ringmain.pipeline._lake import Commit, Lake, TopicCount, totals


def stage(lake: Lake, batch: int, columns: dict[str, Any], table: str = "silver/a") -> Staged:
    file = lake.staging(batch) / table / "date=2026-01-02" / "part.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), file)
    return lake.staged(table, file, batch)


def read(lake: Lake, table: str = "silver/a") -> pa.Table:
    files = sorted(map(str, lake.path(table).rglob("*.parquet")))
    schema = pa.unify_schemas([pq.read_schema(file) for file in files])
    return ds.dataset(files, schema=schema, format="parquet").to_table()


def files_of(lake: Lake, table: str = "silver/a") -> list[str]:
    return sorted(path.name for path in lake.path(table).rglob("*.parquet"))


def batch_of(lake: Lake, batch: int, columns: dict[str, Any]) -> None:
    assert lake.begin(batch)
    files = lake.install([stage(lake, batch, columns)], batch)
    count = len(columns["seq"])
    lake.commit(Commit(batch, [TopicCount("a", count, count)], files, {}))


def make(path: Path, **options: Any) -> Lake:
    made = Lake(path, **options)
    made.checkpoint.mkdir()
    return made


def test_small_files_are_joined_and_gain_columns(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")
    for batch in range(20):
        batch_of(lake, batch, {"seq": [2 * batch, 2 * batch + 1]})
    assert files_of(lake) == ["b000000000-0000.parquet"]
    batch_of(lake, 20, {"seq": [40], "note": ["new"]})
    found = read(lake).to_pydict()
    assert found["seq"] == list(range(41))
    assert found["note"] == [None] * 40 + ["new"]
    # A column that changed its type is not forced into the old one.
    batch_of(lake, 21, {"seq": [41], "note": [7]})
    assert files_of(lake) == ["b000000000-0000.parquet", "b000000021-0000.parquet"]


def test_small_files_of_one_batch_are_joined_too(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")
    assert lake.begin(0)
    staged = []
    for n in range(5):
        one = stage(lake, 0, {"seq": [n]})
        staged.append(one._replace(file=one.file.rename(one.file.with_name(f"part{n}.parquet"))))
    lake.install(staged, 0)
    assert files_of(lake) == ["b000000000-0000.parquet"]
    assert read(lake)["seq"].to_pylist() == list(range(5))
    assert Lake(tmp_path / "lake").begin(0)  # it died: nothing of it stays
    assert files_of(lake) == []


def test_large_files_are_left_alone(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(_install, "JOINED_BYTES", 1000)
    lake = make(tmp_path / "lake")
    for batch in range(4):
        batch_of(lake, batch, {"seq": list(range(batch * 1000, batch * 1000 + 1000))})
    assert len(files_of(lake)) == 4
    assert sorted(read(lake)["seq"].to_pylist()) == list(range(4000))


def test_a_batch_that_died_is_taken_back_out_of_a_joined_file(tmp_path: Path) -> None:
    """It dies after its rows were joined to those of an earlier batch; tried again, each row is there once."""
    lake = make(tmp_path / "lake")
    batch_of(lake, 0, {"seq": [0, 1]})
    assert lake.begin(1)
    lake.install([stage(lake, 1, {"seq": [2]}), stage(lake, 1, {"seq": [2]}, "bronze")], 1)
    assert read(lake)["seq"].to_pylist() == [0, 1, 2]  # a reader may see it early, and never twice
    again = Lake(tmp_path / "lake")
    assert again.begin(1)
    assert read(again)["seq"].to_pylist() == [0, 1]
    assert files_of(again, "bronze") == []
    again.commit(Commit(1, [], again.install([stage(again, 1, {"seq": [2, 3]})], 1), {}))
    assert read(again)["seq"].to_pylist() == [0, 1, 2, 3]
    assert not again.begin(1)
    assert not (tmp_path / "lake" / "_ringmain" / "undo").exists()


def test_delta_keeps_every_file(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake", join_small=False)
    for batch in range(3):
        batch_of(lake, batch, {"seq": [batch]})
    assert len(files_of(lake)) == 3


def test_commits_are_folded_and_add_up(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(lake_module, "KEPT_COMMITS", 5)
    lake = make(tmp_path / "lake")
    for batch in range(33):
        assert lake.begin(batch)
        lake.commit(Commit(batch, [TopicCount("a", 3, 2, 1), TopicCount("b", batch, batch)], [], {}))
    assert len(lake.commits()) <= 10
    assert [(c.topic, c.rows_in, c.rows_out, c.quarantined) for c in totals(lake.root)] == [
        ("a", 99, 66, 33), ("b", sum(range(33)), sum(range(33)), 0),
    ]  # fmt: skip
    assert not lake.begin(0)  # folded, and not forgotten
    last = lake.last()
    assert last is not None
    assert last.batch == 32
