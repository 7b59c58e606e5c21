"""Windows: what one has, in which order they come, how they are divided, and that other processes read the same."""

from __future__ import annotations

import io
import multiprocessing
import pickle
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

import ringmain as rm
from ringmain.datasets import Episodes, Grid, Order, Windows, WindowStream, cells
from ringmain.lake import Lake
from ringmain.pipeline import run
from tests.datasets.recordings import Action, At, End, Imu, Scan, State, Task, frame, record

S = 1_000_000_000
MS = S // 1000
TASKS = Episodes(start="task/begin", end="task/end")
GRID = Grid(hz=10, topics={"state": "linear", "imu": "window 0.1s", "camera/front": "newest", "action": "next"})


def drive(path: Path, host: str = "robot-1", episodes: int = 3) -> Path:
    """Episodes of 2 s, with 20 steps each. The camera is slower than the grid, the IMU faster."""
    ticks = range(episodes * 25)
    return record(
        path,
        {
            "state": (State, [At(n * 100 * MS, State((n, -n), n / 2, n, n % 2 == 0, "m")) for n in ticks]),
            "imu": (Imu, [At(n * 50 * MS, Imu((n, 0, 9.81), n / 10)) for n in range(episodes * 50)]),
            "camera/front": (None, [At(n * 200 * MS, frame(n)) for n in range(episodes * 13)]),
            "action": (Action, [At(n * 100 * MS, Action(n)) for n in ticks]),
            "task/begin": (Task, [At(n * 2500 * MS, Task("fold", n)) for n in range(episodes)]),
            "task/end": (End, [At((n * 2500 + 2000) * MS, End(True)) for n in range(episodes)]),
        },
        host=host,
        epoch=ord(host[-1]),  # a life of a topic is of one host
    )


def windows(source: Any, **options: Any) -> Windows:
    return Windows(source, grid=GRID, episodes=TASKS, **{"length": 4, "newest": {"imu": 2}} | options)


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name], equal_nan=True) for name in one)


def test_a_window_has_the_cells_of_its_steps(tmp_path: Path) -> None:
    path = drive(tmp_path / "r")
    found = windows(path, stride=3, ages=True)
    table = cells(path, GRID, TASKS)
    steps = [list(rows) for _, rows in groupby(table.to_pylist(), lambda row: row["rm_episode"])]
    expected = [rows[at : at + 4] for rows in steps for at in range(0, len(rows) - 3, 3)]
    assert len(found) == len(expected)
    for number, rows in enumerate(expected):
        window = found[number]
        assert found.where(number) == (rows[0]["rm_episode"], rows[0]["rm_step"])
        assert window["state.position"].tolist() == [list(row["state"]["position"].values()) for row in rows]
        assert window["action.steer"].tolist() == [row["action"]["steer"] for row in rows]
        newest = [([np.nan] * 2 + [one["turn_rate"] for one in row["imu"]])[-2:] for row in rows]
        np.testing.assert_array_equal(window["imu.turn_rate"], newest)
        assert window["camera_front"][:, 0, 0, 0].tolist() == [row["camera_front"]["rm_payload"][0] for row in rows]
        assert window["rm_camera_front_age_ms"].tolist() == [row["rm_camera_front_age_ms"] for row in rows]
    assert found.left_out == {"state.mode": "text"}
    assert found.features["camera_front"] == ((4, 12, 16, 3), "uint8")
    assert found.features["imu.acceleration"] == ((4, 2, 3), "float64")
    assert {name: kind.shape for name, kind in found.features.items()} == {
        name: value.shape for name, value in found[-1].items()
    }


def test_windows_are_in_place_and_a_batch_is_their_stack(tmp_path: Path) -> None:
    found = windows(drive(tmp_path / "r"), topics=["state", "camera/front"])
    one, again = found[3], found[3]
    assert np.shares_memory(one["state.position"], again["state.position"])
    one["state.position"][:] = -1  # of this process's own copy of the page
    assert pickle.loads(pickle.dumps(found))[3]["state.position"][0, 0] == 3
    batch = found.batch([0, 5])
    assert batch["camera_front"].shape == (2, 4, 12, 16, 3)
    assert same({name: value[1] for name, value in batch.items()}, found[5])
    assert found.batch([4, 1], out=batch) is batch
    assert same({name: value[0] for name, value in batch.items()}, found[4])
    for other in (found.batch([1]), {"camera_front": batch["camera_front"]}):
        with pytest.raises(rm.InvalidArgument, match="out is no batch of 2"):
            found.batch([1, 2], out=other)
    with pytest.raises(IndexError, match=f"of {len(found)}"):
        found[len(found)]


