"""Frame topics as a whole: listed, waited for, existing or not, restarted with another shape."""

from __future__ import annotations

import itertools
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ringmain as rm
from ringmain import _names, _native
from ringmain.backends import SubscriberProtocol
from ringmain.frames._layout import FrameLayout

PATIENCE_S = 10.0


def test_wait_takes_frame_subscribers() -> None:
    with (
        rm.FramePublisher("a", 8) as pub,
        rm.FrameSubscriber("a") as frames,
        rm.Publisher("b") as messages,
        rm.Subscriber("b") as sub,
    ):
        both: list[Any] = [frames, sub]
        assert rm.wait(both, timeout=0) == []
        pub.send(np.zeros(8, "u1"))
        assert rm.wait(both, timeout=PATIENCE_S) == [frames]
        messages.send(b"x")
        assert rm.wait(both, timeout=PATIENCE_S) == both
        frames.recv(timeout=0).release()
        assert rm.wait(both, timeout=PATIENCE_S) == [sub]


def test_many_frames_are_as_many_as_come_in_time() -> None:
    with rm.FramePublisher("s", 16) as pub, rm.FrameSubscriber("s") as sub:
        assert sub.recv_many(2) == sub.recv_many(2, timeout=0.01) == []  # where recv() raises Timeout
        for _ in range(3):
            pub.send(np.zeros(16, "u1"))
        assert [f.id for f in sub.recv_many(2, timeout=PATIENCE_S)] == [0, 1]
        assert [f.id for f in sub.recv_many(2, timeout=PATIENCE_S)] == [2]


def test_frame_topics_are_listed() -> None:
    assert rm.frame_topics("camera") == []
    with (
        rm.FramePublisher("camera/road", (4, 6, 3), buffers=3) as road,
        rm.FramePublisher("camera/wide", size=10),
        rm.FramePublisher("cameras", 4),
        rm.FrameSubscriber("camera/road", name="viewer") as sub,
    ):
        road.send(np.zeros((4, 6, 3), "u1"))
        road.send(np.zeros((4, 6, 3), "u1"))
        frame = sub.recv(timeout=PATIENCE_S)
        first, second = rm.frame_topics("camera")
        assert (first.name, first.shape, first.dtype, first.buffers) == ("camera/road", (4, 6, 3), np.uint8, 3)
        assert (first.frames, first.alive) == (2, True)
        assert first.rate > 0
        assert [(who.split()[0], count) for who, count in first.held.items()] == [("viewer", 1)]
        assert (second.name, second.layout.format, second.rate) == ("camera/wide", "bytes", 0)
        assert [s.name for s in rm.frame_topics()] == ["camera/road", "camera/wide", "cameras"]
        frame.release()


def test_the_rate_is_that_of_the_publish_times() -> None:
    """Averaged over about eight frames, each published at some time within `send`; and it falls when no more come."""
    with rm.FramePublisher("s", 8) as pub, rm.FrameSubscriber("s") as sub:
        times: list[tuple[int, int]] = []
        for _ in range(20):
            begun = time.monotonic_ns()
            pub.send(np.zeros(8, "u1"))
            times.append((begun, time.monotonic_ns()))
            sub.recv(timeout=PATIENCE_S).release()
        at_least = [later[0] - earlier[1] for earlier, later in itertools.pairwise(times)]
        average = float(at_least[0])
        for interval in at_least[1:]:
            average += (interval - average) / 8
        first = rm.frame_topic("s").rate
        assert 0 < 1e9 / first + 10 > average  # whole nanoseconds, rounded at each step
        while (later := rm.frame_topic("s").rate) >= first:  # ends when more than two intervals have passed
            pass
        assert later > 0


def test_a_frame_topic_that_does_not_exist() -> None:
    with pytest.raises(rm.TopicNotFound, match="no stream of frames 'camera/road'"):
        rm.frame_topic("camera/road")
    with rm.FrameSubscriber("camera/road") as sub, pytest.raises(rm.Timeout, match=r"'camera/road'.*no such topic"):
        sub.recv(timeout=0)
    with pytest.raises(ValueError, match=r"name"):
        rm.frame_topics("camera//road")


