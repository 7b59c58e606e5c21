"""Bad frame topics and bad frames: an error says what is wrong, and nothing is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ringmain as rm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give one of shape, size and layout, not none of them"),
        ({"shape": 4, "size": 4}, "not shape and size"),
        ({"size": 0}, "1 or more"),
        ({"shape": (3, 0)}, "each 1 or more"),
        ({"shape": (3, -1)}, "each 1 or more"),
        ({"shape": 4, "dtype": "O"}, "cannot be shared"),
        ({"shape": 4, "dtype": [("a", "i4")]}, "cannot be shared"),
        ({"size": 4, "dtype": "u1"}, "dtype goes with shape"),
        ({"size": 1 << 40}, "64 GiB"),
        ({"shape": 4, "buffers": 0}, "from 1 to 60"),
        ({"shape": 4, "buffers": 61}, "from 1 to 60"),
        ({"shape": 4, "when_full": "panic"}, "'wait' or 'drop'"),
    ],
)
def test_bad_frame_topics_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rm.FramePublisher("s", **arguments)


def test_bad_frames_are_refused_and_nothing_is_sent() -> None:
    with rm.FramePublisher("s", (2, 2), "f4") as pub, rm.FrameSubscriber("s") as sub:
        with pytest.raises(ValueError, match=r"float32 of shape \(2, 2\), this one is float32 of shape \(3, 2\)"):
            pub.send(np.zeros((3, 2), "f4"))
        with pytest.raises(ValueError, match="this one is float64"):
            pub.send(np.zeros((2, 2)))
        with pytest.raises(ValueError, match="does not fit"), pub.frame() as draft:
            draft.size = 17
        with pytest.raises(ValueError, match="only frames of bytes may use fewer"), pub.frame() as draft:
            draft.size = 4
        with pytest.raises(TypeError, match="meta is a dict"), pub.frame() as draft:
            draft.meta = 3  # type: ignore[assignment]
        with pytest.raises(rm.MessageTooLarge, match="put large data into the frame"), pub.frame() as draft:
            draft.meta["x"] = bytes(100_000)
        with pytest.raises(ValueError, match="no plane 'y': it has no planes"), pub.frame() as draft:
            draft.plane("y")
        assert sub.try_recv() is None
    with rm.FramePublisher("s", size=10) as pub:
        with pytest.raises(ValueError, match="at most 10 bytes, this one 11"):
            pub.send(bytes(11))
        with pytest.raises(TypeError, match="takes buffers of bytes, not str"):
            pub.send("text")
        assert pub.send(b"fits") == 0