def test_no_window_has_a_null_or_steps_of_two_episodes(tmp_path: Path) -> None:
    """A marked episode keeps its hole in the middle: windows are before it, and after it."""
    messages = [At(n * 100 * MS, Action(n)) for n in [*range(10), *range(15, 40)]]
    path = record(tmp_path / "r", {"action": (Action, messages)})
    grid = Grid(hz=10, topics={"action": "newest"}, tolerance_s=0.15)
    found = Windows(path, grid=grid, episodes=Episodes(length_s=2.0, on_hole="mark"), length=3)
    given = [window["action.steer"].tolist() for window in found]
    assert given == [
        *([n, n + 1, n + 2] for n in range(8)),
        [8, 9, 9],
        *([n, n + 1, n + 2] for n in range(15, 18)),
        *([n, n + 1, n + 2] for n in range(20, 38)),
    ]
    assert found.episodes.column("windows").to_pylist() == [12, 18]
    kept = Windows(path, grid=grid, episodes=Episodes(length_s=2.0), length=3)
    assert len(kept) == 18
    assert kept.refused.column("reason").to_pylist() == ["action: 4 cells without a value"]
    streamed = WindowStream(path, grid=grid, episodes=Episodes(length_s=2.0), length=3)
    assert (len(list(streamed)), dict(streamed.refused)) == (18, {"null cells": 1})
    assert len(Windows(path, grid=grid, episodes=Episodes(length_s=2.0), length=21)) == 0


def picture(brightness: int, format: str, width: int = 8) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, 6), (brightness, 0, 0)).save(file, format)
    return file.getvalue()


class Camera(msgspec.Struct):
    image: bytes
    broken: bytes


def test_pictures_as_files_are_decoded_and_what_has_no_shape_is_named(tmp_path: Path) -> None:
    topics: dict[str, Any] = {
        "camera": (Camera, [At(n * 100 * MS, Camera(picture(n, "png"), b"?")) for n in range(20)]),
        "scan": (Scan, [At(n * 100 * MS, Scan([1.0] * (n + 1))) for n in range(20)]),
        "array": (np.ndarray, [At(n * 100 * MS, np.full((2, 3), n, "u1")) for n in range(20)]),
    }
    path = record(tmp_path / "r", topics)
    grid = Grid(hz=10, topics=dict.fromkeys(topics, "newest"))
    found = Windows(path, grid=grid, episodes=Episodes(length_s=1.0), length=2)
    assert [window["camera.image"][0, 0, 0].tolist() for window in found][:3] == [[n, 0, 0] for n in range(3)]
    assert found.left_out == {
        "camera.broken": "bytes that are no frame and no picture",
        "scan.ranges": "its length changes",
    }
    arrays = [name for name in found.features if name.startswith("array")]
    assert found[5][arrays[0]].tolist() == [[[5] * 3] * 2, [[6] * 3] * 2]
    streamed = list(WindowStream(path, grid=grid, episodes=Episodes(length_s=1.0), length=2))
    assert all(same(one, other) for one, other in zip(found, streamed, strict=True))


