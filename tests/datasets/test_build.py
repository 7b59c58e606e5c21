"""Data sets as tables of a lake: what one has, that a build makes what is new alone, and what a death leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ringmain as rm
from ringmain.datasets import Episodes, Grid, Windows, WindowStream, build, cells, episodes_of
from ringmain.errors import LakeError
from ringmain.lake import Lake
from ringmain.pipeline import run
from ringmain.recording._upkeep.incidents import Incident, write_incident
from ringmain.testing import crash_points
from tests.datasets.recordings import BAD, START_US, Action, At, End, Task, record
from tests.datasets.test_windows import GRID, TASKS, drive, same, windows

S = 1_000_000_000
MS = S // 1000
NEWEST = Grid(hz=10, topics={"a": "newest"}, tolerance_s=0.2)


def pipeline(recordings: Path, lake: Path) -> Lake:
    run(recordings, lake, engine="local", progress=lambda line: None)
    return Lake(str(lake))


def rows(lake: Lake, table: str, keys: list[str]) -> pa.Table:
    return lake.to_arrow(table).sort_by([(key, "ascending") for key in keys])


def check(lake: Lake, name: str, grid: Grid, episodes: Episodes) -> None:
    """The table is what the recipe makes of the lake, as it is now, in this process."""
    expected = cells(lake, grid, episodes).sort_by([("rm_host", "ascending"), ("rm_time", "ascending")])
    found = rows(lake, f"train/{name}", ["rm_host", "rm_time"])
    assert found.to_pylist() == expected.to_pylist()
    assert found.schema.names == expected.schema.names
    known = rows(lake, "gold/episodes", ["host", "begin", "end"])
    mine = known.filter(pc.equal(known.column("dataset"), name)).drop_columns("dataset")
    assert mine.to_pylist() == episodes_of(lake, grid, episodes).to_pylist()


def tasks(path: Path, first: int, end: int, *, host: str = "robot-1", epoch: int = 1, lost: int = 0) -> Path:
    """Messages each 100 ms; a task each 2 s, which takes 1.5 s. Numbers are of 100 ms."""
    begins = [n for n in range(first, end) if n % 20 == 0]
    ends = [n for n in range(first, end) if n % 20 == 15]
    messages = [At(n * 100 * MS, Action(n), lost if n == first else 0) for n in range(first, end)]
    topics: dict[str, Any] = {"a": (Action, messages)}
    topics["task/begin"] = (Task, [At(n * 100 * MS, Task("fold", n)) for n in begins])
    topics["task/end"] = (End, [At(n * 100 * MS, End(True)) for n in ends])
    return record(path, topics, host=host, epoch=epoch + 10 * ord(host[-1]))


def test_a_table_is_what_the_recipe_makes_of_the_lake(tmp_path: Path) -> None:
    drive(tmp_path / "all" / "one")
    drive(tmp_path / "all" / "two", host="robot-2")
    lake = pipeline(tmp_path / "all", tmp_path / "lake")
    built = build(lake, "pick", GRID, TASKS, engine="local")
    assert (built.made, built.refused, built.steps) == (6, 0, len(lake.to_arrow("train/pick")))
    check(lake, "pick", GRID, TASKS)
    found = Windows(lake, table="pick", length=4, newest={"imu": 2})
    expected = windows(tmp_path / "all")
    assert all(same(one, other) for one, other in zip(found, expected, strict=True))
    assert found.episodes.equals(expected.episodes)
    streamed = WindowStream(lake, table="pick", length=4, topics=["action"])
    assert [one["action.steer"][0] for one in streamed] == [one["action.steer"][0] for one in expected]
    assert build(lake, "pick", GRID, TASKS, engine="local").made == 0
    with pytest.raises(rm.InvalidArgument, match="its own"):
        Windows(lake, table="pick", grid=GRID, length=4)


def test_a_build_makes_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One robot goes on, and the open episode gets its end; another stays as it is; a third comes."""
    made: list[str] = []
    from ringmain.datasets import _build

    original = _build.one_episode
    monkeypatch.setattr(_build, "one_episode", lambda *args: made.append(args[3].id) or original(*args))  # type: ignore[func-returns-value]
    monkeypatch.setattr(_build, "LOOK_AHEAD_S", 1)
    tasks(tmp_path / "all" / "one", 0, 50)  # the third episode has no end
    tasks(tmp_path / "all" / "two", 0, 40, host="robot-2")
    lake = pipeline(tmp_path / "all", tmp_path / "lake")
    first = build(lake, "pick", NEWEST, TASKS, engine="local")
    assert (first.made, first.refused) == (5, 1)
    made.clear()
    tasks(tmp_path / "all" / "three", 50, 80, epoch=2, lost=3)
    tasks(tmp_path / "all" / "four", 0, 20, host="robot-3")
    pipeline(tmp_path / "all", tmp_path / "lake")
    second = build(lake, "pick", NEWEST, TASKS, engine="local")
    of = [f"{id.partition('@')[0]} {(int(id.rpartition('@')[2].partition('-')[0]) - START_US) // 10**5}" for id in made]
    assert of == ["robot-1 40", "robot-1 60", "robot-3 0"]  # neither robot-2, nor what ended long before
    assert (second.made, second.refused, second.gone) == (3, 1, 1)  # 3 lost in the one that got its end
    check(lake, "pick", NEWEST, TASKS)


