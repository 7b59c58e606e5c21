"""Frames of C++ in Python, and of Python in C++: images with planes, what is held, and what a death gives back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain.frames import FrameLayout
from tests.conftest import PATIENCE_S
from tests.cpp.compiling import Participant, hexed

np = pytest.importorskip("numpy")

PATIENCE_MS = int(PATIENCE_S * 1000)
MILLISECONDS = 10
LAYOUTS: list[tuple[dict[str, Any], FrameLayout]] = [
    ({"bytes": 1000}, FrameLayout.of_bytes(1000)),
    ({"dtype": "<f4"}, FrameLayout.of_array((2, 3), "<f4")),
    ({"dtype": "|u1"}, FrameLayout.of_array((2, 3))),
    *(
        ({"format": name, "width": 8, "height": 4, "stride": stride}, FrameLayout.of_image(name, 8, 4, stride=stride))
        for name in ("gray", "rgb", "bgr", "rgba", "bgra", "nv12", "nv21", "i420")
        for stride in (32, 40)
    ),
]


@pytest.mark.parametrize(("words", "layout"), LAYOUTS, ids=lambda given: str(getattr(given, "format", "")))
def test_a_layout_is_the_same_in_both(cpp: Participant, words: dict[str, Any], layout: FrameLayout) -> None:
    with rm.FrameSubscriber("camera") as sub:
        assert cpp("frames-publisher", topic="camera", **words) == "ok"
        assert sub.layout == layout
        assert cpp("frames-begin", fill=7) == f"ok {layout.size}"
        assert cpp("frames-commit") == "ok 0"
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert frame.layout == layout
            assert frame.layout.to_bytes() == layout.to_bytes()
    assert cpp("close") == "ok"
    assert cpp("frames-subscriber", topic="camera") == "ok"
    with rm.FramePublisher("camera", layout=layout) as pub:
        with pub.frame() as draft:
            memoryview(draft.data)[:] = bytes([9]) * layout.size
        dense = layout.array.strides or tuple(np.empty(layout.shape, layout.dtype).strides)

        def shown(name: str, dtype: str, shape: tuple[int, ...], strides: tuple[int, ...]) -> str:
            return f"{name}:{dtype}:{','.join(map(str, shape))}:{','.join(map(str, strides))}:9"

        views = [shown("array", layout.array.dtype, layout.shape, dense)]
        views += [shown(name, p.dtype, p.shape, p.strides) for name, p in layout.planes.items()]
        assert cpp("frames-receive", timeout=PATIENCE_MS) == (
            f"frame 0 0 0 1 {layout.size} - - {layout.format} {' '.join(views)}"
        )
        assert cpp("close") == "ok"


def test_a_camera_in_cpp(cpp: Participant) -> None:
    with rm.FrameSubscriber("camera") as sub:
        assert cpp("frames-publisher", topic="camera", format="nv12", width=8, height=4, sender="front") == "ok"
        assert cpp("frames-begin", fill=1) == "ok 48"
        assert cpp("frames-commit", id=41, meta=hexed(b"\x81\xa4gain\x02")) == "ok 0"
        assert cpp("frames-begin", fill=2) == "ok 48"
        assert cpp("frames-discard") == "ok"
        assert cpp("frames-begin", fill=3) == "ok 48"
        assert cpp("frames-commit", invalid=1) == "ok 1"
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.id, frame.seq, frame.sender, frame.valid, frame.lost) == (41, 0, "front", True, 0)
            assert frame.meta == {"gain": 2}
            assert frame.plane("uv").shape == (2, 4, 2)
            assert int(frame.plane("uv").max()) == int(frame.plane("y").min()) == 1
            assert 0 < frame.start_ns <= frame.end_ns <= frame.time_ns
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.id, frame.seq, frame.valid, bytes(frame.data)) == (2, 1, False, bytes([3]) * 48)
        assert rm.info("camera").schema is None
        assert cpp("close") == "ok"


def test_a_camera_in_python(cpp: Participant) -> None:
    assert cpp("frames-subscriber", topic="camera", name="viewer") == "ok"
    assert cpp("frames-receive") == "empty"
    said = cpp("frames-receive", timeout=MILLISECONDS)
    assert (
        said
        == "error 2 no message on topic 'camera' within 0.01 s: there is no such topic (no publisher has been opened)"
    )
    with rm.FramePublisher("camera", size=6, buffers=2, sender="front") as pub:
        pub.send(b"abc", id=5, meta={"gain": 2})
        plane = "bytes array:|u1:6:1:97"
        assert (
            cpp("frames-receive")
            == f"frame 0 5 0 1 3 -front {hexed(bytes([0x81, 0xA4]) + b'gain' + bytes([2]))} {plane}"
        )
        pub.send(b"def")
        pub.send(b"ghi")
        pub.send(b"jkl")  # only one buffer is free, so this is all that is left
        assert cpp("frames-receive").startswith("frame 3 3 2 1 3 ")
        assert cpp("frames-lost") == "ok 2"
        assert cpp("frames-byte", at=0) == f"ok {ord('a')}", "what is held is not written"
        with pytest.raises(rm.Full, match=r"had no free buffer within 0 s: of its 2, reader 'viewer' .* holds 2"):
            pub.send(b"full", timeout=0)
        assert cpp("frames-release") == "ok"
        pub.send(b"mno", timeout=PATIENCE_S)
        with rm.FramePublisher("camera", (2, 3), "u1", takeover=True) as other:  # another shape, in the same topic
            other.send(np.full((2, 3), 8, "u1"))
            assert cpp("frames-receive").startswith("frame 4 ")
            assert "array array:|u1:2,3:3,1:8" in cpp("frames-receive")
        assert cpp("frames-close-subscriber") == "ok"
        assert cpp("frames-byte", at=0) == f"ok {ord('m')}", "a frame outlives its subscriber"
        assert cpp("close") == "ok"


def test_what_a_death_held_is_free_again(cpp: Participant, program: Path) -> None:
    other = Participant(program)
    assert other("frames-subscriber", topic="camera", name="victim") == "ok"
    assert cpp("frames-publisher", topic="camera", bytes=6, buffers=1) == "ok"
    assert cpp("frames-begin", fill=1) == "ok 6"
    assert cpp("frames-commit") == "ok 0"
    assert other("frames-receive", timeout=PATIENCE_MS).startswith("frame 0 ")
    full = cpp("frames-begin", fill=2, timeout=MILLISECONDS)
    assert full.startswith("error 3 frame topic 'camera' had no free buffer within 0.01 s: of its 1, reader 'victim' ")
    other.kill()
    assert cpp("frames-begin", fill=2, timeout=PATIENCE_MS) == "ok 6"
    assert cpp("frames-begin", fill=2) == (
        "error 16 all 1 buffers of frame topic 'camera' are in use by this process itself: "
        "commit or discard frames that are being filled"
    )
    assert cpp("frames-commit", used=2) == "ok 1"
    assert cpp("close") == "ok"
    with rm.FrameSubscriber("next") as sub:
        other = Participant(program)
        assert other("frames-publisher", topic="next", bytes=6) == "ok"
        assert other("frames-begin", fill=1) == "ok 6"
        other.kill()  # in the middle of a frame
        assert cpp("frames-publisher", topic="next", bytes=6) == "ok"
        assert cpp("frames-begin", fill=4) == "ok 6"
        assert cpp("frames-commit") == "ok 0"
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert bytes(frame.data) == bytes([4]) * 6
        assert cpp("close") == "ok"


def test_frames_that_find_no_buffer_are_dropped_and_counted(cpp: Participant) -> None:
    with rm.FrameSubscriber("camera") as sub:
        assert cpp("frames-publisher", topic="camera", bytes=6, buffers=1, drops=1) == "ok"
        assert cpp("frames-begin", fill=1) == "ok 6"
        assert cpp("frames-commit") == "ok 0"
        with sub.recv(timeout=PATIENCE_S):
            assert cpp("frames-begin", fill=2, timeout=PATIENCE_MS).startswith("error 3 frame topic 'camera' had no")
        assert cpp("frames-dropped") == "ok 1"
        assert cpp("frames-begin", fill=3) == "ok 6"
        assert cpp("frames-commit") == "ok 1"
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.id, frame.lost) == (2, 0)
        assert cpp("close") == "ok"


def test_what_makes_no_sense_is_refused(cpp: Participant) -> None:
    refused = {
        "a row of this image has 24 bytes, so stride=9 is too short": {
            "format": "rgb",
            "width": 8,
            "height": 4,
            "stride": 9,
        },
        "nv12 has one colour sample for 2 x 2 pixels: 7 x 4 is odd": {"format": "nv12", "width": 7, "height": 4},
        "an image's format is one of bgr, bgra, gray, i420, nv12, nv21, rgb, rgba, not 'jpeg'": {
            "format": "jpeg",
            "width": 8,
            "height": 4,
        },
        "'<q9' is not a dtype of numbers, as numpy writes it": {"dtype": "<q9"},
        "buffers is a number from 1 to 60, not 61": {"bytes": 6, "buffers": 61},
    }
    for sentence, words in refused.items():
        assert cpp("frames-publisher", topic="camera", **words) == f"error 15 {sentence}"
    with rm.Publisher("t") as pub:
        assert cpp("frames-subscriber", topic="t") == "ok"
        pub.send(b"no frame")
        assert cpp("frames-receive") == (
            "error 10 message 0 of topic 't' is not a frame: read it with Subscriber, or send to it with FramePublisher"
        )
        assert cpp("frames-publisher", topic="t", bytes=6).startswith("error ")
    assert cpp("frames-publisher", topic="c", bytes=6) == "ok"
    assert cpp("frames-begin", fill=1) == "ok 6"
    assert cpp("frames-commit", used=7) == (
        "error 15 a frame of topic 'c' has 6 bytes, this one 7: only frames of bytes may use fewer"
    )
    assert cpp("frames-begin", fill=1) == "ok 6"
    said = cpp("frames-commit", meta=hexed(bytes(40_000)))
    assert said.startswith("error 6 the meta of a frame of topic 'c' takes 40000 bytes, at most ")
    assert cpp("close") == "ok"


@pytest.mark.parametrize(
    "layout",
    [b"", b"{}", b"[]", b'{"format":"bytes"}', b'{"format":"x","size":6,"array":{"shape":[7],"dtype":"|u1","offset":0,'
     b'"strides":[]},"planes":{},"width":0,"height":0,"stride":0}'],
)  # fmt: skip
def test_a_layout_that_another_process_wrote_is_checked(cpp: Participant, layout: bytes) -> None:
    class Told(FrameLayout):
        def to_bytes(self) -> bytes:
            return layout

    assert cpp("frames-subscriber", topic="camera") == "ok"
    honest = FrameLayout.of_bytes(6)
    with rm.FramePublisher("camera", layout=Told("bytes", 6, honest.array)) as pub:
        pub.send(b"abcdef")
        assert cpp("frames-receive").startswith("error 14 the layout of frame topic 'camera' is refused: ")
        assert cpp("close") == "ok"