@pytest.mark.parametrize("period_ms", [100, 300])
def test_pictures_that_are_decoded_once_are_in_place(tmp_path: Path, period_ms: int) -> None:
    """Unless the camera is slower than the grid."""
    messages = [At(n * period_ms * MS, picture(10 * n, "jpeg")) for n in range(2000 // period_ms)]
    path = record(tmp_path / "r", {"camera": (None, messages)})
    grid, seconds = Grid(hz=10, topics={"camera": "newest"}), Episodes(length_s=1.0)
    each, once = (Windows(path, grid=grid, episodes=seconds, length=3, decode=decode) for decode in (False, True))
    assert len(each) == len(once) > 0
    assert all(same(one, other) for one, other in zip(each, once, strict=True))
    assert np.shares_memory(once[0]["camera"], once[0]["camera"]) == (period_ms == 100)
    assert once.features == each.features


@pytest.mark.parametrize("decode", [False, True])
@pytest.mark.parametrize(
    ("other", "reason"),
    [(picture(1, "png", 10), "its shape changes"), (b"\xff\xd8\xff?", "a picture that cannot be read")],
)
def test_a_camera_with_a_picture_that_does_not_fit_is_left_out(
    tmp_path: Path, other: bytes, reason: str, decode: bool
) -> None:
    messages = [At(n * 100 * MS, other if n == 15 else picture(n, "png")) for n in range(20)]
    topics: dict[str, Any] = {
        "camera": (None, messages),
        "a": (Action, [At(n * 100 * MS, Action(n)) for n in range(20)]),
    }
    path = record(tmp_path / "r", topics)
    options: Any = {"grid": Grid(hz=10, topics=dict.fromkeys(topics, "newest")), "episodes": Episodes(length_s=1.0)}
    found = Windows(path, length=2, decode=decode, **options)
    assert found.features.keys() == {"a.steer"}
    assert found.left_out["camera"].startswith(reason)


def test_a_lake_gives_the_same_windows(tmp_path: Path) -> None:
    path = drive(tmp_path / "r")
    run(path, tmp_path / "lake", engine="local", progress=lambda line: None)
    recorded, of_lake = windows(path), windows(Lake(str(tmp_path / "lake")))
    assert len(recorded) == len(of_lake) > 0
    assert all(same(one, other) for one, other in zip(recorded, of_lake, strict=True))


def test_a_cache_is_used_again_until_there_is_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = drive(tmp_path / "all" / "one"), tmp_path / "cache"
    first = windows(tmp_path / "all", cache=cache)[0]
    with monkeypatch.context() as patched:
        patched.setattr("ringmain.datasets._feed.one_episode", None)
        assert same(windows(path, cache=cache)[0], first)
        with pytest.raises(TypeError):
            windows(path, cache=cache, ages=True)
    drive(tmp_path / "all" / "two", host="robot-2")
    assert len(windows(tmp_path / "all", cache=cache)) == 2 * len(windows(path, cache=cache))
    assert sorted(one.name[0] for one in cache.iterdir()).count(".") == 0


def test_a_temporary_file_goes_with_the_last_part(tmp_path: Path) -> None:
    found = windows(drive(tmp_path / "r"))
    directory = found._store.directory
    (one, other) = found.split(0.5, 0.5, by="episode")
    del found, other
    assert len(one[0]) > 0
    del one
    assert not directory.exists()


@pytest.mark.parametrize("ranks", [1, 3])
def test_an_order_is_its_seeds_and_goes_on_where_it_was(ranks: int) -> None:
    every = [Order(20, seed=7, rank=rank, ranks=ranks) for rank in range(ranks)]
    first = [list(order) for order in every]
    together = sorted(chain.from_iterable(first))
    assert len(set(together)) == len(together) == 20 // ranks * ranks
    assert [list(order) for order in every] != first  # another epoch
    assert list(Order(20, seed=7, ranks=ranks)) == first[0] != list(Order(20, seed=8, ranks=ranks))
    order = Order(20, seed=7, ranks=ranks)
    begun = iter(order)
    head = [next(begun) for _ in range(5)]
    other = Order(20, seed=7, ranks=ranks)
    other.load_state_dict(msgspec.json.decode(msgspec.json.encode(order.state_dict())))
    assert head + list(other) == first[0]
    other.load_state_dict(order.state_dict(taken=2))  # the other three were loaded, and not trained on
    assert head[:2] + list(other) == first[0]
    with pytest.raises(rm.InvalidArgument, match="another order"):
        Order(21, seed=7, ranks=ranks).load_state_dict(order.state_dict())


def test_a_stream_gives_the_same_windows_and_goes_on_where_it_was(tmp_path: Path) -> None:
    path = drive(tmp_path / "r")

    def stream(**options: Any) -> WindowStream:
        return WindowStream(path, grid=GRID, episodes=TASKS, length=4, newest={"imu": 2}, **options)

    def steps(found: Any) -> list[float]:
        return [one["action.steer"][0] for one in found]

    assert all(same(one, other) for one, other in zip(stream(), windows(path), strict=True))
    shuffled = stream(shuffle=True, seed=3)
    first, second = steps(shuffled), steps(shuffled)
    assert sorted(first) == sorted(second) == steps(stream())
    assert first != second
    begun = stream(shuffle=True, seed=3)
    head = steps(islice(begun, 20))
    other = stream(shuffle=True, seed=3)
    other.load_state_dict(begun.state_dict())
    assert head + steps(other) == first
    ranks = [steps(stream(rank=rank, ranks=2)) for rank in range(2)]
    assert sorted(chain.from_iterable(ranks)) == steps(stream())
    with pytest.raises(rm.InvalidArgument, match="another stream"):
        stream().load_state_dict(begun.state_dict())


def test_parts_have_no_host_and_no_moment_in_common(tmp_path: Path) -> None:
    for host in ("a", "b", "c"):
        drive(tmp_path / "all" / host, host=host, episodes=1)
    found = windows(tmp_path / "all")
    train, test = found.split(0.7, 0.3, by="host", seed=1)
    hosts = [set(part.episodes.column("host").to_pylist()) for part in (train, test)]
    assert (len(hosts[0]), len(hosts[1]), hosts[0] & hosts[1]) == (2, 1, set())
    assert len(train) + len(test) == len(found)
    assert found.split(0.7, 0.3, by="host", seed=1)[0].episodes.equals(train.episodes)
    with pytest.raises(rm.InvalidArgument, match="too few"):
        train.split(0.4, 0.3, 0.3, by="host")


def test_episodes_that_overlap_are_not_divided(tmp_path: Path) -> None:
    path = record(tmp_path / "r", {"action": (Action, [At(n * 100 * MS, Action(n)) for n in range(100)])})
    base = 1_700_000_000_000_000
    table = [
        {"host": "robot-1", "begin": base + begin * 1_000_000, "end": base + end * 1_000_000}
        for begin, end in [(0, 3), (2, 5), (1, 2), (5, 6), (6, 8)]
    ]
    grid = Grid(hz=10, topics={"action": "newest"})
    found = Windows(path, grid=grid, episodes=Episodes(table=table), length=5)
    for seed in range(4):
        parts = found.split(0.5, 0.3, 0.2, by="episode", seed=seed)
        steps = [{step for window in part for step in window["action.steer"].tolist()} for part in parts]
        assert len(steps[0] | steps[1] | steps[2]) == sum(map(len, steps))
        assert sum(len(part) for part in parts) == len(found)


def read_all(found: Windows, numbers: list[int], queue: Any) -> None:
    queue.put([{name: np.nansum(value) for name, value in one.items()} for one in found.__getitems__(numbers)])


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_the_same(tmp_path: Path, method: str) -> None:
    """What a DataLoader does with its workers."""
    found = windows(drive(tmp_path / "r"))
    numbers = list(found.order(seed=1))
    expected = [{name: np.nansum(value) for name, value in found[n].items()} for n in numbers]
    context: Any = multiprocessing.get_context(method)
    queue = context.Queue()
    workers = [
        context.Process(target=read_all, args=(found, numbers, queue)) for _ in range(2 if method == "fork" else 1)
    ]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert results == [expected] * len(workers)
    assert found._store.directory.exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"length": 0}, "length=0"),
        ({"stride": 1.5}, "stride=1.5"),
        ({"topics": ["gps"]}, "no topic gps: the grid has state, imu"),
        ({"topics": []}, "no topic at all"),
        ({"newest": {"imu": 0}}, "1 message or more"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(rm.InvalidArgument, match=sentence):
        windows([], **options)
    with pytest.raises(rm.InvalidArgument, match="need a grid and episodes"):
        Windows([], length=1)


def test_a_camera_as_fast_as_the_grid_is_in_place(tmp_path: Path) -> None:
    """It has a frame for two steps now and then, as clocks have it."""
    times = [n * 100 * MS + (60 * MS if n % 7 == 3 else 0) for n in range(40)]
    path = record(tmp_path / "r", {"camera": (None, [At(at, frame(n)) for n, at in enumerate(times)])})
    found = Windows(path, grid=Grid(hz=10, topics={"camera": "newest"}), episodes=Episodes(length_s=4.0), length=8)
    shown = found[0]["camera"]
    assert shown[:, 0, 0, 0].tolist() == [0, 1, 2, 2, 4, 5, 6, 7]
    assert np.shares_memory(shown, found[1]["camera"])
