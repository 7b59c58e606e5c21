"""The grid: every cell is what its definition says, checked against one that looks at all messages for each tick."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ringmain as rm
from ringmain.datasets import Grid, cells
from ringmain.datasets._align import align
from ringmain.datasets._grid import KINDS, Method, ticks_us
from ringmain.lake import Lake
from ringmain.pipeline import run
from tests.datasets.recordings import START_US, Action, At, Imu, Scan, State, record

MS = 1_000_000
WAYS = ["newest", "nearest", "next", "linear", "window 0.000000005s"]


def by_looking(times: list[int], tick: int, method: Method, tolerance: int) -> list[int]:
    """Which messages make a cell: by looking at all of them."""
    if method.kind == "window":
        return [n for n, at in enumerate(times) if tick - method.window_ns < at <= tick]
    last = [n for n, at in enumerate(times) if n + 1 == len(times) or times[n + 1] != at]
    past = [n for n in last if 0 <= tick - times[n] <= tolerance]
    future = [n for n in last if 0 <= times[n] - tick <= tolerance]
    if method.kind == "newest":
        return past[-1:]
    if method.kind == "next":
        return future[:1]
    if method.kind == "nearest":
        return sorted({*past, *future}, key=lambda n: (abs(times[n] - tick), times[n]))[:1]
    return [past[-1], future[0]] if past and future else []


@given(
    times=st.lists(st.integers(0, 40), max_size=12).map(sorted),
    tick=st.lists(st.integers(-5, 45), min_size=1, max_size=8),
    way=st.sampled_from(WAYS),
    tolerance=st.integers(1, 12),
)
def test_a_cell_is_of_the_messages_that_its_definition_names(
    times: list[int], tick: list[int], way: str, tolerance: int
) -> None:
    method = Method.parse(way)
    found = align(np.array(times, np.int64), np.array(tick, np.int64), method, tolerance)
    for n, at in enumerate(tick):
        expected = by_looking(times, at, method, tolerance)
        assert bool(found.there[n]) == bool(expected)
        if not expected:
            continue
        if method.kind == "linear":
            before, after = expected
            assert (found.first[n], found.after[n]) == (before, after)
            span = times[after] - times[before]
            assert found.share[n] == (at - times[before]) / span if span else found.share[n] == 0
            assert found.age_ns[n] == at - times[before]
        else:
            assert list(range(found.first[n], found.end[n])) == expected
            assert found.age_ns[n] == at - times[expected[-1]]


@given(
    hz=st.one_of(st.integers(1, 1000), st.sampled_from([29.97, 0.1, 59.94, 1e6, 333.3])),
    since=st.integers(START_US, START_US + 10**9),
    parts=st.lists(st.integers(1, 2_000), min_size=1, max_size=4),
)
def test_ticks_are_the_multiples_of_the_period_however_time_is_cut(hz: float, since: int, parts: list[int]) -> None:
    whole = ticks_us(hz, since, since + sum(parts)).tolist()
    edges = np.cumsum([since, *parts])
    pieces = [t for a, b in pairwise(edges) for t in ticks_us(hz, int(a), int(b)).tolist()]
    assert pieces == whole
    period = Fraction(1_000_000) / Fraction(str(hz))
    first = since // period
    every = [math.floor(k * period) for k in range(int(first), int(first) + len(whole) + 3)]
    assert whole == [t for t in every if since <= t < since + sum(parts)]


def drive(tmp_path: Path) -> Path:
    """200 ms: a state each 10 ms, an IMU each 5 ms, an action each 40 ms."""
    return record(
        tmp_path / "drive",
        {
            "state": (State, [At(n * 10 * MS, State((n, -n), n / 2, n, n % 2 == 0, f"m{n}")) for n in range(21)]),
            "imu": (Imu, [At(n * 5 * MS, Imu((n, 0, 9.81), n / 10)) for n in range(41)]),
            "action": (Action, [At(n * 40 * MS, Action(n)) for n in range(6)]),
            "other": (None, [At(0, b"bytes")]),
        },
    )


def rows(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_a_grid_of_a_recording(tmp_path: Path) -> None:
    grid = Grid(hz=40, topics={"state": "linear", "imu": "window 0.01s", "action": "next"}, tolerance_s=0.03)
    table = cells(drive(tmp_path), grid)
    assert table.column_names == [
        "rm_host", "rm_time", "state", "rm_state_age_ms", "imu", "rm_imu_age_ms", "action", "rm_action_age_ms",
    ]  # fmt: skip
    found = rows(table)
    assert [row["rm_time"].timestamp() for row in found] == [START_US / 1e6 + n * 0.025 for n in range(9)]
    assert {row["rm_host"] for row in found} == {"robot-1"}
    between = found[1]  # 25 ms: in the middle of two states, at an IMU message, 15 ms before an action
    assert between["state"] == {
        "position": {"_1": 2.5, "_2": -2.5}, "speed": 1.25, "gear": 2.5, "moving": True, "mode": "m2",
    }  # fmt: skip
    assert between["rm_state_age_ms"] == 5.0
    assert [one["turn_rate"] for one in between["imu"]] == [0.4, 0.5]  # of (15 ms, 25 ms]
    assert between["rm_imu_age_ms"] == 0.0
    assert (between["action"], between["rm_action_age_ms"]) == ({"steer": 1.0}, -15.0)
    at_50 = found[2]  # the next action is at 80 ms, 30 ms away: just near enough
    assert (at_50["action"], at_50["rm_action_age_ms"]) == ({"steer": 2.0}, -30.0)


@pytest.mark.parametrize("seed", range(3))
def test_the_cells_of_two_hosts_are_those_that_one_finds_by_looking(tmp_path: Path, seed: int) -> None:
    """Of recordings and of a lake: values and ages, with messages at random times, some at the same."""
    rng = np.random.default_rng(seed)
    at = {
        (host, topic): sorted((rng.integers(0, 900, 60) * MS + rng.integers(0, 3, 60)).tolist())
        for host in ("a", "b")
        for topic in WAYS
    }
    for host in ("a", "b"):
        topics = {
            topic.split()[0]: (Action, [At(ns, Action(n)) for n, ns in enumerate(at[host, topic])]) for topic in WAYS
        }
        record(tmp_path / "all" / host, topics, host=host, epoch=ord(host))
    ways = {way.split()[0]: "window 0.02s" if way.startswith("window") else way for way in WAYS}
    grid = Grid(hz=100, topics=ways, tolerance_s=0.01)
    run(tmp_path / "all", tmp_path / "lake", engine="local", progress=lambda line: None)
    found = cells(tmp_path / "all", grid)
    assert cells(Lake(str(tmp_path / "lake")), grid).equals(found)
    assert {row["rm_host"] for row in rows(found)} == {"a", "b"}
    for row in rows(found):
        tick = round(row["rm_time"].timestamp() * 1e6) * 1000 - START_US * 1000
        for way in WAYS:
            times, topic = at[row["rm_host"], way], way.split()[0]
            which = by_looking(times, tick, Method.parse(ways[topic]), 10 * MS)
            cell, age = row[topic], row[f"rm_{topic}_age_ms"]
            if not which:
                assert (cell, age) == (None, None)
                continue
            before = which[0] if way == "linear" else which[-1]
            assert age == (tick - times[before]) / 1e6
            if topic == "window":
                assert [one["steer"] for one in cell] == which
            elif way == "linear":
                share = (tick - times[which[0]]) / max(1, times[which[1]] - times[which[0]])
                assert cell["steer"] == pytest.approx(which[0] + share * (which[1] - which[0]))
            else:
                assert cell["steer"] == which[0]


def test_what_is_too_far_is_null(tmp_path: Path) -> None:
    path = record(tmp_path / "r", {"a": (Action, [At(0, Action(1)), At(200 * MS, Action(2)), At(210 * MS, Action(3))])})
    ages = {
        way: cells(path, Grid(hz=100, topics={"a": way}, tolerance_s=0.05)).column("rm_a_age_ms").to_pylist()
        for way in KINDS
        if way != "window"
    }
    assert ages["newest"] == [0, 10, 20, 30, 40, 50, *[None] * 14, 0, 0]
    assert ages["next"] == [0, *[None] * 14, -50, -40, -30, -20, -10, 0, 0]
    assert ages["nearest"] == [0, 10, 20, 30, 40, 50, *[None] * 9, -50, -40, -30, -20, -10, 0, 0]
    assert ages["linear"] == [0, *[None] * 19, 0, 0]


def test_raw_topics_keep_their_bytes_and_several_recordings_their_hosts(tmp_path: Path) -> None:
    for host in ("b", "a"):
        record(tmp_path / "all" / host, {"raw": (None, [At(0, f"from {host}".encode())])}, host=host)
    found = rows(cells(tmp_path / "all", Grid(hz=10, topics={"raw": "newest"})))
    assert [(row["rm_host"], row["raw"]["rm_payload"]) for row in found] == [("a", b"from a"), ("b", b"from b")]


def test_recordings_of_one_host_that_overlap_are_one(tmp_path: Path) -> None:
    messages = [At(n * 10 * MS, Action(n)) for n in range(20)]
    record(tmp_path / "all" / "one", {"a": (Action, messages)})
    record(tmp_path / "all" / "two", {"a": (Action, messages)})
    grid = Grid(hz=100, topics={"a": "window 0.02s"})
    both = cells([tmp_path / "all" / "one", rm.Recording(tmp_path / "all" / "two")], grid)
    assert both.equals(cells(tmp_path / "all" / "one", grid))
    assert len(rows(both)[5]["a"]) == 2


def test_a_life_with_another_schema_has_its_fields(tmp_path: Path) -> None:
    record(tmp_path / "r", {"a": (Action, [At(0, Action(1))])}, epoch=1)
    record(tmp_path / "r", {"a": (Imu, [At(10 * MS, Imu((1, 2, 3), 4))])}, epoch=2)
    first, second = rows(cells(tmp_path / "r", Grid(hz=100, topics={"a": "newest"})))
    assert first["a"] == {"steer": 1.0, "acceleration": None, "turn_rate": None}
    assert second["a"]["turn_rate"] == 4.0


def test_a_list_that_changes_its_length_has_nothing_between(tmp_path: Path) -> None:
    path = record(tmp_path / "r", {"a": (Scan, [At(0, Scan([1.0])), At(20 * MS, Scan([1.0, 2.0]))])})
    with pytest.raises(rm.InvalidArgument, match="changes"):
        cells(path, Grid(hz=100, topics={"a": "linear"}))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"hz": 0, "topics": {"a": "next"}}, "hz=0"),
        ({"hz": 10, "topics": {}}, "a grid needs topics"),
        ({"hz": 10, "topics": {"a": "mean"}}, "'mean' is not a way to make a cell: choose one of 'newest'"),
        ({"hz": 10, "topics": {"a": "window"}}, "window 0.2s"),
        ({"hz": 10, "topics": {"a": "window 0s"}}, "window 0.2s"),
        ({"hz": 10, "topics": {"a": "next"}, "tolerance_s": 0}, "tolerance_s=0"),
        ({"hz": 10, "topics": {"a/b": "next", "a_b": "next"}}, "the same column, a_b"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rm.InvalidArgument, match=sentence):
        Grid(**options)


def test_a_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(rm.TopicNotFound, match="no topic 'imo' is recorded here; there are action, imu"):
        cells(drive(tmp_path), Grid(hz=10, topics={"imo": "next"}))
