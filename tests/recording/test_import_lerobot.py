"""Episodes of data sets as messages: every step at its time, or an error. The data set that is kept was written by
lerobot."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ringmain as rm
from ringmain.datasets import Episodes, Grid, Windows
from ringmain.errors import RecordingError
from ringmain.recording import Player, Recording, import_bag
from ringmain.recording._import.video import count_frames, frames_of
from tests.cli.conftest import started as started  # a fixture
from tests.conftest import PATIENCE_S
from tests.datasets.test_windows import drive, windows
from tests.recording.golden_lerobot import FPS, GOLDEN, SIDE, STEPS, TASKS, action_of, picture_of, state_of

CAMERAS = ("observation.images.front", "observation.images.wrist")
BEGIN_NS = 946_684_800 * 10**9


def values(recording: Recording, topic: str) -> list[tuple[int, Any]]:
    """(when after the first begin in ms, what)."""
    return [((row.time_ns - BEGIN_NS) // 10**6, row.value) for row in recording.messages(topics=topic)]


def check_pictures(recording: Recording, episodes: list[int]) -> None:
    for camera, tolerance in zip(CAMERAS, (3, 0), strict=True):
        found = [frame.array for _, frame in values(recording, camera)]
        expected = [picture_of(e, n) for e in episodes for n in range(STEPS[e])]
        for one, other in zip(found, expected, strict=True):
            assert one.shape == (SIDE, SIDE, 3)
            assert np.abs(one.astype(int) - other).max() <= tolerance


def test_every_step_of_every_episode_is_a_message_at_its_time(tmp_path: Path) -> None:
    status = import_bag(GOLDEN, tmp_path / "r")
    recording = Recording(tmp_path / "r")
    starts = [0, 1000 * STEPS[0] // FPS + 1000]  # the second episode begins a second after the first one's end
    when = [starts[e] + 1000 * n // FPS for e in range(2) for n in range(STEPS[e])]
    for topic, expected in (("observation.state", state_of), ("action", action_of)):
        found = values(recording, topic)
        assert [at for at, _ in found] == when
        wanted = [expected(e, n) for e in range(2) for n in range(STEPS[e])]
        assert all(np.array_equal(one, other) for (_, one), other in zip(found, wanted, strict=True))
        assert found[0][1].dtype == np.float32
    assert [at for at, _ in values(recording, CAMERAS[0])] == when
    check_pictures(recording, [0, 1])
    begins = [(at, one.episode, one.task) for at, one in values(recording, "episode/begin")]
    assert begins == [(starts[0], 0, TASKS[0]), (starts[1], 1, TASKS[1])]
    ends = [(at, one.episode) for at, one in values(recording, "episode/end")]
    assert ends == [(starts[e] + 1000 * STEPS[e] // FPS, e) for e in range(2)]
    rests = [starts[e] + 1000 * (STEPS[e] - 3) // FPS for e in range(2)]
    assert values(recording, "task") == [
        (starts[0], TASKS[0]), (rests[0], "rest"), (starts[1], TASKS[1]), (rests[1], "rest"),
    ]  # fmt: skip
    assert (status.messages, status.ends_early) == (4 * sum(STEPS) + 8, "")


def test_a_grid_of_it_has_its_steps(tmp_path: Path) -> None:
    import_bag(GOLDEN, tmp_path / "r")
    grid = Grid(hz=FPS, topics={"observation.state": "newest", "action": "newest"}, tolerance_s=1e-6)
    found = Windows(tmp_path / "r", grid=grid, episodes=Episodes(start="episode/begin", end="episode/end"), length=1)
    given = [window["observation_state"][0].tolist() for window in found]
    assert given == [state_of(e, n).tolist() for e in range(2) for n in range(STEPS[e])]


def test_one_episode(tmp_path: Path) -> None:
    """Its times are those that it has among all."""
    import_bag(GOLDEN, tmp_path / "r", episode=1)
    recording = Recording(tmp_path / "r")
    check_pictures(recording, [1])
    (begin,) = values(recording, "episode/begin")
    assert (begin[0], begin[1].episode, len(values(recording, "action"))) == (2200, 1, STEPS[1])
    with pytest.raises(rm.InvalidArgument, match="no episode 2: there are 0 to 1"):
        import_bag(GOLDEN, tmp_path / "x", episode=2)
    with pytest.raises(rm.InvalidArgument, match="has no episodes"):
        (tmp_path / "x.mcap").touch()
        import_bag(tmp_path / "x.mcap", tmp_path / "x", episode=0)


def test_parquet_as_hugging_face_has_it(tmp_path: Path) -> None:
    """What `Windows.export` writes, in several files: the same arrays come back, and the same pictures."""
    before = windows(drive(tmp_path / "r"), topics=["state", "camera/front", "action"])
    before.export(tmp_path / "hf")
    import_bag(tmp_path / "hf", tmp_path / "back")
    grid = Grid(hz=10, topics=dict.fromkeys(("state.position", "camera_front", "action.steer"), "newest"))
    episodes = Episodes(start="episode/begin", end="episode/end")
    after = Windows(tmp_path / "back", grid=grid, episodes=episodes, length=4)
    assert len(before) == len(after) > 0
    for one, other in zip(before, after, strict=True):
        assert np.array_equal(one["state.position"], other["state_position"])
        assert np.array_equal(one["camera_front"], other["camera_front"])
        assert np.array_equal(one["action.steer"], other["action_steer"][:, 0])


def write_video(path: Path, times: list[int], fps: int = FPS) -> None:
    """Frames at these numbers of periods; each as bright as its place in the list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", fps)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        stream.codec_context.time_base = Fraction(1, fps)
        for n, at in enumerate(times):
            frame = av.VideoFrame.from_ndarray(np.full((SIDE, SIDE, 3), 10 * n, np.uint8), format="rgb24")
            frame.pts, frame.time_base = at, Fraction(1, fps)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())