def test_rows_that_come_late_replace_an_episode(tmp_path: Path) -> None:
    tasks(tmp_path / "all" / "one", 0, 40)
    lake = pipeline(tmp_path / "all", tmp_path / "lake")
    build(lake, "pick", NEWEST, TASKS, engine="local")
    build(lake, "fixed", NEWEST, Episodes(length_s=1.0), engine="local")
    late = [At(510 * MS, Action(99)), At(520 * MS, BAD)]  # into the first, one of which does not decode
    record(tmp_path / "all" / "two", {"a": (Action, late)}, epoch=2)
    pipeline(tmp_path / "all", tmp_path / "lake")
    assert build(lake, "pick", NEWEST, TASKS, engine="local").refused == 1
    build(lake, "fixed", NEWEST, Episodes(length_s=1.0), engine="local")
    check(lake, "pick", NEWEST, TASKS)
    check(lake, "fixed", NEWEST, Episodes(length_s=1.0))


def grown(tmp_path: Path, *names: str) -> Lake:
    """A lake that has more than these data sets were built from."""
    tasks(tmp_path / "all" / "one", 0, 50)
    lake = pipeline(tmp_path / "all", tmp_path / "lake")
    for name in names:
        build(lake, name, NEWEST, TASKS, engine="local")
    tasks(tmp_path / "all" / "two", 50, 80, epoch=2)
    pipeline(tmp_path / "all", tmp_path / "lake")
    return lake


def dies(monkeypatch: pytest.MonkeyPatch, point: str, lake: Lake, *, rebuild: bool = False) -> None:
    """A build that ends at this crash point."""

    def die(label: str) -> None:
        if label == point:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("ringmain.datasets._build._crash.point", die)
        build(lake, "pick", NEWEST, TASKS, engine="local", rebuild=rebuild)


