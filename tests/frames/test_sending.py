"""What a user writes and gets: the fields of a frame, the ways to fill one, and the end of a publisher."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import ringmain as rm

PATIENCE_S = 10.0


def test_a_frame_arrives_with_its_fields() -> None:
    with rm.FramePublisher("camera/road", (4, 5, 3), "f4") as pub, rm.FrameSubscriber("camera/road") as sub:
        with pub.frame() as draft:
            draft.array[:] = np.arange(60).reshape(4, 5, 3)
            draft.id, draft.start_ns, draft.end_ns, draft.valid = 42, 1, 2, False
            draft.meta["exposure"] = 0.5
        assert draft.seq == 0
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert frame.array.tolist() == np.arange(60).reshape(4, 5, 3).tolist()
            assert (frame.id, frame.start_ns, frame.end_ns, frame.valid) == (42, 1, 2, False)
            assert frame.meta == {"exposure": 0.5}
            assert (frame.shape, frame.dtype, frame.size, frame.lost, frame.seq) == ((4, 5, 3), np.float32, 240, 0, 0)
            assert len(frame.data) == 240
            assert frame.data.readonly


def test_fields_have_sensible_values_if_nothing_is_set() -> None:
    with rm.FramePublisher("s", 8) as pub, rm.FrameSubscriber("s") as sub:
        for _ in range(2):
            with pub.frame():
                pass
        first, second = sub.recv(timeout=PATIENCE_S), sub.recv(timeout=PATIENCE_S)
        assert (first.id, second.id) == (0, 1)
        assert 0 < first.start_ns <= first.end_ns <= second.start_ns
        assert first.end_ns == first.time_ns
        assert first.valid
        assert first.meta == {}
        first.release()
        second.release()


def test_both_sides_see_the_same_memory() -> None:
    with rm.FramePublisher("s", 1000) as pub, rm.FrameSubscriber("s") as sub:
        with pub.frame() as draft:
            draft.array[:] = 1
            kept = draft.array
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert frame.array.sum() == kept.sum() == 1000
            assert frame.array.ctypes.data != kept.ctypes.data  # another mapping of the same pages
            ctypes.memset(kept.ctypes.data, 2, 1000)  # behind the back of numpy's write protection
            assert frame.array.sum() == 2000


def test_a_draft_is_dropped_on_an_exception() -> None:
    with rm.FramePublisher("s", 8) as pub, rm.FrameSubscriber("s") as sub:
        with pytest.raises(KeyError), pub.frame():
            raise KeyError
        draft = pub.frame()
        draft.discard()
        del draft
        pub.frame()  # forgotten
        assert sub.try_recv() is None
        assert pub.send(np.zeros(8, "u1")) == 0


def test_raw_frames_may_use_fewer_bytes() -> None:
    with rm.FramePublisher("s", size=100) as pub, rm.FrameSubscriber("s") as sub:
        pub.send(b"hello")
        with pub.frame() as draft:
            draft.data[:3] = b"abc"
            draft.size = 3
        pub.send(bytearray(100))
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert bytes(frame.data) == b"hello"
            assert frame.array.tolist() == list(b"hello")
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert bytes(frame.data) == b"abc"
        target = bytearray(200)
        assert sub.recv_into(target, timeout=PATIENCE_S) == 100


def test_arrays_that_are_not_contiguous_are_sent_too() -> None:
    with rm.FramePublisher("s", (3, 4), "i4") as pub, rm.FrameSubscriber("s") as sub:
        source = np.arange(12, dtype="i4").reshape(4, 3).T
        pub.send(source)
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.array == source).all()


def test_a_frame_topic_has_one_publisher() -> None:
    with rm.FramePublisher("s", 8, name="first") as pub, rm.FrameSubscriber("s") as sub:
        with pytest.raises(rm.TopicBusy, match="first"):
            rm.FramePublisher("s", 8)
        with rm.FramePublisher("s", 9, takeover=True) as second:
            with pytest.raises(rm.TakenOver):
                pub.send(np.zeros(8, "u1"))
            second.send(np.zeros(9, "u1"))
            assert sub.recv(timeout=PATIENCE_S).shape == (9,)


def test_frames_come_from_their_makers_only() -> None:
    with pytest.raises(TypeError, match="FrameSubscriber"):
        rm.Frame()
    with pytest.raises(TypeError, match="FramePublisher"):
        rm.FrameDraft()


def test_closing_waits_for_drafts() -> None:
    pub = rm.FramePublisher("s", 8)
    with pub.frame():
        with pytest.raises(rm.InUse, match="still being filled"):
            pub.close()
    pub.close()
    pub.close()
    with pytest.raises(rm.Closed):
        pub.frame()


def test_unlink_and_clean_take_the_buffers_too(runtime_dir: Path) -> None:
    with rm.FramePublisher("s", 8) as pub, rm.FrameSubscriber("s") as sub:
        with pytest.raises(rm.TopicBusy):
            rm.unlink("s")
        assert list(runtime_dir.glob("*.frames"))
        rm.unlink("s", force=True)
        assert not list(runtime_dir.glob("*.frames"))
        with pytest.raises(rm.TopicNotFound):
            pub.send(np.zeros(8, "u1"))
        assert sub.try_recv() is None
    assert rm.clean() == []
