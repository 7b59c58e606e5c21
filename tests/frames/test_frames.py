"""Frames within one process: what a user writes and gets, the lease, the choice of buffers, and bad input."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ringmain as rm
from ringmain.frames.layout import FrameLayout

PATIENCE_S = 10.0


@pytest.fixture(autouse=True)
def no_pool_left(runtime_dir: Path) -> Any:
    """Whatever a test does, closing everything leaves no file of buffers."""
    yield
    gc.collect()
    assert not list(runtime_dir.glob("*.frames"))


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
        assert pub.dropped == rm.frame_stream("s").dropped == 2
        assert [set(f.array) for f in held] == [{1}, {2}]
        for frame in held:
            frame.release()
        pub.send(np.full(16, 5, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (set(frame.array), frame.id, frame.lost) == ({5}, 4, 0)  # the ids tell what was dropped


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


def test_nv12_planes() -> None:
    layout = FrameLayout.of_image("nv12", 6, 4, stride=8)
    with rm.FramePublisher("s", layout=layout) as pub, rm.FrameSubscriber("s") as sub:
        with pub.frame() as draft:
            draft.array[:] = 0
            draft.plane("y")[:] = 1
            draft.plane("uv")[..., 0] = 2
            draft.plane("uv")[..., 1] = 3
        with sub.recv(timeout=PATIENCE_S) as frame:
            assert (frame.width, frame.height, frame.stride, frame.layout.plane("uv").offset) == (6, 4, 8, 32)
            rows = frame.array.reshape(6, 8)
            assert rows.tolist() == [[1] * 6 + [0] * 2] * 4 + [[2, 3] * 3 + [0] * 2] * 2
            assert not frame.plane("y").flags.writeable


def test_other_layouts() -> None:
    rgb = FrameLayout.of_image("rgb", 5, 3, stride=16)
    assert (rgb.shape, rgb.size, rgb.array.strides) == ((3, 5, 3), 48, (16, 3, 1))
    i420 = FrameLayout.of_image("i420", 4, 4)
    assert {name: view.offset for name, view in i420.planes.items()} == {"y": 0, "u": 16, "v": 20}
    assert i420.size == 24
    padded = FrameLayout.of_image("nv12", 4, 4, stride=8, offsets={"uv": 64}, size=4096)
    assert (padded.size, padded.plane("uv").offset) == (4096, 64)
    for layout in (rgb, i420, padded, FrameLayout.of_array((2, 3), "<f8"), FrameLayout.of_bytes(9)):
        assert FrameLayout.from_bytes(layout.to_bytes(), "s", layout.size) == layout


def test_a_padded_image_can_be_sent_as_an_array() -> None:
    with rm.FramePublisher("s", layout=FrameLayout.of_image("rgb", 5, 3, stride=32)) as pub:
        with rm.FrameSubscriber("s") as sub:
            image = np.arange(45, dtype="u1").reshape(3, 5, 3)
            pub.send(image)
            with sub.recv(timeout=PATIENCE_S) as frame:
                assert (frame.array == image).all()


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


def test_streams_are_listed() -> None:
    assert rm.frame_streams("camera") == []
    with (
        rm.FramePublisher("camera/road", (4, 6, 3), buffers=3) as road,
        rm.FramePublisher("camera/wide", size=10),
        rm.FramePublisher("cameras", 4),
        rm.FrameSubscriber("camera/road", name="viewer") as sub,
    ):
        road.send(np.zeros((4, 6, 3), "u1"))
        road.send(np.zeros((4, 6, 3), "u1"))
        frame = sub.recv(timeout=PATIENCE_S)
        first, second = rm.frame_streams("camera")
        assert (first.name, first.shape, first.dtype, first.buffers) == ("camera/road", (4, 6, 3), np.uint8, 3)
        assert (first.frames, first.alive) == (2, True)
        assert first.rate > 0
        assert [(who.split()[0], count) for who, count in first.held.items()] == [("viewer", 1)]
        assert (second.name, second.layout.format, second.rate) == ("camera/wide", "bytes", 0)
        assert [s.name for s in rm.frame_streams()] == ["camera/road", "camera/wide", "cameras"]
        frame.release()


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
        assert not rm.frame_stream("s").alive


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
            with pytest.raises(rm.StreamChanged, match=r"shape \(2, 2\) and is now .* shape \(3,\)"):
                sub.recv(timeout=PATIENCE_S)
            assert sub.recv(timeout=PATIENCE_S).lost == 0


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of shape, size and layout, not by none"),
        ({"shape": 4, "size": 4}, "not by shape and size"),
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
def test_bad_streams_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rm.FramePublisher("s", **arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("jpeg", 4, 4), "one of"),
        (("nv12", 5, 4), "odd"),
        (("rgb", 0, 4), "width"),
    ],
)
def test_bad_images_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FrameLayout.of_image(*arguments)
    with pytest.raises(ValueError, match="too short"):
        FrameLayout.of_image("rgb", 4, 4, stride=11)
    with pytest.raises(ValueError, match="too small"):
        FrameLayout.of_image("rgb", 4, 4, size=11)
    with pytest.raises(ValueError, match="no plane 'u'"):
        FrameLayout.of_image("nv12", 4, 4, offsets={"u": 3})


def test_bad_frames_are_refused_and_nothing_is_sent() -> None:
    with rm.FramePublisher("s", (2, 2), "f4") as pub, rm.FrameSubscriber("s") as sub:
        with pytest.raises(ValueError, match=r"float32 of shape \(2, 2\), this one is float32 of shape \(3, 2\)"):
            pub.send(np.zeros((3, 2), "f4"))
        with pytest.raises(ValueError, match="this one is float64"):
            pub.send(np.zeros((2, 2)))
        with pytest.raises(ValueError, match="does not fit"), pub.frame() as draft:
            draft.size = 17
        with pytest.raises(TypeError, match="meta is a dict"), pub.frame() as draft:
            draft.meta = 3  # type: ignore[assignment]
        with pytest.raises(rm.MessageTooLarge, match="put large things into the frame"), pub.frame() as draft:
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


def test_an_ordinary_topic_is_no_stream() -> None:
    with rm.Publisher("s") as pub, rm.FrameSubscriber("s") as sub:
        pub.send(b"just bytes")
        with pytest.raises(rm.TopicMismatch, match="message 0 of topic 's' is not a frame"):
            sub.recv(timeout=PATIENCE_S)
        assert sub.try_recv() is None
        with pytest.raises(rm.TopicNotFound, match="no stream of frames 's'"):
            rm.frame_stream("s")


def test_a_stream_has_one_publisher() -> None:
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
