"""How long a frame stays: until its block is left and the last view of it is gone, on either side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ringmain as rm

PATIENCE_S = 10.0


def test_the_lease_lasts_until_the_last_view_dies() -> None:
    """One buffer, so that whether it is held shows at once."""
    with rm.FramePublisher("s", 16, buffers=1) as pub, rm.FrameSubscriber("s", name="holder") as sub:
        pub.send(np.full(16, 7, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            array = frame.array
            corner = array[3:5]
        assert frame.held
        del array
        with pytest.raises(rm.Full, match=r"reader 'holder' \(pid \d+\) holds 1"):
            pub.frame(timeout=0)
        assert corner.tolist() == [7, 7]
        with pytest.raises(ValueError, match="read-only"):
            corner[:] = 1
        del corner
        assert not frame.held
        assert pub.send(np.full(16, 8, "u1"), timeout=0) == 1


def test_after_the_block_a_frame_gives_nothing() -> None:
    with rm.FramePublisher("s", 16) as pub, rm.FrameSubscriber("s") as sub:
        pub.send(np.zeros(16, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            kept = frame.copy()
        for use in (lambda: frame.array, lambda: frame.data, lambda: frame.copy(), lambda: frame.__enter__()):
            with pytest.raises(ValueError, match="given back"):
                use()
        assert kept.flags.writeable
        assert (frame.id, frame.meta, frame.shape) == (0, {}, (16,))


def test_an_array_kept_by_the_publisher_turns_read_only_and_keeps_its_buffer() -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub, rm.FrameSubscriber("s") as sub:
        with pub.frame() as draft:
            mine = draft.array
            mine[:] = 5
        with pytest.raises(ValueError, match="read-only"):
            mine[:] = 6
        for value in range(10, 16):
            pub.send(np.full(16, value, "u1"))
        assert set(mine) == {5}
        with pub.frame() as other, pytest.raises(rm.InUse, match="this process itself"):
            pub.frame()
        del mine, other
        got = [(f.id, f.lost) for f in sub.recv_many(10)]
        assert got == [(0, 0), (7, 6)]  # 1 to 6 took turns in the other buffer


def test_a_loop_gives_each_frame_back_when_it_goes_on() -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub, rm.FrameSubscriber("s") as sub:
        for value in range(5):
            pub.send(np.full(16, value, "u1"), timeout=0)
            frame = next(sub)
            assert set(frame.array) == {value}
        assert [f.id for f in _take(sub, pub, 3)] == [5, 6, 7]


def _take(sub: rm.FrameSubscriber, pub: rm.FramePublisher, count: int) -> Any:
    pub.send(np.zeros(16, "u1"))
    for frame in sub:
        yield frame
        count -= 1
        if count == 0:
            return
        pub.send(np.zeros(16, "u1"), timeout=0)


def test_iteration_ends_when_the_subscriber_is_closed() -> None:
    sub = rm.FrameSubscriber("nothing")
    sub.close()
    assert list(sub) == []
    with pytest.raises(rm.Closed):
        sub.recv()


def test_views_outlive_the_subscriber() -> None:
    with rm.FramePublisher("s", 16, buffers=1) as pub:
        sub = rm.FrameSubscriber("s")
        pub.send(np.full(16, 7, "u1"))
        array = sub.recv(timeout=PATIENCE_S).array
        sub.close()
        with pytest.raises(rm.Full):
            pub.frame(timeout=0)
        assert set(array) == {7}
        del array
        pub.send(np.full(16, 8, "u1"), timeout=0)
