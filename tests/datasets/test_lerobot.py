"""LeRobot data sets, written by lerobot and loaded again by it: equal to the grid. `make test-lerobot` runs these."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import Any

import av
import msgspec
import numpy as np
import pytest

import ringmain as rm
from ringmain._cli.commands import export
from ringmain._cli.main import main
from ringmain.datasets import Episodes, Grid, Windows, build, cells
from ringmain.errors import RecordingError
from ringmain.lake import Lake
from ringmain.pipeline import run
from ringmain.recording import Recording, import_bag
from tests.datasets.recordings import Action, At, End, State, Task, frame, record
from tests.recording.golden_lerobot import FPS, GOLDEN, STEPS, TASKS, picture_of, state_of, write

pytestmark = [
    pytest.mark.lerobot,
    pytest.mark.filterwarnings("ignore"),  # lerobot and what it stands on have many, for us to do nothing about
]
MS = 1_000_000
SIDE = 64
GRID = Grid(hz=10, topics={"state": "linear", "camera/front": "newest", "camera/back": "newest", "action": "next"})
TASK_EPISODES = Episodes(start="task/begin", end="task/end")


def drive(path: Path, episodes: int = 3) -> Path:
    """Episodes of 2 s, of which the second misses a message."""
    ticks = range(episodes * 25)
    actions = [At(n * 100 * MS, Action(n / 3), lost=int(n == 30)) for n in ticks]
    return record(
        path,
        {
            "state": (
                State,
                [At(n * 70 * MS, State((n, -n), n / 2, n, n % 2 == 0, "m")) for n in range(episodes * 36)],
            ),
            "camera/front": (None, [At(n * 100 * MS, frame(3 * n, SIDE, SIDE)) for n in ticks]),
            "camera/back": (None, [At(n * 200 * MS, frame(200 - 3 * n, SIDE, SIDE)) for n in range(episodes * 13)]),
            "action": (Action, actions),
            "task/begin": (Task, [At(n * 2500 * MS, Task("fold", n)) for n in range(episodes)]),
            "task/end": (End, [At((n * 2500 + 2000) * MS, End(True)) for n in range(episodes)]),
        },
    )


def loaded(path: Path) -> Any:
    from lerobot.datasets.lerobot_dataset import LeRobotDataset

    return LeRobotDataset(f"ringmain/{path.name}", root=path, video_backend="pyav")


def check(found: Any, expected: list[dict[str, Any]], tolerance: int) -> None:
    """Step by step what the grid has, as float32; pictures within what a codec may change."""
    assert len(found) == len(expected)
    names = found.features["observation.state"]["names"]
    assert names == ["state.position.0", "state.position.1", "state.speed", "state.gear", "state.moving"]
    number, first = -1, 0
    for index, cell in enumerate(expected):
        item = found[index]
        if cell["rm_step"] == 0 or cell["rm_episode"] != expected[index - 1]["rm_episode"]:
            number, first = number + 1, index
        state = cell["state"]
        numbers = [*state["position"].values(), state["speed"], state["gear"], state["moving"]]
        assert item["observation.state"].numpy().tolist() == np.float32(numbers).tolist()
        assert item["action"].item() == np.float32(cell["action"]["steer"])
        assert (item["episode_index"], item["frame_index"], item["index"]) == (number, index - first, index)
        assert item["timestamp"].item() == np.float32((index - first) / 10)
        for camera in ("camera_front", "camera_back"):
            pixels = item[f"observation.images.{camera}"].numpy()
            assert pixels.shape == (3, SIDE, SIDE)
            assert np.abs(np.round(pixels * 255) - cell[camera]["rm_payload"][0]).max() <= tolerance


@pytest.mark.parametrize(("codec", "tolerance"), [("h264", 3), ("libsvtav1", 3), ("png", 0)])
def test_lerobot_loads_what_the_grid_has(tmp_path: Path, codec: str, tolerance: int) -> None:
    path = drive(tmp_path / "r")
    windows = Windows(path, grid=GRID, episodes=TASK_EPISODES, length=5)
    done = windows.export(tmp_path / "out", "lerobot", task="{name}, trial {trial}", codec=codec)
    expected = cells(path, GRID, TASK_EPISODES).to_pylist()
    assert (done.episodes, done.steps) == (2, len(expected))
    found = loaded(tmp_path / "out")
    check(found, expected, tolerance)
    assert [found[at]["task"] for at in (0, len(found) - 1)] == ["fold, trial 0", "fold, trial 2"]
    assert found.fps == 10
    videos = sorted((tmp_path / "out" / "videos").rglob("*.mp4")) if codec != "png" else []
    assert len(videos) == (0 if codec == "png" else 2)
    for video in videos:
        with av.open(str(video)) as file:
            times = [shown.time for shown in file.decode(video=0)]
            assert file.streams.video[0].codec.canonical_name == {"libsvtav1": "av1"}.get(codec, codec)
        assert times == pytest.approx(np.arange(len(expected)) / 10, abs=1e-4)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["out", "r"]


def test_what_is_exported_comes_back(tmp_path: Path) -> None:
    windows = Windows(drive(tmp_path / "r"), grid=GRID, episodes=TASK_EPISODES, length=5)
    windows.export(tmp_path / "out", "lerobot", task="fold", codec="png")
    import_bag(tmp_path / "out", tmp_path / "back")
    names = ("observation.state", "action", "observation.images.camera_front")
    back = Windows(
        tmp_path / "back", grid=Grid(hz=10, topics=dict.fromkeys(names, "newest")), length=5,
        episodes=Episodes(start="episode/begin", end="episode/end"),
    )  # fmt: skip
    assert len(windows) == len(back) > 0
    for one, other in zip(windows, back, strict=True):
        assert np.array_equal(np.float32(one["state.position"]), other["observation_state"][:, :2])
        assert np.array_equal(one["camera_front"], other["observation_images_camera_front"])


def test_a_marked_episode_is_one_for_each_stretch_without_a_null(tmp_path: Path) -> None:
    messages = [At(n * 100 * MS, Action(n)) for n in [*range(10), *range(15, 40)]]
    path = record(tmp_path / "r", {"action": (Action, messages)})
    grid = Grid(hz=10, topics={"action": "newest"}, tolerance_s=0.15)
    windows = Windows(path, grid=grid, episodes=Episodes(length_s=2.0, on_hole="mark"), length=3)
    windows.export(tmp_path / "out", "lerobot", task="steer")
    found = loaded(tmp_path / "out")
    given: dict[int, list[float]] = {}
    for n in range(len(found)):
        given.setdefault(found[n]["episode_index"].item(), []).append(found[n]["action"].item())
    assert list(given.values()) == [[*range(10), 9], [*range(15, 20)], [*range(20, 40)]]


def test_the_data_set_that_is_kept_is_what_lerobot_writes_and_loads(tmp_path: Path) -> None:
    """So the reader of `tests/recording/test_import_lerobot.py` is tested on what this version writes, too."""
    shutil.copytree(GOLDEN, tmp_path / "golden")
    write(tmp_path / "new", "h264")
    for path in (tmp_path / "golden", tmp_path / "new"):
        found = loaded(path)
        where = [(e, n) for e in range(2) for n in range(STEPS[e])]
        assert len(found) == len(where)
        for index, (episode, step) in enumerate(where):
            assert np.array_equal(found[index]["observation.state"].numpy(), state_of(episode, step))
            assert found[index]["task"] == (TASKS[episode] if step < STEPS[episode] - 3 else "rest")
        import_bag(path, tmp_path / f"r-{path.name}")
        frames = Recording(tmp_path / f"r-{path.name}").messages(topics="observation.images.front")
        for (episode, step), row in zip(where, frames, strict=True):
            assert np.abs(row.value.array.astype(int) - picture_of(episode, step)).max() <= 3
    assert loaded(tmp_path / "golden").fps == FPS


def test_what_cannot_be_written_is_said_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Windows(drive(tmp_path / "r"), grid=GRID, episodes=TASK_EPISODES, length=5)
    for options, said in (
        ({"task": ""}, "says what was to be done"),
        ({"task": "{object}"}, "an episode has no label 'object', it has: name, trial"),
        ({"task": "{"}, "task='{'"),
        ({"task": "{0}"}, "task='{0}'"),
        ({"task": "x", "actions": ["nothing"]}, "no topic nothing to be an action"),
    ):
        with pytest.raises(rm.InvalidArgument, match=said):
            windows.export(tmp_path / "out", "lerobot", **options)
    with pytest.raises(ValueError, match="vcodec"):
        windows.export(tmp_path / "out", "lerobot", task="x", codec="vp9")
    for grid, said in (
        (Grid(hz=10, topics={"state": "linear"}), "no topic's name begins with 'action'"),
        (Grid(hz=10.5, topics={"action": "next"}), "whole frames a second"),
    ):
        with pytest.raises(rm.InvalidArgument, match=said):
            Windows(tmp_path / "r", grid=grid, episodes=TASK_EPISODES, length=5).export(
                tmp_path / "out", "lerobot", task="x"
            )
    with pytest.raises(rm.InvalidArgument, match="no episode to write"):
        Windows(tmp_path / "r", grid=GRID, episodes=Episodes(length_s=1e6), length=5).export(
            tmp_path / "out", "lerobot", task="x"
        )
    monkeypatch.setattr("ringmain.datasets._lerobot.count_frames", lambda path, fps: 1)
    with pytest.raises(RecordingError, match=r"has 1 frames, for \d+ steps"):
        windows.export(tmp_path / "out", "lerobot", task="x", codec="h264")
    assert [one.name for one in tmp_path.iterdir()] == ["r"]


def test_whatever_topics_have(tmp_path: Path) -> None:
    """Booleans, wide and narrow numbers, matrices, depth, labels of every kind, episodes of one step, several hosts,
    and a camera of an odd size."""

    class Many(msgspec.Struct):
        on: bool
        count: int
        wide: float
        text: str
        joints: list[float]

    class Label(msgspec.Struct):
        name: str
        good: bool
        parts: list[str]

    labels = [Label("plier le \u00e9ponge \U0001f9fd {x}", True, ["a", "b"]), Label("\u6298\u308b", False, [])]
    for n, host in enumerate(("b", "a")):
        ticks = range(20)
        topics: dict[str, Any] = {
            "many": (Many, [At(k * 100 * MS, Many(k % 2 == 0, k, k / 3, "t", [k, -k])) for k in ticks]),
            "grid/map": (np.ndarray, [At(k * 100 * MS, np.full((3, 4), k % 2 == 0)) for k in ticks]),
            "depth": (np.ndarray, [At(k * 100 * MS, np.full((8, 6), 1000 * k, "u2")) for k in ticks]),
            "camera": (None, [At(k * 100 * MS, frame(k, 9, 7)) for k in ticks]),
            "actions/arm": (Action, [At(k * 100 * MS, Action(k)) for k in ticks]),
            "begin": (Label, [At((5 + 10 * k) * 100 * MS, labels[k]) for k in range(2)]),
            "end": (End, [At((6 + 10 * k) * 100 * MS, End(True)) for k in range(2)]),
        }
        record(tmp_path / "all" / host, topics, host=host, epoch=n + 1)
    names = ("many", "grid/map", "depth", "camera", "actions/arm")
    windows = Windows(
        tmp_path / "all", grid=Grid(hz=10, topics=dict.fromkeys(names, "newest")), length=1,
        episodes=Episodes(start="begin", end="end"),
    )  # fmt: skip
    with pytest.raises(rm.InvalidArgument, match="camera has 9 x 7 pixels"):
        windows.export(tmp_path / "out", "lerobot", task="x")
    done = windows.export(tmp_path / "new" / "out", "lerobot", task="{name}: {good}, {parts}", codec="png")
    assert (done.episodes, done.steps) == (4, 4)
    found = loaded(tmp_path / "new" / "out")
    for n in range(4):
        item, k, label = found[n], 5 + 10 * (n % 2), labels[n % 2]
        assert item["task"] == f"{label.name}: {label.good}, {label.parts}"
        expected = [k % 2 == 0, k, k / 3, k, -k]
        assert item["observation.state"].tolist() == np.float32(expected).tolist()
        assert (item["action"].item(), item["episode_index"], item["frame_index"]) == (k, n, 0)
        arrays = [name for name in item if name.startswith(("observation.grid", "observation.depth"))]
        assert sorted(np.unique(item[name].numpy()).tolist() for name in arrays) == sorted([[k % 2 == 0], [1000 * k]])
        assert (item["observation.images.camera"].numpy() * 255).round().max() == k
    hosts = [one["host"] for one in json.loads((tmp_path / "new/out/meta/ringmain.json").read_text())]
    assert hosts == ["a", "a", "b", "b"]
    import_bag(tmp_path / "new" / "out", tmp_path / "back")
    tasks = [row.value for row in Recording(tmp_path / "back").messages(topics="task")]
    assert tasks == [found[n]["task"] for n in range(4)]


def test_what_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = Windows(drive(tmp_path / "r"), grid=GRID, episodes=TASK_EPISODES, length=5)
    calls: list[str] = []

    def task(text: str, labels: str) -> str:
        calls.append(labels)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return text

    with monkeypatch.context() as patched:
        patched.setattr("ringmain.datasets._lerobot._task", task)
        with pytest.raises(KeyboardInterrupt):
            windows.export(tmp_path / "out", "lerobot", task="fold", codec="h264")
    assert [one.name for one in tmp_path.iterdir()] == ["r"]
    windows.export(tmp_path / "out", "lerobot", task="fold", codec="h264")
    assert len(loaded(tmp_path / "out")) > 0


def test_videos_in_several_files_and_of_one_frame(tmp_path: Path) -> None:
    """As lerobot begins a new file once one is large; read again by both."""
    grid = Grid(hz=10, topics={"camera/front": "newest", "action": "next"})
    short = Episodes(length_s=0.1)
    windows = Windows(drive(tmp_path / "r", 1), grid=grid, episodes=short, length=1)
    from lerobot.datasets.lerobot_dataset import LeRobotDatasetMetadata

    original = LeRobotDatasetMetadata.create.__func__

    def create(cls: Any, *args: Any, **options: Any) -> Any:
        return original(cls, *args, **{**options, "video_files_size_in_mb": 0.002})

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LeRobotDatasetMetadata, "create", classmethod(create))
        done = windows.export(tmp_path / "out", "lerobot", task="look", codec="h264")
    assert done.episodes == done.steps > 5
    assert len(list((tmp_path / "out").rglob("*.mp4"))) > 1
    found = loaded(tmp_path / "out")
    import_bag(tmp_path / "out", tmp_path / "back")
    frames = list(Recording(tmp_path / "back").messages(topics="observation.images.camera_front"))
    assert len(frames) == len(found) == done.steps
    for n, (row, window) in enumerate(zip(frames, windows, strict=True)):
        for pixels in (row.value.array, found[n]["observation.images.camera_front"].numpy() * 255):
            assert np.abs(pixels.astype(float) - int(window["camera_front"][0, 0, 0, 0])).max() <= 3.5


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Of a table of a lake, of a lake's topics, and the example of `--help`, of a recording."""
    monkeypatch.chdir(tmp_path)
    path = drive(tmp_path / "r")
    run(path, tmp_path / "lake", engine="local", progress=lambda line: None)
    build(Lake(str(tmp_path / "lake")), "pick", GRID, TASK_EPISODES, engine="local")
    assert main(["export", "lake", "one", "--table", "pick", "--lerobot", "--task", "fold", "--codec", "png"]) == 0
    assert "2 episodes" in capsys.readouterr().out
    topics = ["state=linear", "camera/front", "camera/back", "action=next"]
    words = ["--lerobot", "--fps", "10", "--task", "fold", "--codec", "png", *topics]
    assert main(["export", "lake", "two", *words, "--between", "task/begin", "task/end"]) == 0
    expected = cells(path, GRID, TASK_EPISODES).to_pylist()
    for name in ("one", "two"):
        check(loaded(tmp_path / name), expected, 0)
    assert main(["export", "lake", "x", "--table", "pick", "--lerobot", "--fps", "30", "--task", "fold"]) == 2
    assert main(["export", "lake", "x", "--lerobot", "--task", "fold"]) == 2
    capsys.readouterr()
    words = ["--lerobot", "--fps", "10", "--task", "fold", "--codec", "png", "--between", "task/begin", "task/end"]
    assert main(["export", str(path), "all", *words]) == 0
    said = capsys.readouterr()
    assert "2 episodes" in said.out
    assert "action: 1 lost" in said.err
    assert loaded(tmp_path / "all").features.keys() == loaded(tmp_path / "two").features.keys()
    (line,) = [line for _, line in export.EXAMPLES if "--lerobot" in line]
    record(
        tmp_path / "drive",
        {
            "state": (Action, [At(n * 10 * MS, Action(n)) for n in range(2000)]),
            "camera": (None, [At(n * 100 * MS, frame(n, SIDE, SIDE)) for n in range(200)]),
            "action": (Action, [At(n * 10 * MS, Action(n)) for n in range(2000)]),
        },
    )
    assert main(shlex.split(line)[1:]) == 0
    assert len(loaded(tmp_path / "folded")) > 500