@pytest.mark.parametrize("fps", [10, 30, 50])
def test_frames_of_a_video_are_exact_in_count_and_time(tmp_path: Path, fps: int) -> None:
    write_video(tmp_path / "x.mp4", list(range(20)), fps)
    assert count_frames(tmp_path / "x.mp4", fps) == 20
    for first, count in ((0, 20), (7, 13), (19, 1), (3, 4)):
        found = [int(one[0, 0, 0]) for one in frames_of(tmp_path / "x.mp4", first / fps, count, fps)]
        assert np.abs(np.array(found) - 10 * np.arange(first, first + count)).max() <= 3


@pytest.mark.parametrize("times", [[*range(5), *range(6, 22)], list(range(20))], ids=["gap", "short"])
def test_a_video_in_which_a_frame_is_missing_is_an_error(tmp_path: Path, times: list[int]) -> None:
    shutil.copytree(GOLDEN, tmp_path / "folded")
    write_video(tmp_path / "folded/videos/observation.images.front/chunk-000/file-000.mp4", times)
    with pytest.raises(RecordingError, match=r"frame \d+ of \d+ is not where it must be"):
        import_bag(tmp_path / "folded", tmp_path / "r")
    assert [one.name for one in tmp_path.iterdir()] == ["folded"]


def changed(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.slice(1), "has step 1 where step 0 of 12 should be"),
        (lambda table: table.take([0, 1, 1, *range(3, 21)]), "has step 1 where step 2 of 12 should be"),
        (lambda table: table.slice(0, 20), "episode 1 has 8 steps, and should have 9"),
        (lambda table: pa.concat_tables([table, table.slice(20)]), "has step 8 where step 9 of 9 should be"),
        (lambda table: table.drop_columns("frame_index"), "is damaged: KeyError"),
    ],
    ids=["first", "twice", "last", "more", "unnumbered"],
)
def test_a_step_that_is_missing_or_there_twice_is_an_error(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table], said: str
) -> None:
    shutil.copytree(GOLDEN, tmp_path / "folded")
    changed(tmp_path / "folded/data/chunk-000/file-000.parquet", change)
    with pytest.raises(RecordingError, match=said):
        import_bag(tmp_path / "folded", tmp_path / "r")
    assert [one.name for one in tmp_path.iterdir()] == ["folded"]