def test_a_reader_may_come_first() -> None:
    with rm.FrameSubscriber("s") as sub:
        assert sub.layout is None
        with pytest.raises(rm.Timeout, match="no such topic"):
            sub.recv(timeout=0)
        with rm.FramePublisher("s", 4) as pub:
            assert sub.try_recv() is None
            assert sub.layout == FrameLayout.of_array(4)
            pub.send(np.full(4, 9, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:  # the publisher is gone, its frames are not
            assert (frame.array.tolist(), frame.lost) == ([9] * 4, 0)
        assert not rm.frame_topic("s").alive


def test_a_restart_with_another_shape() -> None:
    with rm.FrameSubscriber("s") as sub:
        with rm.FramePublisher("s", (2, 2)) as pub:
            pub.send(np.full((2, 2), 1, "u1"))
            old = sub.recv(timeout=PATIENCE_S)
            kept = old.array
        with rm.FramePublisher("s", (3,), "f8") as pub:
            for _ in range(8):
                pub.send(np.full(3, 2.0))
            with sub.recv(timeout=PATIENCE_S) as new:
                assert (new.shape, new.dtype, new.array.tolist()) == ((3,), np.float64, [2.0] * 3)
        assert kept.tolist() == [[1, 1], [1, 1]]
        assert sub.layout == FrameLayout.of_array(3, "f8")
        del kept
        old.release()


def test_a_restart_with_another_shape_raises_if_asked_to() -> None:
    with rm.FrameSubscriber("s", on_change="raise") as sub:
        for shape in ((2, 2), (2, 2)):
            with rm.FramePublisher("s", shape) as pub:
                pub.send(np.zeros(shape, "u1"))
                sub.recv(timeout=PATIENCE_S).release()
        with rm.FramePublisher("s", 3) as pub:
            pub.send(np.zeros(3, "u1"))
            with pytest.raises(rm.FrameTopicChanged, match=r"shape \(2, 2\) and is now .* shape \(3,\)"):
                sub.recv(timeout=PATIENCE_S)
            assert sub.recv(timeout=PATIENCE_S).lost == 0


def test_an_ordinary_topic_is_not_a_frame_topic() -> None:
    with rm.Publisher("s") as pub, rm.FrameSubscriber("s") as sub:
        pub.send(b"just bytes")
        with pytest.raises(rm.TopicMismatch, match="message 0 of topic 's' is not a frame"):
            sub.recv(timeout=PATIENCE_S)
        assert sub.try_recv() is None
        with pytest.raises(rm.TopicNotFound, match="no stream of frames 's'"):
            rm.frame_topic("s")


def test_a_frame_subscriber_counts_as_a_subscriber() -> None:
    with rm.FrameSubscriber("s") as sub:
        assert isinstance(sub, rm.Subscriber)
        assert isinstance(sub, SubscriberProtocol)
        assert not isinstance(sub, rm.Publisher)


def test_frames_need_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGMAIN_BACKEND", "fake")
    with pytest.raises(TypeError, match="frames need shared memory, so they cannot be used with the backend 'fake'"):
        rm.FrameSubscriber("s")
    with pytest.raises(TypeError, match="frames need shared memory"):
        rm.FramePublisher("s", 8)


def test_pinned_memory_follows_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for torch that records what is registered."""
    pinned: dict[int, int] = {}

    class Cuda:
        def is_available(self) -> bool:
            return True

        def cudart(self) -> Cuda:
            return self

        def cudaHostRegister(self, address: int, size: int, _flags: int) -> int:
            pinned[address] = size
            return 0

        def cudaHostUnregister(self, address: int) -> None:
            del pinned[address]

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=Cuda()))
    with rm.FrameSubscriber("s") as sub:
        assert not sub.pin_memory()
        for size in (8, 1 << 20):
            with rm.FramePublisher("s", size) as pub:
                pub.send(np.zeros(size, "u1"))
                sub.recv(timeout=PATIENCE_S).release()
                assert list(pinned.items()) == [sub._memory()]
                assert sub.pin_memory()
    assert pinned == {}


def test_a_plain_subscriber_of_a_frame_topic_is_refused() -> None:
    with rm.Subscriber("cam") as early, rm.FramePublisher("cam", 4) as pub:
        for options in ({}, {"type": np.ndarray}, {"start": "oldest"}):
            with pytest.raises(rm.TopicMismatch, match=r"'cam' is a frame topic.*FrameSubscriber"):
                rm.Subscriber("cam", **options)
        with pytest.raises(rm.TopicMismatch, match="FrameSubscriber"):
            early.recv(timeout=PATIENCE_S)
        with rm.Subscriber("cam", observe="always") as observer:
            pub.send(np.zeros(4, "u1"))
            assert observer.recv(timeout=PATIENCE_S)[:4] == b"FRME"


def test_a_frame_topic_is_one_before_its_pool_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its header says so, from the moment that it has a name."""
    refused = []

    def make_pool(_: rm.FramePublisher) -> None:
        assert _native.pools(_names.runtime_directory()) == []
        assert _native.inspect(_names.runtime_directory(), "cam")["frames"]
        with pytest.raises(rm.TopicMismatch, match="FrameSubscriber"):
            rm.Subscriber("cam")
        refused.append(True)
        raise KeyboardInterrupt

    monkeypatch.setattr(rm.FramePublisher, "_make_pool", make_pool)
    with pytest.raises(KeyboardInterrupt):
        rm.FramePublisher("cam", 4)
    assert refused


def test_a_topic_of_messages_whose_messages_look_like_descriptors_is_one(until: Any) -> None:
    with rm.Publisher("cam") as pub, rm.Latest({"cam": None}) as latest:
        pub.send(b"FRME and so on")
        until(lambda: latest.update(timeout=0.1))
        assert latest["cam"] == b"FRME and so on"


def test_messages_and_frames_do_not_share_a_topic() -> None:
    with (
        rm.Publisher("cam", capacity=64 * 1024),
        pytest.raises(rm.TopicMismatch, match=r"no frames; .* descriptors of"),
    ):
        rm.FramePublisher("cam", 4)
    with rm.FramePublisher("cam", 4), pytest.raises(rm.TopicMismatch, match=r"descriptors of frames; .* no frames"):
        rm.Publisher("cam")


def test_a_topic_of_messages_is_not_mistaken_for_the_frame_topic_that_it_was() -> None:
    with rm.FrameSubscriber("cam") as frames:
        with rm.FramePublisher("cam", 4) as pub:
            pub.send(np.full(4, 7, "u1"))
            held = frames.recv(timeout=PATIENCE_S)  # keeps the pool's file
        frames.close()
        with rm.Publisher("cam") as pub, rm.Subscriber("cam") as sub:
            pub.send(b"plain")
            assert sub.recv(timeout=PATIENCE_S) == b"plain"
        held.release()
