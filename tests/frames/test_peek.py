"""`peek_frame`: a copy of the newest frame, complete or None, without an effect on the participants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ringmain as rm

PATIENCE_S = 10.0


def test_it_has_all_that_a_frame_has() -> None:
    with rm.FramePublisher("s", (2, 3), "f4", sender="camera") as pub:
        assert rm.peek_frame("s") is None
        pub.send(np.zeros((2, 3), "f4"))
        with pub.frame() as draft:
            draft.array[:] = 7
            draft.id, draft.start_ns, draft.end_ns, draft.valid = 42, 1, 2, False
            draft.meta["exposure"] = 0.5
        seen = rm.peek_frame("s")
        assert seen is not None
        assert (seen.array.tolist(), seen.shape, seen.dtype) == ([[7.0] * 3] * 2, (2, 3), np.float32)
        assert (seen.id, seen.start_ns, seen.end_ns, seen.valid, seen.seq) == (42, 1, 2, False, 1)
        assert (seen.meta, seen.sender) == ({"exposure": 0.5}, "camera")
        assert seen.time_ns > 0
        seen.array[:] = 1  # its own


def test_it_takes_no_slot_and_holds_no_buffer() -> None:
    with rm.FramePublisher("s", 16, buffers=1) as pub:
        pub.send(np.full(16, 1, "u1"))
        seen = rm.peek_frame("s")
        assert rm.info("s").readers == []
        assert rm.frame_topic("s").held == {}
        pub.send(np.full(16, 2, "u1"), timeout=0)
        assert seen is not None
        assert set(seen.array) == {1}


def test_planes_and_bytes() -> None:
    with rm.FramePublisher("s", layout=rm.FrameLayout.of_image("nv12", 4, 4, stride=8)) as pub:
        with pub.frame() as draft:
            draft.plane("y")[:] = 1
            draft.plane("uv")[:] = 2
        seen = rm.peek_frame("s")
        assert seen is not None
        assert (set(seen.plane("y").flat), set(seen.plane("uv").flat)) == ({1}, {2})
    with rm.FramePublisher("s", size=10) as pub:
        pub.send(b"hello")
        seen = rm.peek_frame("s")
        assert seen is not None
        assert bytes(seen.data) == b"hello"
        assert seen.array.tolist() == list(b"hello")


def test_the_newest_is_being_rewritten_then_the_one_before_it() -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub, rm.FrameSubscriber("s") as sub:
        pub.send(np.full(16, 1, "u1"))
        with sub.recv(timeout=PATIENCE_S):  # the buffer of 1 is held, so that 2 makes way for 3
            pub.send(np.full(16, 2, "u1"))
            with pub.frame():
                seen = rm.peek_frame("s")
                assert seen is not None
                assert set(seen.array) == {1}
        with pub.frame(), pub.frame():
            assert rm.peek_frame("s") is None


def test_no_frame_topic_and_no_frame() -> None:
    with pytest.raises(rm.TopicNotFound, match="no stream of frames 's'"):
        rm.peek_frame("s")
    with rm.FrameSubscriber("s") as sub:
        with rm.FramePublisher("s", 16) as pub:
            pub.send(np.zeros(16, "u1"))
            sub.recv(timeout=PATIENCE_S).release()
        with rm.FramePublisher("s", 8) as pub:  # the descriptor of the frame before means a pool that is gone
            assert rm.peek_frame("s") is None


def test_while_it_is_being_written(child: Callable[..., Any]) -> None:
    """A publisher goes round two buffers, pausing now and then so that a frame stays: what is seen is whole."""
    publisher = child("""
        import numpy as np
        with rm.FramePublisher("s", 65536, "u8", buffers=2) as pub:
            say("ready")
            number = 0
            while True:
                with pub.frame() as f:
                    f.id = number
                    f.array[:] = number
                number += 1
                time.sleep(0.002 if number % 8 == 0 else 0)
    """)
    publisher.line()
    ids = set()
    for _ in range(1000):
        if (seen := rm.peek_frame("s")) is not None:
            assert int(seen.array.min()) == int(seen.array.max()) == seen.id
            ids.add(seen.id)
    assert len(ids) > 1
    publisher.kill()
    assert rm.clean() == ["s"]
