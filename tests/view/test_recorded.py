"""A recording as a source, and what Rerun has of it: the file that is written is read back by Rerun's own reader and
compared with the recording, number by number and pixel by pixel."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import ringmain as rm
from ringmain.recording import Recorder, Recording, RecordingWriter
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._record.live_readers import READERS, ReaderFigures
from ringmain.typed import codec_for
from ringmain.view._counts import sentence
from ringmain.view._recorded import RecordedTopics
from ringmain.view._shown import Event, Image, Series
from tests.cli.conftest import Ended, ringmain
from tests.recording.conftest import ring_batch
from tests.view.conftest import Page, Viewing, hues, near, until

__all__ = ["ringmain"]  # the fixture

rerun, chunk_reader = pytest.importorskip("rerun"), pytest.importorskip("rerun.chunk")


class State(msgspec.Struct):
    speed: float
    mode: str


COUNT, FRAMES = 40, 6
RED = (250, 10, 20)


@pytest.fixture(scope="module")
def drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A typed topic and a camera."""
    directory = tmp_path_factory.mktemp("drive")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RINGMAIN_DIR", str(directory / "topics"))
        layout = rm.FrameLayout.of_image("rgb", 16, 8)
        with (
            rm.Publisher("state", type=State) as states,
            rm.FramePublisher("camera", layout=layout, buffers=FRAMES + 2) as camera,
            Recorder(directory / "drive", ["state", "camera"]) as recorder,
        ):
            until(lambda: len(rm.info("camera").readers) == len(rm.info("state").readers) == 1)
            for number in range(FRAMES):
                with camera.frame() as frame:
                    frame.array[:] = (RED[0] - number, *RED[1:])
            for number in range(COUNT):
                states.send(State(math.sin(number / 5), "drive" if number < 20 else "park"))
            until(lambda: recorder.status().messages == COUNT + FRAMES)
    return directory / "drive"


def all_of(drive: Path, **options: Any) -> tuple[RecordedTopics, list[tuple[str, Any]]]:
    source = RecordedTopics(Recording(drive), **{"hz": math.inf, "points_hz": math.inf, **options})
    return source, [(topic, thing) for topic, things in source.take() for thing in things]


def test_all_of_a_recording_is_shown(drive: Path) -> None:
    source, things = all_of(drive)
    speeds = [value for _, thing in things if isinstance(thing, Series) for value in thing.values.tolist()]
    assert speeds == [math.sin(number / 5) for number in range(COUNT)]
    assert sentence(source.counts) == ""
    assert {topic: counts.messages for topic, counts in source.counts.items()} == {"state": COUNT, "camera": FRAMES}


