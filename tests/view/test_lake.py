"""A lake as a source: it shows what the recordings show that it was made of, of every robot or of one, and in the
browser's file it has each number with its time."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy
import pytest

import ringmain as rm
from ringmain.errors import LakeError
from ringmain.lake import Lake
from ringmain.pipeline import run
from ringmain.recording import Recorder, Recording
from ringmain.view._of_lake import LakeTopics
from ringmain.view._recorded import RecordedTopics
from ringmain.view._shown import Event, Image, Pixels, Series, Shown, Texts
from ringmain.view._stored import stored_topics
from tests.cli.conftest import Ended, ringmain
from tests.spark.recordings import START_NS, rows, schema_of, writer
from tests.view.conftest import until

__all__ = ["ringmain"]  # the fixture

pytest.importorskip("deltalake")


class State(msgspec.Struct):
    speed: float
    wheels: tuple[float, float]
    mode: str
    large: int
    grid: dict[str, float]


COUNT = 7


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with a topic of each kind, and the lake made of it."""
    directory = tmp_path_factory.mktemp("lake")
    layout = rm.FrameLayout.of_image("rgb", 16, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGMAIN_DIR", str(directory / "topics"))
        options: Any = {"contract": "reliable"}
        with (
            rm.Publisher("state", type=State, **options) as state,
            rm.Publisher("loose", type=dict, **options) as loose,
            rm.Publisher("log", type=str, **options) as log,
            rm.Publisher("grid", type=numpy.ndarray, **options) as grid,
            rm.Publisher("raw", **options) as raw,
            rm.FramePublisher("camera/front", layout=layout, buffers=COUNT + 2) as camera,
            Recorder(directory / "drive", ["*"]) as recorder,
        ):
            until(lambda: all(topic.readers for topic in rm.topics()))
            for n in range(COUNT):
                state.send(State(n / 3, (n, -n), "drive", 1 << 62, {"x": n}))
                loose.send({"battery": n, "pose": {"x": 1.0, "y": n}})
                log.send(f"hello {n}")
                grid.send(numpy.full((9, 10, 3), n, "u1"))
                raw.send(bytes([n, 0xFF]) * n)
                with camera.frame() as frame:
                    frame.array[:] = n
            until(lambda: recorder.status().messages == 6 * COUNT)
        run(directory / "drive", directory / "lake", engine="local")
    return directory


Values = dict[tuple[str, str, tuple[str, ...]], list[Any]]


def values(things: list[tuple[str, Shown]]) -> Values:
    """By topic, kind and path, each with its time."""
    found: Values = {}
    for topic, thing in things:
        there = found.setdefault((topic, type(thing).__name__, getattr(thing, "path", ())), [])
        if isinstance(thing, Series):
            there += zip(thing.times_ns.tolist(), thing.values.tolist(), strict=True)
        elif isinstance(thing, Texts):
            there += zip(thing.times_ns.tolist(), thing.texts, strict=True)
        elif isinstance(thing, Image):
            assert isinstance(thing.picture, Pixels)
            there.append((thing.time_ns, thing.picture.format, thing.picture.array.tobytes()))
        elif isinstance(thing, Event):
            there.append(thing.text)
    return found


def taken(source: LakeTopics | RecordedTopics) -> list[tuple[str, Shown]]:
    return [(topic, thing) for topic, things in source.take() for thing in things]


def test_a_lake_shows_what_its_recording_shows(drive: Path) -> None:
    recorded = values(taken(stored_topics(drive / "drive")))
    of_lake = values(taken(stored_topics(drive / "lake", host=socket.gethostname())))
    assert of_lake == recorded
    assert {topic for topic, _, _ in recorded} == {"state", "loose", "log", "grid", "raw", "camera/front"}


def test_a_part_of_it(drive: Path) -> None:
    times = [message.time_ns for message in Recording(drive / "drive").messages(topics="state")]
    part = LakeTopics(Lake(str(drive / "lake")), ["state"])
    assert part.time_range_ns == (times[0], times[-1])
    part.since, part.until = times[2], times[5]
    speeds = [v for _, v in values(taken(part))[f"{socket.gethostname()}/state", "Series", ("speed",)]]
    assert speeds == [2 / 3, 1.0, 4 / 3]


def test_what_is_left_out_is_counted(drive: Path) -> None:
    part = LakeTopics(Lake(str(drive / "lake")), ["camera/*", "state"], hz=0.001, points_hz=0.001)
    taken(part)
    counts = {topic.partition("/")[2]: each for topic, each in part.counts.items()}
    assert (counts["camera/front"].pictures, counts["camera/front"].pictures_left_out) == (1, COUNT - 1)
    assert counts["state"].points + counts["state"].points_left_out == 5 * COUNT
    assert counts["state"].points_left_out


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two robots. Of the second, two messages do not decode, and some are lost."""
    for robot in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(socket, "gethostname", lambda robot=robot: f"robot-{robot}")
            made = writer(tmp_path / "recordings" / str(robot))
        made.declare("n", epoch=robot, schema=schema_of(dict[str, int]))

        def encode(n: int, robot: int = robot) -> bytes:
            return b"\xc1" if robot == 2 and n < 2 else msgspec.msgpack.encode({"robot": robot})

        made.append("n", robot, rows(0, 5, encode=encode, start_ns=START_NS))
        made.close()
    run(tmp_path / "recordings", tmp_path / "lake", engine="local")
    return tmp_path / "lake"


def test_each_robot_is_a_folder_and_what_did_not_decode_is_an_event(fleet: Path) -> None:
    found = values(taken(stored_topics(fleet)))
    assert [v for _, v in found["robot-1/n", "Series", ("robot",)]] == [1.0] * 5
    assert [v for _, v in found["robot-2/n", "Series", ("robot",)]] == [2.0] * 3
    (said,) = found["robot-2/n", "Event", ()]
    assert said.startswith("2 messages do not decode: ")
    one = stored_topics(fleet, host="robot-2")
    assert {topic for topic, _ in taken(one)} == {"n"}
    assert one.counts["n"].messages == 5


def test_in_python(fleet: Path, tmp_path: Path) -> None:
    rerun = pytest.importorskip("rerun")
    stream = rerun.RecordingStream("mine")
    stream.save(tmp_path / "mine.rrd")
    assert rm.view.to_rerun(Lake(str(fleet)), stream, host="robot-1")["n"].messages == 5
    assert rm.view.to_rerun(fleet, stream, topics="n").keys() == {"robot-1/n", "robot-2/n"}
    with pytest.raises(LakeError, match="has nothing of a host 'robot-3'"):
        rm.view.to_rerun(fleet, stream, host="robot-3")
    with pytest.raises(FileNotFoundError, match=r"there is no topic 'm' in .*; it has n"):
        rm.view.to_rerun(fleet, stream, topics="m")
    with pytest.raises(ValueError, match=r"a host is chosen of a lake, and .* is a recording"):
        rm.view.to_rerun(tmp_path / "recordings/1", stream, host="robot-1")


def test_on_the_command_line(
    fleet: Path, tmp_path: Path, ringmain: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rerun")
    monkeypatch.chdir(tmp_path)
    done = ringmain("view", "lake", "n", "--host", "robot-2", "--save", "n.rrd", "--from", "0")
    assert (done.code, done.out) == (0, "5 messages: n.rrd\n"), done.err
    assert (tmp_path / "n.rrd").stat().st_size > 0
    for words, sentence in (
        (["lake", "imu"], f"there is no topic 'imu' in {fleet}; it has n"),
        (["lake", "--host", "robot-9"], f"{fleet} has nothing of a host 'robot-9'"),
    ):
        done = ringmain("view", "--no-browser", *words)
        assert done.err == f"ringmain view: {sentence}\n"
    (tmp_path / "deltalake.py").write_text("raise ImportError(name='deltalake')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert ringmain("view", "lake").err == (
        "ringmain view: this needs deltalake, which is not installed: pip install 'ringmain[lake]'\n"
    )