def test_a_data_set_of_which_files_are_missing_or_damaged_is_an_error(tmp_path: Path) -> None:
    for name in ("meta/tasks.parquet", "meta/episodes/chunk-000/file-000.parquet", "data/chunk-000/file-000.parquet"):
        for number, content in enumerate((None, b"PAR1 no", b"")):
            path = tmp_path / f"{name.replace('/', '-')}-{number}"
            shutil.copytree(GOLDEN, path)
            (path / name).unlink()
            if content is not None:
                (path / name).write_bytes(content)
            if content is None and "episodes" in name:
                continue  # none: that is a data set without episodes
            with pytest.raises(RecordingError, match="is damaged"):
                import_bag(path, tmp_path / "r")
    info = json.loads((GOLDEN / "meta/info.json").read_text())
    for fps in (0, None, "often"):
        (path / "meta/info.json").write_text(json.dumps({**info, "fps": fps}))
        with pytest.raises(RecordingError, match="is no LeRobot dataset"):
            import_bag(path, tmp_path / "r")


@pytest.mark.parametrize("timestamp", [[0.0, None], [0.0, -1.0], [1.7e9, 1.7e9 + 1], [0.0, math.nan], ["a", "b"]])
def test_timestamps_are_seconds_since_an_episodes_begin(tmp_path: Path, timestamp: list[Any]) -> None:
    (tmp_path / "hf").mkdir()
    pq.write_table(pa.table({"timestamp": timestamp, "x": [1.0, 2.0]}), tmp_path / "hf" / "a.parquet")
    with pytest.raises(RecordingError, match="seconds since an episode's begin"):
        import_bag(tmp_path / "hf", tmp_path / "r")


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    info = json.loads((GOLDEN / "meta/info.json").read_text())
    old = tmp_path / "old"
    (old / "meta").mkdir(parents=True)
    (old / "meta/info.json").write_text(json.dumps({**info, "codebase_version": "v2.1"}))
    with pytest.raises(RecordingError, match=r"version v2\.1, and v3 is read: lerobot converts it"):
        import_bag(old, tmp_path / "r")
    (old / "meta/info.json").write_text("{}")
    with pytest.raises(RecordingError, match="is no LeRobot dataset"):
        import_bag(old, tmp_path / "r")
    shutil.copytree(GOLDEN, tmp_path / "video")
    (tmp_path / "video/videos/observation.images.front/chunk-000/file-000.mp4").write_bytes(b"no video")
    with pytest.raises(RecordingError, match="is not a readable video"):
        import_bag(tmp_path / "video", tmp_path / "r")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RecordingError, match="neither a ROS 2 bag nor a dataset"):
        import_bag(tmp_path / "empty", tmp_path / "r")


def test_a_policy_runs_against_recorded_observations_in_lockstep(tmp_path: Path, in_thread: Callable[..., Any]) -> None:
    """The ring holds few messages, and the policy is slow: it misses none, and answers each before the next comes."""
    import_bag(GOLDEN, tmp_path / "r", episode=0)
    topics = ["observation.state", "action"]  # of a step, they come in the order of their names
    player = Player(tmp_path / "r", topics=topics, speed=math.inf, lockstep=True, readers=1, capacity=4096).open()

    def policy() -> list[tuple[float, float]]:
        found = []
        with (
            rm.Subscriber("observation.state", type=np.ndarray) as seen,
            rm.Subscriber("action", type=np.ndarray) as recorded,
        ):
            for _ in range(STEPS[0]):
                action = float(recorded.recv(timeout=PATIENCE_S)[0])
                found.append((float(-seen.recv(timeout=PATIENCE_S)[2]), action))
        return found

    answers = in_thread(policy)
    player.run()
    assert answers() == [(float(n), float(n)) for n in range(STEPS[0])]


def test_play_by_the_command(started: Callable[..., Any]) -> None:
    process = started(
        "play", "--lerobot", str(GOLDEN), "--episode", "1", "--lockstep", "--wait-readers", "1",
        "--topics", CAMERAS[0], "--json",
    )  # fmt: skip
    with rm.FrameSubscriber(CAMERAS[0]) as frames:
        for n in range(STEPS[1]):
            with frames.recv(timeout=PATIENCE_S) as frame:
                assert np.abs(frame.array.astype(int) - picture_of(1, n)).max() <= 3
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert json.loads(out)["messages"] == STEPS[1]