def test_a_part_of_it(drive: Path) -> None:
    times = [message.time_ns for message in Recording(drive).messages(topics="state")]
    source, _ = all_of(drive, topics="state", since=times[COUNT // 2])
    assert source.counts["state"].messages == COUNT // 2


def test_what_is_left_out_is_counted(drive: Path) -> None:
    source, _ = all_of(drive, hz=0.001, points_hz=0.001)
    state, camera = source.counts["state"], source.counts["camera"]
    assert (camera.pictures, camera.pictures_left_out) == (1, FRAMES - 1)
    assert state.points + state.points_left_out == COUNT
    assert state.points_left_out > COUNT / 2


def chunks(path: Path) -> dict[str, dict[str, list[Any]]]:
    """The columns of each entity in a file of Rerun's."""
    found: dict[str, dict[str, list[Any]]] = {}
    for chunk in chunk_reader.RrdReader(path).stream():
        batch = chunk.to_record_batch()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            values = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            found.setdefault(str(chunk.entity_path), {}).setdefault(name, []).extend(values.to_pylist())
    return found


def test_rerun_has_every_number_with_its_time(drive: Path, tmp_path: Path, ringmain: Callable[..., Ended]) -> None:
    done = ringmain("view", str(drive), "--save", str(tmp_path / "drive.rrd"))
    assert (done.code, done.out) == (0, f"{COUNT + FRAMES} messages: {tmp_path / 'drive.rrd'}\n"), done.err
    entities = chunks(tmp_path / "drive.rrd")
    speeds = entities["/state/speed"]
    assert speeds["Scalars:scalars"] == [[math.sin(number / 5)] for number in range(COUNT)]
    times = [message.time_ns for message in Recording(drive).messages(topics="state")]
    assert speeds["publish_time"] == times
    assert entities["/state/mode"]["TextLog:text"] == [["drive"], ["park"]]
    buffers = [bytes(picture[0]) for picture in entities["/camera"]["Image:buffer"]]
    assert buffers == [bytes((RED[0] - number, *RED[1:])) * 16 * 8 for number in range(FRAMES)]


def test_beside_ones_own_logging(drive: Path, tmp_path: Path) -> None:
    stream = rerun.RecordingStream("mine")
    stream.save(tmp_path / "mine.rrd")
    stream.log("note", rerun.TextLog("mine"))
    counts = rm.view.to_rerun(drive, stream, topics="state")
    stream.disconnect()
    entities = chunks(tmp_path / "mine.rrd")
    assert {"/note", "/state/speed"} <= entities.keys()
    assert "/camera" not in entities
    assert counts["state"].messages == COUNT
    with pytest.raises(ValueError, match="there is no stream to log to"):
        rm.view.to_rerun(drive)


def test_in_a_notebook(drive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the notebook: what it is given goes to a file instead."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install rerun-notebook"):
        rm.view(drive)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    shown = iter([tmp_path / "recorded.rrd", tmp_path / "live.rrd"])
    monkeypatch.setattr(rerun.RecordingStream, "notebook_show", lambda stream, **size: stream.save(next(shown)))
    with pytest.raises(ValueError, match="since and until are for a recording"):
        rm.view(since=1)
    assert repr(rm.view(drive, topics="state")) == "<View of state; left out: nothing>"
    assert len(chunks(tmp_path / "recorded.rrd")["/state/speed"]["publish_time"]) == COUNT
    with rm.Publisher("state", type=State) as pub, rm.view(topics="state") as live:
        until(lambda: "state" in live.counts)
        pub.send(State(0.5, "drive"))
        until(lambda: live.counts["state"].messages)
    assert chunks(tmp_path / "live.rrd")["/state/speed"]["Scalars:scalars"] == [[0.5]]


def test_an_incident(tmp_path: Path, ringmain: Callable[..., Ended]) -> None:
    flight = tmp_path / "flight"
    with rm.Publisher("imu", type=State) as pub, Recorder(flight, "imu", before_s=60, after_s=0) as recorder:
        for number in range(3):
            pub.send(State(number, "drive"))
        until(lambda: recorder.status().messages == 3)
        rm.trigger(flight, "the operator pressed", name="by hand")
        until(lambda: recorder.status().incidents == 1 and not recorder.status().incidents_open)
        pub.send(State(9.0, "later"))
    assert len(Recording(flight)) == 4
    done = ringmain("view", str(flight), "--incident", "by-hand", "--save", str(tmp_path / "kept.rrd"))
    assert (done.code, done.out) == (0, f"3 messages: {tmp_path / 'kept.rrd'}\n"), done.err
    assert chunks(tmp_path / "kept.rrd")["/imu/speed"]["Scalars:scalars"] == [[0.0], [1.0], [2.0]]
    stream = rerun.RecordingStream("mine")
    stream.save(tmp_path / "mine.rrd")
    assert rm.view.to_rerun(Recording(flight, incident="by-hand"), stream)["imu"].messages == 3


def test_pictures_whose_times_go_back_are_shown(tmp_path: Path) -> None:
    """Of two cameras that publish to one topic, for instance."""
    picture = b"\x89PNG\r\n\x1a\n"
    times = [50, 20, 30]
    with RecordingWriter(tmp_path / "two") as writer:
        batch = ring_batch(0, 3).set_column(1, "time_ns", pa.array(times, pa.int64()))
        writer.append("camera", 1, batch.set_column(6, "data", pa.array([picture] * 3, pa.binary())).cast(RING_SCHEMA))
    source, things = all_of(tmp_path / "two")
    assert [thing.time_ns for _, thing in things if isinstance(thing, Image)] == times
    assert sentence(source.counts) == ""


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["DRIVE", "stat"], 3, "there is no topic 'stat' in DRIVE; it has camera, state"),
        (["DRIVE", "--from", "soon"], 2, "--from is seconds after the first message, or a date and time"),
        (["--save", "x.rrd"], 2, "--save is for a recording or a lake: name its directory first"),
        (["DRIVE", "--incident", "crash"], 3, "there is no incident 'crash'; there are none"),
        (["--incident", "crash"], 2, "--incident is for a recording or a lake: name its directory first"),
        (["--host", "robot"], 2, "--host is for a recording or a lake: name its directory first"),
        (["--from", "1"], 2, "--from is for a recording or a lake: name its directory first"),
        (["."], 3, "no recording at .: neither meta.json nor a segment is there"),
    ],
)
def test_refusals(drive: Path, ringmain: Callable[..., Ended], words: list[str], code: int, sentence: str) -> None:
    done = ringmain("view", "--no-browser", *[word.replace("DRIVE", str(drive)) for word in words])
    assert (done.code, done.err.count("\n")) == (code, 1), done.err
    assert done.err.startswith(f"ringmain view: {sentence.replace('DRIVE', str(drive))}")


def test_what_the_recorder_and_its_readers_lost_are_events(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "lossy")
    writer.append("imu", 1, ring_batch(0, 5))
    writer.append("imu", 1, ring_batch(12, 5, lost=7))
    codec = codec_for(ReaderFigures)
    writer.declare(READERS, epoch=1, schema=codec.schema.to_bytes())
    for number, lost in enumerate((0, 30, 30, 42)):
        figures = ReaderFigures("imu", "slow", "reader", 7, 1, 100, lost, 0)
        row = ring_batch(number, 1).set_column(6, "data", pa.array([bytes(codec.encode(figures))], pa.binary()))
        writer.append(READERS, 1, row.cast(RING_SCHEMA))
    writer.close()
    source, things = all_of(tmp_path / "lossy")
    assert [(topic, thing.level, thing.text) for topic, thing in things if isinstance(thing, Event)] == [
        ("imu", "WARN", "the recorder lost 7 messages"),
        ("imu", "WARN", "reader 'slow' (pid 7) lost 30 messages (30 in all)"),
        ("imu", "WARN", "reader 'slow' (pid 7) lost 12 messages (42 in all)"),
    ]
    assert sentence(source.counts) == "imu: 7 of 17 messages (read too late)"


@pytest.mark.view
def test_a_recording_in_the_browser(
    drive: Path, viewing: Callable[..., Viewing], open_page: Callable[[str], Page]
) -> None:
    page = open_page(viewing(str(drive)).url)
    page.until(lambda seen: near(seen, RED) >= 1000 and hues(seen) >= 2, "the camera and a plot of the recording")
