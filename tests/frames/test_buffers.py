"""Which buffer is used next, which frames a slow reader loses and counts, and what happens when none is free."""

from __future__ import annotations

import numpy as np

import ringmain as rm

PATIENCE_S = 10.0


def test_a_slow_reader_learns_how_many_it_lost() -> None:
    with rm.FramePublisher("s", 16, buffers=3) as pub, rm.FrameSubscriber("s") as sub:
        for value in range(100):
            pub.send(np.full(16, value, "u1"))
        got = [(f.id, f.lost) for f in sub.recv_many(10)]
        assert got == [(97, 97), (98, 0), (99, 0)]
        assert sub.lost == 97


def test_a_reader_lapped_in_the_descriptors_too_counts_all() -> None:
    with rm.FramePublisher("s", 16) as pub, rm.FrameSubscriber("s") as sub:
        for _ in range(5000):  # the topic holds some hundreds
            pub.send(np.zeros(16, "u1"))
        got = [(f.id, f.lost) for f in sub.recv_many(10)]
        assert [number for number, _ in got] == [4996, 4997, 4998, 4999]
        assert sub.lost == got[0][1] == 4996


def test_what_was_gone_before_one_came_is_not_lost() -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub:
        for _ in range(10):
            pub.send(np.zeros(16, "u1"))
        with rm.FrameSubscriber("s", start="oldest") as late:
            assert [f.id for f in late.recv_many(10)] == [8, 9]
            assert late.lost == 0


def test_conflate_gives_the_newest() -> None:
    with rm.FramePublisher("s", 16) as pub, rm.FrameSubscriber("s", conflate=True) as sub:
        for _ in range(10):
            pub.send(np.zeros(16, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.id, frame.lost, sub.lost) == (9, 0, 0)
        assert sub.try_recv() is None


def test_few_buffers_are_reused_hot() -> None:
    """A reader that keeps up makes two of eight buffers take turns: memory that both have in their caches."""
    with rm.FramePublisher("s", 16, buffers=8) as pub, rm.FrameSubscriber("s") as sub:
        used = []
        for _ in range(20):
            pub.send(np.zeros(16, "u1"))
            with sub.recv(timeout=PATIENCE_S) as frame:
                used.append(frame.buffer)
        assert len(set(used)) == 2


def test_unread_frames_are_spared_while_there_is_another_buffer() -> None:
    with rm.FramePublisher("s", 16, buffers=4) as pub, rm.FrameSubscriber("s") as sub:
        for round_ in range(50):
            for _ in range(4):
                pub.send(np.zeros(16, "u1"))
            assert [f.id for f in sub.recv_many(10)] == [round_ * 4 + i for i in range(4)]
        assert sub.lost == 0


def test_when_full_drop_counts_and_never_waits() -> None:
    with (
        rm.FramePublisher("s", 16, buffers=2, when_full="drop") as pub,
        rm.FrameSubscriber("s") as sub,
    ):
        pub.send(np.full(16, 1, "u1"))
        pub.send(np.full(16, 2, "u1"))
        held = sub.recv_many(2)
        assert pub.send(np.full(16, 3, "u1")) is None
        with pub.frame() as draft:
            draft.array[:] = 4  # memory of its own
        assert draft.dropped
        assert draft.seq is None
        assert pub.dropped == rm.frame_topic("s").dropped == 2
        assert [set(f.array) for f in held] == [{1}, {2}]
        for frame in held:
            frame.release()
        pub.send(np.full(16, 5, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (set(frame.array), frame.id, frame.lost) == ({5}, 4, 0)  # the ids tell what was dropped
