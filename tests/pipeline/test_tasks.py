"""How a batch is cut into tasks: every core has one, also where rows are stored together, and the lake is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringmain.lake import Lake
from ringmain.pipeline import Pipeline, _batch
from ringmain.pipeline._engine import LocalEngine
from ringmain.pipeline._work import Report, Work
from ringmain.recording import SegmentRef, Store
from ringmain.recording._plan import Range, split
from ringmain.spark import _tasks
from tests.spark.recordings import Imu, imu, record, rows, schema_of, writer


def test_a_range_is_split_by_rows(tmp_path: Path) -> None:
    ref = SegmentRef(0, True, Store.of(record(tmp_path / "r", ("a", 1, rows(0, 10)))), 0)
    parts = split(Range("r", ref, 3, 13, 100, 5, 9), 4)
    assert [(part.first, part.end) for part in parts] == [(3, 5), (5, 8), (8, 10), (10, 13)]
    assert sum(part.bytes for part in parts) == 100
    assert {(part.min_ns, part.max_ns) for part in parts} == {(5, 9)}
    assert len(split(Range("r", ref, 0, 2, 100), 5)) == 2, "no part is empty"


def test_a_batch_that_takes_long_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "r", ("a", 1, rows(0, 100)))
    monkeypatch.setattr(_batch, "SMALLEST_TASK_BYTES", 1)
    monkeypatch.setattr(LocalEngine, "cores", lambda _: 4)
    monkeypatch.setattr(_tasks, "PROGRESS_S", 0.0)
    lines: list[str] = []
    Pipeline().run(tmp_path / "r", tmp_path / "lake", engine="local", progress=lines.append)
    told = [line.partition(" bytes: ")[2] for line in lines[:-1]]
    assert told == [f"{done} of 4 tasks done" for done in range(4)]
    assert lines[0].startswith("batch 0: 100 rows of ")


def test_a_large_batch_has_few_tasks_a_core(tmp_path: Path) -> None:
    ref = SegmentRef(0, True, Store.of(record(tmp_path / "r", ("a", 1, rows(0, 10)))), 0)
    usual = 32 << 20
    batch = [Range("r", ref, number, number + 1, usual) for number in range(24)]
    found = {cores: _batch.task_bytes(batch, cores, usual) // usual for cores in (1, 2, 4, 8, 64)}
    assert found == {1: 4, 2: 3, 4: 1, 8: 1, 64: 0}, "in ranges; on 64 cores each has a part of one"
    assert _batch.task_bytes(batch, 64, usual) == 12 << 20
    assert _batch.task_bytes(batch[:1], 2, usual) == 16 << 20
    assert _batch.task_bytes(batch, 2, 1) == 4, "a size of the user's own is kept to"


@pytest.mark.timeout(300)
def test_spark_says_how_far_a_batch_is(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "r", ("a", 1, rows(0, 100)))
    monkeypatch.setattr(_tasks, "PROGRESS_S", 0.001)
    lines: list[str] = []
    assert Pipeline().run(tmp_path / "r", tmp_path / "lake", spark=spark, progress=lines.append).rows_in == 100
    assert any(line.endswith(" 0 of 1 tasks done") for line in lines)


def test_one_row_group_keeps_all_cores_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = writer(tmp_path / "r")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.append("imu", 1, rows(0, 1000, encode=imu, step_ns=10**7))
    made.close()
    tasks: list[int] = []

    def run(engine: LocalEngine, work: Work, kind: type[Report], about: str, progress: object) -> list[Report]:
        tasks.append(len(work.tasks))
        return [work.run(number) for number in reversed(range(len(work.tasks)))]

    monkeypatch.setattr(LocalEngine, "run", run)
    monkeypatch.setattr(_batch, "SMALLEST_TASK_BYTES", 1)
    found = []
    for cores in (1, 8):
        monkeypatch.setattr(LocalEngine, "cores", lambda _, cores=cores: cores)
        lake = Lake(str(tmp_path / f"lake{cores}"))
        summary = Pipeline().run(tmp_path / "r", lake, engine="local")
        assert (summary.rows_in, summary.rows_out) == (1000, 1000)
        health = lake.to_arrow("gold/topic_health").sort_by("window_start").to_pylist()
        found.append((health, lake.to_arrow("gold/senders").sort_by("window_start").to_pylist()))
    assert tasks == [1, 8]
    assert found[0] == found[1], "how rows are cut does not show"