@pytest.mark.parametrize("point", crash_points("datasets"))
def test_a_build_that_died_is_done_again_with_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Whatever came meanwhile is for the next build."""
    lake = grown(tmp_path, "pick")
    dies(monkeypatch, point, lake)
    tasks(tmp_path / "all" / "three", 80, 100, epoch=3)
    pipeline(tmp_path / "all", tmp_path / "lake")
    build(lake, "pick", NEWEST, TASKS, engine="local")
    build(lake, "pick", NEWEST, TASKS, engine="local")
    check(lake, "pick", NEWEST, TASKS)


@pytest.mark.parametrize("point", crash_points("datasets"))
def test_a_build_that_died_and_whose_rows_are_gone_says_so_and_is_done_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    """Files that were joined with newer ones, and deleted; then also the log of the version."""
    lake = grown(tmp_path, "other", "pick")
    dies(monkeypatch, point, lake)
    for _ in lake.maintain(keep_hours=0):
        pass
    said = r"train/pick of .* died, and cannot go on: it had read version \d+ of \S+, .*rebuild=True"
    with pytest.raises(LakeError, match=said):
        build(lake, "pick", NEWEST, TASKS, engine="local")
    tasks(tmp_path / "all" / "three", 0, 20, host="robot-2")
    pipeline(tmp_path / "all", tmp_path / "lake")
    with pytest.raises(LakeError, match=said):
        build(lake, "pick", NEWEST, TASKS, engine="local")
    dies(monkeypatch, point, lake, rebuild=True)  # which is done again like any other
    build(lake, "pick", NEWEST, TASKS, engine="local")
    check(lake, "pick", NEWEST, TASKS)
    assert build(lake, "pick", NEWEST, TASKS, engine="local", rebuild=True).made == 5
    build(lake, "other", NEWEST, TASKS, engine="local")
    for name in ("pick", "other"):
        check(lake, name, NEWEST, TASKS)


def test_upkeep_of_the_lake_changes_nothing_and_forgets_hosts(tmp_path: Path) -> None:
    tasks(tmp_path / "all" / "one", 0, 40)
    lake = pipeline(tmp_path / "all", tmp_path / "lake")
    for name in ("pick", "other"):
        build(lake, name, NEWEST, TASKS, engine="local")
    tasks(tmp_path / "all" / "two", 0, 40, host="robot-2")
    pipeline(tmp_path / "all", tmp_path / "lake")
    for name in ("pick", "other"):
        assert build(lake, name, NEWEST, TASKS, engine="local").made == 2
    lines = list(lake.maintain(keep_hours=1))
    assert [line for line in lines if "train/pick" in line] == ["train/pick: 2 files joined, 0 deleted"]
    for name in ("pick", "other"):
        assert build(lake, name, NEWEST, TASKS, engine="local").made == 0
        check(lake, name, NEWEST, TASKS)
    for _ in lake.maintain(keep_hours=0):  # what has been done is no longer in the log: all of it is done again
        pass
    tasks(tmp_path / "all" / "three", 0, 20, host="robot-3")
    pipeline(tmp_path / "all", tmp_path / "lake")
    assert build(lake, "pick", NEWEST, TASKS, engine="local").made == 5
    check(lake, "pick", NEWEST, TASKS)
    lake.delete_host("robot-1")
    assert set(lake.to_arrow("train/pick").column("rm_host").to_pylist()) == {"robot-2", "robot-3"}
    assert set(lake.to_arrow("gold/episodes").column("host").to_pylist()) == {"robot-2", "robot-3"}


def test_an_incident_is_an_episode_when_the_lake_knows_it(tmp_path: Path) -> None:
    """It is known later than its messages, so without a new row."""
    path = tasks(tmp_path / "all" / "one", 0, 40)
    lake, incidents = pipeline(tmp_path / "all", tmp_path / "lake"), Episodes(incidents=True)
    assert build(lake, "crashes", NEWEST, incidents, engine="local").made == 0
    at = START_US * 1000 + S
    whole = Incident("", "a-whole", "crash", "a: lost", at, at, at + S, 0, 1, 0)
    write_incident(path, whole, sync=False)
    write_incident(path, msgspec.structs.replace(whole, id="b-cut", whole_from_ns=at + S // 2), sync=False)
    pipeline(tmp_path / "all", tmp_path / "lake")
    built = build(lake, "crashes", NEWEST, incidents, engine="local")
    assert (built.made, built.refused) == (2, 1)
    assert episodes_of(lake, NEWEST, incidents).equals(episodes_of(path, NEWEST, incidents))


def test_recipes_and_names(tmp_path: Path) -> None:
    tasks(tmp_path / "all" / "one", 0, 20)
    lake = pipeline(tmp_path / "all", tmp_path / "lake")
    build(lake, "pick", NEWEST, TASKS, engine="local")
    recipe = msgspec.json.decode(lake.table("train/pick").metadata().configuration["ringmain.recipe"])
    assert (recipe["hz"], recipe["topics"], recipe["start"]) == (10, {"a": "newest"}, "task/begin")
    with pytest.raises(LakeError, match="has another recipe"):
        build(lake, "pick", Grid(hz=20, topics={"a": "newest"}), TASKS, engine="local")
    with pytest.raises(rm.InvalidArgument, match="'a/b': the name of a data set"):
        build(lake, "a/b", NEWEST, TASKS, engine="local")
    with pytest.raises(rm.InvalidArgument, match="choose 'spark' or 'local'"):
        build(lake, "pick", NEWEST, TASKS, engine="duckdb")  # type: ignore[arg-type]
    table = [{"host": "robot-1", "begin": START_US, "end": START_US + 500_000}]
    assert build(lake, "own", NEWEST, Episodes(table=table), engine="local").made == 1
    table.append({"host": "robot-1", "begin": START_US + 10**6, "end": START_US + 15 * 10**5})
    assert build(lake, "own", NEWEST, Episodes(table=table), engine="local").made == 1
    check(lake, "own", NEWEST, Episodes(table=table))


@pytest.mark.each_run
def test_spark_makes_the_same_table(spark: Any, tmp_path: Path) -> None:
    drive(tmp_path / "all" / "one")
    tasks_of_two = drive(tmp_path / "all" / "two", host="robot-2", episodes=4)
    lake = pipeline(tmp_path / "all", tmp_path / "lake")
    built = build(lake, "pick", GRID, TASKS, spark=spark)
    assert (built.made, built.engine) == (7, f"Spark {spark.version}")
    assert tasks_of_two.exists()
    check(lake, "pick", GRID, TASKS)
    build(lake, "here", GRID, TASKS, engine="local")
    keys = ["rm_host", "rm_time"]
    assert rows(lake, "train/pick", keys).equals(rows(lake, "train/here", keys))
    with pytest.raises(rm.TopicNotFound):
        build(lake, "none", Grid(hz=10, topics={"b": "newest"}), TASKS, spark=spark)
    one = Windows(lake, table="pick", length=4, topics=["state"])[0]
    assert np.isfinite(one["state.position"]).all()
