"""Streams of frames in a recording: every pixel comes back as an array with what was known of it, is replayed as a
stream, and is left out on request. Publishers and subscribers are real; nothing waits by the clock.
"""

from __future__ import annotations

import math
import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ringmain as rm
from ringmain.recording import RecordedFrame
from ringmain.recording._frames import Trailer
from ringmain.recording._record.tap import FrameTap
from tests.conftest import PATIENCE_S, Child

Until = Callable[[Callable[[], object]], None]


def picture(number: int) -> np.ndarray:
    return np.full((6, 8, 3), number % 251, np.uint8)


def test_arrays_come_back_with_what_was_known_of_them(tmp_path: Path, until: Until) -> None:
    with rm.FramePublisher("cam", (6, 8, 3), "u1", sender="left") as cam, rm.Publisher("imu") as imu:
        with rm.Recorder(tmp_path / "r", "*") as recorder:
            for number in range(10):
                with cam.frame() as frame:
                    frame.array[:] = picture(number)
                    frame.id, frame.start_ns, frame.end_ns = 100 + number, 5, 6
                    frame.valid, frame.meta = number != 3, {"gain": number}
                imu.send(b"%d" % number)
                until(lambda number=number: recorder.status().messages == 2 * (number + 1))
            (status,) = (t for t in recorder.status().topics if t.topic == "cam")
            assert (status.contract, status.lost, status.lag_messages) == ("frames", 0, 0)
    recording = rm.Recording(tmp_path / "r")
    messages = list(recording.messages(topics="cam"))
    assert [m.seq for m in messages] == list(range(10))
    for number, message in enumerate(messages):
        frame = message.value
        assert isinstance(frame, RecordedFrame)
        assert message.sender == "left"
        assert np.array_equal(frame.array, picture(number))
        assert (frame.shape, frame.dtype, frame.id) == ((6, 8, 3), np.dtype("u1"), 100 + number)
        assert (frame.start_ns, frame.end_ns, frame.valid, frame.meta) == (5, 6, number != 3, {"gain": number})
        assert message.data[: 6 * 8 * 3] == picture(number).tobytes(), "the payload begins with the pixels"
    assert {t.name: t.contract for t in recording.schemas().values()} == {"cam": "frames", "imu": "broadcast"}
    assert recording.verify().ok


def test_planes_and_bytes_of_any_length(tmp_path: Path, until: Until) -> None:
    layout = rm.FrameLayout.of_image("nv12", 8, 4, stride=16)
    with (
        rm.FramePublisher("yuv", layout=layout) as yuv,
        rm.FramePublisher("blob", size=1000) as blob,
        rm.Recorder(tmp_path / "r", ["yuv", "blob"]) as recorder,
    ):
        image = os.urandom(layout.size)
        yuv.send(image)
        blob.send(b"short")
        until(lambda: recorder.status().messages == 2)
    found = {m.topic: m.value for m in rm.Recording(tmp_path / "r")}
    assert found["blob"].array.tobytes() == b"short"
    assert bytes(found["yuv"].data) == image
    assert found["yuv"].plane("y").shape == (4, 8)
    assert found["yuv"].plane("uv").strides == (16, 2, 1)


def test_a_stream_that_appears_later_and_comes_back_with_another_shape(tmp_path: Path, until: Until) -> None:
    """The topic is there before its pool: the recorder must not take descriptors for messages."""
    with rm.Recorder(tmp_path / "r", "*") as recorder:
        total = 0
        for shape in ((4, 4), (2, 3, 5)):
            with rm.FramePublisher("cam", shape, "<f4") as cam:
                for number in range(3):
                    cam.send(np.full(shape, number, "<f4"))
                    total += 1
                    until(lambda total=total: recorder.status().messages == total)
    frames = [m.value for m in rm.Recording(tmp_path / "r")]
    assert [f.shape for f in frames] == [(4, 4)] * 3 + [(2, 3, 5)] * 3
    assert [float(f.array.max()) for f in frames] == [0, 1, 2] * 2


def test_a_topic_of_messages_that_comes_back_as_frames_and_again_as_messages(tmp_path: Path, until: Until) -> None:
    with rm.Recorder(tmp_path / "r", "t*") as recorder:
        for life in range(3):
            with rm.FramePublisher("t", size=100) if life == 1 else rm.Publisher("t", capacity=4096) as pub:
                pub.send(b"%d" % life)
                until(lambda life=life: recorder.status().messages == life + 1)
    values = [m.value for m in rm.Recording(tmp_path / "r")]
    assert [v.array.tobytes() if isinstance(v, RecordedFrame) else v for v in values] == [b"0", b"1", b"2"]
    assert isinstance(values[1], RecordedFrame)


def test_no_frames(tmp_path: Path, until: Until) -> None:
    with rm.FramePublisher("cam/a", (4, 4)) as early, rm.Publisher("imu") as imu:
        with rm.Recorder(tmp_path / "r", "*", frames=False) as recorder:
            with rm.FramePublisher("cam/b", (4, 4)) as late:
                for pub in (early, late):
                    pub.send(np.zeros((4, 4), np.uint8))
                imu.send(b"x")
                until(lambda: recorder.status().messages == 1)
    assert list(rm.Recording(tmp_path / "r").topics()) == ["imu"]


