"""Other libraries see the frame's own memory and keep it leased; the system is asked for huge and for pinned memory."""

from __future__ import annotations

import numpy as np
import pytest

import ringmain as rm

PATIENCE_S = 10.0


def test_dlpack_shares_memory_and_keeps_the_lease() -> None:
    with rm.FramePublisher("s", (2, 3), "f4", buffers=1) as pub, rm.FrameSubscriber("s") as sub:
        with pub.frame() as draft:
            np.from_dlpack(draft)[:] = 2
        frame = sub.recv(timeout=PATIENCE_S)
        tensor = np.from_dlpack(frame)
        frame.release()
        assert frame.held
        assert tensor.tolist() == [[2.0] * 3] * 2
        del tensor
        assert not frame.held


def test_pin_memory_is_skipped_cleanly_without_cuda() -> None:
    with rm.FramePublisher("s", 8) as pub, rm.FrameSubscriber("s") as sub:
        assert pub.pin_memory() is False
        assert sub.pin_memory() is False
        pub.send(np.zeros(8, "u1"))
        sub.recv(timeout=PATIENCE_S).release()


def test_huge_pages_come_or_it_is_said_why_not(recwarn: pytest.WarningsRecorder) -> None:
    import warnings

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pub = rm.FramePublisher("s", size=3 << 20, huge_pages=True)
    with pub, rm.FrameSubscriber("s") as sub:
        assert pub.huge_pages == (not said)
        assert all("ordinary pages" in str(warning.message) for warning in said)
        with pub.frame() as draft:
            draft.array[:] = 3
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert frame.array.min() == 3
