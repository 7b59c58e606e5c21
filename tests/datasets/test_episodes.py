"""Episodes: every way to say which spans they are, and every kind of hole in them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import ringmain as rm
from ringmain.datasets import Episodes, Grid, cells, count_holes, episodes_of
from ringmain.lake import Lake
from ringmain.pipeline import run
from tests.datasets.recordings import BAD, START_US, Action, At, End, Task, record

S = 1_000_000_000
MS = S // 1000
GRID = Grid(hz=10, topics={"a": "newest"}, tolerance_s=0.2)
TASKS = Episodes(start="task/begin", end="task/end")


def every_100_ms(first: int, end: int, lost: dict[int, int] = {}) -> list[At]:  # noqa: B006
    return [At(n * 100 * MS, Action(n), lost.get(n, 0)) for n in range(first, end)]


def tasks(path: Path, messages: list[At], begins: list[float], ends: list[float]) -> Path:
    return record(
        path,
        {
            "a": (Action, messages),
            "task/begin": (Task, [At(int(at * S), Task("fold", n)) for n, at in enumerate(begins)]),
            "task/end": (End, [At(int(at * S), End(True)) for at in ends]),
        },
    )


def found(path: Any, episodes: Episodes, grid: Grid = GRID) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = episodes_of(path, grid, episodes).to_pylist()
    return rows


def seconds(moment: datetime) -> float:
    return round(moment.timestamp() - START_US / 1e6, 6)


def test_spans_between_two_messages_with_the_fields_of_the_first_as_labels(tmp_path: Path) -> None:
    path = tasks(tmp_path / "r", every_100_ms(0, 100), [1.0, 5.0], [3.0, 7.0])
    one, two = found(path, TASKS)
    assert [(seconds(row["begin"]), seconds(row["end"]), row["state"], row["steps"]) for row in (one, two)] == [
        (1.0, 3.0, "kept", 20),
        (5.0, 7.0, "kept", 20),
    ]
    assert json.loads(two["labels"]) == {"name": "fold", "trial": 1}
    table = cells(path, GRID, TASKS)
    assert table.column("rm_episode").to_pylist() == [one["episode"]] * 20 + [two["episode"]] * 20
    assert table.column("rm_step").to_pylist() == [*range(20), *range(20)]


def test_begins_and_ends_without_the_other_are_refused_and_said(tmp_path: Path) -> None:
    path = tasks(tmp_path / "r", every_100_ms(0, 100), [1.0, 2.0, 8.0], [0.5, 3.0])
    assert [(row["state"], row["reason"].partition(";")[0]) for row in found(path, TASKS)] == [
        ("refused", "no task/begin before this task/end"),
        ("refused", "no task/end before the next task/begin"),
        ("kept", ""),
        ("refused", "no task/end after this task/begin"),
    ]


def test_spans_of_a_fixed_length_are_at_its_multiples(tmp_path: Path) -> None:
    path = record(tmp_path / "r", {"a": (Action, every_100_ms(5, 45))})
    rows = found(path, Episodes(length_s=2.0))
    assert [(seconds(row["begin"]), row["steps"], row["trimmed"]) for row in rows] == [
        (0, 15, 5),
        (2, 20, 0),
        (4, 7, 13),
    ]


def test_a_recording_that_was_continued_on_another_host_has_the_times_of_each(tmp_path: Path) -> None:
    for first, host, epoch in ((0, "robot-1", 1), (100, "robot-2", 2)):
        topics = {"a": (Action, every_100_ms(first, first + 20))}
        record(tmp_path / "r", topics, host=host, epoch=epoch, recorder="both")
    rows = found(tmp_path / "r", Episodes(length_s=1.0))
    assert [(row["host"], seconds(row["begin"]), row["state"], row["steps"]) for row in rows] == [
        ("robot-1", 0, "kept", 10), ("robot-1", 1, "kept", 10),
        ("robot-2", 10, "kept", 10), ("robot-2", 11, "kept", 10),
    ]  # fmt: skip
    assert len(cells(tmp_path / "r", GRID)) == 40


def test_a_table_of_the_users(tmp_path: Path) -> None:
    path = record(tmp_path / "r", {"a": (Action, every_100_ms(0, 100))})
    begin = datetime.fromtimestamp(START_US / 1e6 + 1, UTC)
    own = [
        {"host": "robot-1", "begin": begin, "end": START_US + 2_000_000, "who": "me"},
        {"host": "robot-2", "begin": 1, "end": 2, "who": "you"},
    ]
    (row,) = found(path, Episodes(table=own))
    assert (seconds(row["begin"]), row["steps"], row["labels"]) == (1.0, 10, '{"who":"me"}')


def test_incidents_of_a_flight_recorder_and_holes_of_those_that_are_not_whole(tmp_path: Path) -> None:
    """Retention had deleted the first half second, or the recorder died before the end: no message says so."""
    from ringmain.recording._upkeep.incidents import Incident, write_incident

    path = record(tmp_path / "r", {"a": (Action, every_100_ms(0, 100))})
    at = START_US * 1000 + 5 * S
    whole = Incident("", "a-whole", "crash", "a: lost", at, at - S, at + S, 0, 1, 0)
    for one in (
        whole,
        replace(whole, id="b-cut", whole_from_ns=at - S // 2),
        replace(whole, id="c-open", end_segment=-1),
    ):
        write_incident(path, one, sync=False)
    rows = found(path, Episodes(incidents=True))
    assert (seconds(rows[0]["begin"]), seconds(rows[0]["end"]), rows[0]["steps"]) == (4.0, 6.0, 20)
    assert json.loads(rows[0]["labels"]) == {"incident": "a-whole", "why": "a: lost"}
    assert [(row["state"], row["holes"], row["reason"]) for row in rows] == [
        ("kept", [], ""),
        ("refused", ["deleted"], "messages of its first 0.5 s were deleted before it was kept"),
        ("refused", ["open"], "not all of it was recorded"),
    ]
    assert [row["state"] for row in found(path, Episodes(incidents=True, on_hole="mark"))] == [
        "kept",
        "marked",
        "marked",
    ]


def test_reasons_are_counted(tmp_path: Path) -> None:
    path = tasks(tmp_path / "r", every_100_ms(0, 40, {15: 3, 25: 1}), [1.0, 2.0, 3.5], [1.9, 2.9])
    table = episodes_of(path, GRID, TASKS)
    assert count_holes(table).to_pylist() == [
        {"state": "refused", "hole": "lost", "episodes": 2},
        {"state": "refused", "hole": "no end", "episodes": 1},
        {"state": "refused", "hole": "no message", "episodes": 1},
    ]
    assert not len(count_holes(table.slice(0, 0)))


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (every_100_ms(0, 40, {15: 3}), "a: 3 lost"),
        (every_100_ms(0, 40, {20: 2}), "a: 2 lost"),  # counted in the message after the end, perhaps of the episode
        (every_100_ms(0, 13) + every_100_ms(18, 40), "a: silent for 0.6 s; a: 3 cells without a value"),
        ([*every_100_ms(0, 15), At(1450 * MS, BAD), *every_100_ms(15, 40)], "a: 1 quarantined"),
        (every_100_ms(0, 10) + every_100_ms(20, 40), "a: no message; a: silent for 1 s; no tick"),
    ],
)
def test_a_hole_refuses_an_episode_or_marks_it(tmp_path: Path, messages: list[At], reason: str) -> None:
    path = tasks(tmp_path / "r", messages, [1.0, 2.5], [2.0, 3.5])
    (refused, other) = found(path, Episodes(start="task/begin", end="task/end", silence_s=0.55))
    assert refused["state"] == "refused"
    assert refused["reason"].startswith(reason.partition("; a: 3")[0].partition("; no")[0])
    assert (other["state"], other["reason"]) == ("kept", "")
    marking = Episodes(start="task/begin", end="task/end", silence_s=0.55, on_hole="mark")
    (marked, _) = found(path, marking)
    assert marked["reason"].startswith(reason)
    empty = "no tick" in reason
    assert marked["state"] == ("refused" if empty else "marked")
    there = set(cells(path, GRID, marking).column("rm_episode").to_pylist())
    assert there == {other["episode"]} | (set() if empty else {marked["episode"]})


def test_an_episode_uses_no_message_from_outside_of_it(tmp_path: Path) -> None:
    """The cell of its first tick could be of a message before it, and is not: the tick is trimmed, and counted."""
    path = tasks(tmp_path / "r", [At(n * 100 * MS + 50 * MS, Action(n)) for n in range(40)], [1.0], [2.0])
    (row,) = found(path, TASKS)
    assert (row["steps"], row["trimmed"], row["state"]) == (9, 1, "kept")
    assert [cell["steer"] for cell in cells(path, GRID, TASKS).column("a").to_pylist()] == [*range(10, 19)]


def test_a_lake_has_the_same_episodes_and_the_same_cells(tmp_path: Path) -> None:
    messages = [*every_100_ms(0, 15), At(1450 * MS, BAD), *every_100_ms(15, 40, {33: 2})]
    path = tasks(tmp_path / "r", messages, [0.5, 1.0, 2.0, 3.0], [0.9, 1.8, 2.9, 3.2])
    run(path, tmp_path / "lake", engine="local", progress=lambda line: None)
    lake = Lake(str(tmp_path / "lake"))
    for episodes in (TASKS, Episodes(length_s=1.0), Episodes(length_s=1.0, on_hole="mark")):
        assert episodes_of(lake, GRID, episodes).equals(episodes_of(path, GRID, episodes))
        assert len(episodes_of(lake, GRID, episodes)) == 4
        assert cells(lake, GRID, episodes).equals(cells(path, GRID, episodes))
    assert cells(lake, GRID).equals(cells(path, GRID))
    with pytest.raises(rm.TopicNotFound, match="has no topic 'b'"):
        cells(lake, Grid(hz=10, topics={"b": "newest"}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "by one of: start and end, length_s, incidents, table"),
        ({"start": "a"}, "by one of"),
        ({"start": "a", "end": "b", "length_s": 1.0}, "by one of"),
        ({"start": "a", "end": "a"}, "cannot be told apart"),
        ({"length_s": -1.0}, "length_s=-1"),
        ({"length_s": 1.0, "on_hole": "skip"}, "choose 'refuse' or 'mark'"),
        ({"table": [{"host": "a"}]}, r"\['begin', 'end'\] are not there"),
        ({"table": [{"host": "a", "begin": 2, "end": 1}]}, "ends before it begins"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rm.InvalidArgument, match=sentence):
        Episodes(**options)
