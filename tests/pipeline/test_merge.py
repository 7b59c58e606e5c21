"""Gold is merged by the driver, or of many lives by tasks of the engine: the rows are the same, also when the driver is
killed on the way."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from ringmain.lake import Lake
from ringmain.lake._health import FIELDS, GOLD, HEALTH, QUARANTINE, SENDERS
from ringmain.pipeline import Pipeline, _merge
from ringmain.testing import crash_points, die_at
from tests import forked, samples
from tests.spark.recordings import START_NS, rows, schema_of, writer

SECOND = 10**9
MERGED = (HEALTH, SENDERS, FIELDS, QUARANTINE)


class Imu(msgspec.Struct):
    t: int
    x: float
    way: tuple[float, float] = (1.0, 2.0)


def encode(n: int) -> bytes:
    return b"\xc1" if n % 17 == 3 else msgspec.msgpack.encode(Imu(n, n / 3))


def record(folder: Path, hosts: range, first: int = 0) -> None:
    """Of each host 40 messages in windows of 10 s: typed ones of two senders, and others."""
    hostname = socket.gethostname
    for host in hosts:
        socket.gethostname = lambda host=host: f"robot-{host:02}"
        made = writer(folder / f"{host}-from-{first}")
        epoch = START_NS - 100 + host
        made.declare("imu", epoch=epoch, schema=schema_of(Imu))
        for topic, own in (("imu", encode), ("raw", None)):
            for part in range(2):
                some = rows(first + part * 20, 20, encode=own, step_ns=SECOND, sender=f"s{part}", lost=part)
                made.append(topic, epoch, some)
        made.close()
    socket.gethostname = hostname


def as_tasks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every batch is merged by tasks, many for each table. How many each job has had."""
    monkeypatch.setattr(_merge, "AS_TASKS_ROWS", 0)
    monkeypatch.setattr(_merge, "PART_ROWS", 7)
    monkeypatch.setattr(_merge, "SAMPLED", 2)
    jobs: list[int] = []
    work = _merge.Measured.work

    def noted(*args: Any) -> _merge.Merge:
        jobs.append(len(work(*args)))
        return work(*args)

    monkeypatch.setattr(_merge.Measured, "work", noted)
    return jobs


def gold(lake: Lake) -> dict[str, list[dict[str, Any]]]:
    found = {table.name: lake.to_arrow(table.name) for table in GOLD if lake.snapshot(table.name) is not None}
    keys = {table.name: table.keys or table.schema.names[:2] for table in GOLD}
    return {name: rows.sort_by([(key, "ascending") for key in keys[name]]).to_pylist() for name, rows in found.items()}


def test_both_ways_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In three batches: some hosts, more of others, and of all of them, also in windows that are there."""
    folders = [tmp_path / name for name in ("first", "second", "third")]
    for folder, hosts, first in zip(folders, (range(5), range(3, 12), range(12)), (0, 30, 60), strict=True):
        record(folder, hosts, first)

    def run_three(lake: Path) -> None:
        for count in (1, 2, 3):
            Pipeline().run([str(folder) for folder in folders[:count]], lake, engine="local")

    run_three(tmp_path / "by-driver")
    jobs = as_tasks(monkeypatch)
    run_three(tmp_path / "by-tasks")
    assert len(jobs) == 3 * len(MERGED)
    assert min(jobs) > 1
    expected, lake = gold(Lake(str(tmp_path / "by-driver"))), Lake(str(tmp_path / "by-tasks"))
    assert {table.name for table in MERGED} <= expected.keys()
    assert all(expected.values())
    for name, found in gold(lake).items():
        assert found == expected[name], name
    for table in MERGED:
        log = tmp_path.joinpath("by-tasks", table.name, "_delta_log").glob("*.json")
        actions = [json.loads(line) for file in log for line in file.read_text().splitlines()]
        named = {action["add"]["path"] for action in actions if "add" in action}
        assert {file.name for file in (tmp_path / "by-tasks" / table.name).glob("*.parquet")} == named


POINTS = crash_points("pipeline")


@pytest.mark.parametrize("point", samples.some([*POINTS[2:], *POINTS[:2]], 3))
def test_a_driver_that_is_killed(point: str, tmp_path: Path) -> None:
    record(tmp_path / "recs", range(6))
    program = """
import sys
from ringmain.pipeline import Pipeline, _merge
_merge.AS_TASKS_ROWS, _merge.PART_ROWS, _merge.SAMPLED = 0, 7, 2
Pipeline().run(*sys.argv[1:], engine="local")
"""

    def run(lake: str, **more: str) -> int:
        return forked.run(
            [sys.executable, "-c", program, str(tmp_path / "recs"), str(tmp_path / lake)],
            env={**os.environ, **more}, timeout=120, check=False,
        ).returncode  # fmt: skip

    assert run("lake", **die_at(point)) == -signal.SIGKILL
    assert run("lake") == 0
    Pipeline().run(tmp_path / "recs", tmp_path / "expected", engine="local")
    assert gold(Lake(str(tmp_path / "lake"))) == gold(Lake(str(tmp_path / "expected")))


def test_on_a_store(tmp_path: Path, s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "recs", range(6))
    Pipeline().run(tmp_path / "recs", tmp_path / "expected", engine="local")
    jobs = as_tasks(monkeypatch)
    lake = Lake(f"s3://lakes/{tmp_path.name}", s3)
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    assert min(jobs) > 1
    assert gold(lake) == gold(Lake(str(tmp_path / "expected")))


@pytest.mark.timeout(300)
def test_spark_merges(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path / "recs", range(6))
    Pipeline().run(tmp_path / "recs", tmp_path / "expected", engine="local")
    jobs = as_tasks(monkeypatch)
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", spark=spark)
    assert min(jobs) > 1
    assert gold(Lake(str(tmp_path / "lake"))) == gold(Lake(str(tmp_path / "expected")))


def test_few_lives_stay_on_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(_merge.Measured, "work", dies)
    record(tmp_path / "recs", range(3))
    assert Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local").rows_in == 240


def test_the_rows_of_a_batch_are_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not below what it measures, and not far above where topics send alike."""
    record(tmp_path / "recs", range(4))
    guessed: list[int] = []
    guess = _merge.expected_rows
    monkeypatch.setattr(
        "ringmain.pipeline._batch.expected_rows", lambda *args: (guessed.append(guess(*args)), guessed[-1])[1]
    )
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    lake = Lake(str(tmp_path / "lake"))
    measured = sum(lake.to_arrow(table.name).num_rows for table in (HEALTH, SENDERS, FIELDS))
    assert measured / 1.5 <= guessed[0] <= measured * 2


def test_parts_have_no_gaps() -> None:
    hosts = ["a", "b", "b", "b", None, "c", "é", "ü"]
    at = [3, 1, 2, 3, 9, 0, 5, 7]
    found = pa.table({"host": hosts, "window_start": pa.array(at, pa.timestamp("us", "UTC")), "n": range(8)})
    edges = [None, ("b", 2), ("b", 3), ("c", 0), ("é", 6), None]
    wheres = [_merge.Part(first, end, (), ()).where() for first, end in pairwise(edges)]
    numbers = [found.filter(where).column("n").to_pylist() for where in wheres]
    assert _merge.Part(None, None, (), ()).where() is None
    assert numbers == [[0, 1, 4], [2], [3], [5, 6], [7]]