def test_frames_that_came_too_fast_are_counted(tmp_path: Path, child: Callable[..., Child]) -> None:
    """Two buffers and a publisher that never waits: recorded + lost = sent, each picture whole."""
    script = """
    import numpy as np
    pub = rm.FramePublisher("cam", (64, 64), "<u4", buffers=2)
    say("ready"); hear()
    for i in range(3000): pub.send(np.full((64, 64), i, "<u4"), id=i)
    say("sent"); hear()
    """
    publisher = child(script)
    publisher.line()
    with rm.Recorder(tmp_path / "r", "cam", fsync="never") as recorder:
        publisher.tell()
        assert publisher.line() == "sent"
        status = recorder.close()
    publisher.tell()
    publisher.finish()
    assert status.messages + status.lost == 3000
    seen = -1
    for message in rm.Recording(tmp_path / "r"):
        assert message.seq - seen - 1 == message.lost
        assert message.value.id == message.seq
        assert (message.value.array == message.seq).all()
        seen = message.seq
    assert seen == 2999


def test_replayed_as_a_stream(tmp_path: Path, until: Until) -> None:
    with rm.FramePublisher("cam", (6, 8, 3), sender="left") as cam, rm.Recorder(tmp_path / "r", "cam") as recorder:
        for number in range(20):
            with cam.frame() as frame:
                frame.array[:] = picture(number)
                frame.id, frame.start_ns, frame.end_ns, frame.meta = number, 7, 8, {"n": number}
            until(lambda number=number: recorder.status().messages == number + 1)
    player = rm.Player(tmp_path / "r", rename={"cam": "again"}, lockstep=True, readers=1).open()
    thread = threading.Thread(target=player.run, daemon=True)
    with rm.FrameSubscriber("again", start="oldest") as sub:
        thread.start()
        for number in range(20):
            with sub.recv(timeout=PATIENCE_S) as frame:
                assert np.array_equal(frame.array, picture(number))
                assert (frame.id, frame.start_ns, frame.end_ns, frame.meta) == (number, 7, 8, {"n": number})
                assert (frame.sender, frame.lost) == ("left", 0)
    thread.join(PATIENCE_S)
    assert player.status().messages == 20


def test_replaying_another_shape_makes_another_pool(tmp_path: Path, until: Until) -> None:
    with rm.Recorder(tmp_path / "r", "*") as recorder:
        for count, shape in enumerate(((4, 4), (2, 3)), start=1):
            with rm.FramePublisher("cam", shape) as cam:
                cam.send(np.full(shape, count, np.uint8))
                until(lambda count=count: recorder.status().messages == count)
    player = rm.Player(tmp_path / "r", lockstep=True, readers=1).open()
    thread = threading.Thread(target=player.run, daemon=True)
    with rm.FrameSubscriber("cam", start="oldest") as sub:
        thread.start()
        shapes = []
        for _ in range(2):
            with sub.recv(timeout=PATIENCE_S) as frame:
                shapes.append(frame.shape)
    thread.join(PATIENCE_S)
    assert shapes == [(4, 4), (2, 3)]


def test_original_numbers_cannot_be_kept_for_frames(tmp_path: Path, until: Until) -> None:
    with rm.FramePublisher("cam", (4, 4)) as cam, rm.Recorder(tmp_path / "r", "cam") as recorder:
        cam.send(np.zeros((4, 4), np.uint8))
        until(lambda: recorder.status().messages == 1)
    with pytest.raises(ValueError, match="'cam' is a frame topic"):
        rm.Player(tmp_path / "r", original=True, speed=math.inf).run()


def test_what_is_not_a_frame_is_refused() -> None:
    for payload in (b"", b"FRM1", struct.pack("<I4s", 99, b"FRM1"), b"\xc0" + struct.pack("<I4s", 1, b"FRM1")):
        with pytest.raises(rm.RingmainError, match="not a recorded frame"):
            RecordedFrame(payload)


def test_a_frame_too_large_for_a_column_is_told(tmp_path: Path, until: Until, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringmain.recording._record.tap.MAX_PAYLOAD_BYTES", 100)
    with rm.FramePublisher("big", size=1000) as big, rm.FramePublisher("small", size=50) as small:
        with rm.Recorder(tmp_path / "r", "*") as recorder:
            big.send(b"x" * 200)
            small.send(b"x")
            until(lambda: recorder.status().messages == 1 and any(t.problem for t in recorder.status().topics))
            (problem,) = (t.problem for t in recorder.status().topics if t.topic == "big")
            assert "--no-frames" in problem


def test_the_spec_says_what_a_trailer_is() -> None:
    text = (Path(__file__).parents[2] / "docs/spec/recording.md").read_text()
    table = text.split("## Frames\n")[1].split("\n## ")[0]
    fields = [line.split("|")[1].strip(" `") for line in table.splitlines() if line.startswith("| `")]
    assert fields == list(Trailer.__struct_fields__)
    assert FrameTap._contract == "frames"


GOLDEN = bytes.fromhex(
    "0001020304059687a6666f726d6174a3726762a473697a6506a5617272617984a5736861706593010203a56474797065a37c"
    "7531a66f666673657400a77374726964657393060301a6706c616e657380a5776964746802a668656967687401a673747269"
    "646506070506c381a46761696e026c00000046524d31"
)


def test_the_golden_payload_reads_as_it_always_did() -> None:
    frame = RecordedFrame(GOLDEN)
    assert frame.array.tolist() == [[[0, 1, 2], [3, 4, 5]]]
    assert frame.layout == rm.FrameLayout.of_image("rgb", 2, 1)
    assert (frame.id, frame.start_ns, frame.end_ns, frame.valid, frame.meta) == (7, 5, 6, True, {"gain": 2})
