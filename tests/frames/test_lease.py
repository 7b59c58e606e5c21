"""How long a frame stays: until its block is left and the last view of it is gone, on either side."""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Callable, Iterator
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


class BareReference:
    """What torch.frombuffer does: asks for the buffer, releases it, and keeps a reference to `Py_buffer.obj`."""

    def __init__(self, source: Any) -> None:
        view = (ctypes.c_byte * 256)()  # a Py_buffer: buf, obj, len, ...
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(source), view, 0)
        words = ctypes.cast(view, ctypes.POINTER(ctypes.c_void_p))
        address, owner = words[0], words[1]
        assert owner is not None
        self.owner = ctypes.cast(owner, ctypes.py_object).value
        self.array = np.frombuffer((ctypes.c_ubyte * (words[2] or 0)).from_address(address or 0), "u1")
        ctypes.pythonapi.PyBuffer_Release(view)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array)


TAKEN: dict[str, Callable[[Any], Any]] = {
    "array": lambda f: f.array,
    "data": lambda f: f.data,
    "ndarray(frame)": lambda f: np.ndarray(16, "u1", buffer=f),
    "ndarray(data)": lambda f: np.ndarray(16, "u1", buffer=f.data),
    "memoryview": memoryview,
    "frombuffer": lambda f: np.frombuffer(f, "u1"),
    "from_dlpack": np.from_dlpack,
    "torch(frame)": BareReference,
    "torch(data)": lambda f: BareReference(f.data),
}


@pytest.mark.parametrize("how", TAKEN)
def test_whatever_is_taken_from_a_frame_keeps_it(how: str) -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub, rm.FrameSubscriber("s") as sub:
        pub.send(np.full(16, 7, "u1"))
        with sub.recv(timeout=PATIENCE_S) as frame:
            kept = TAKEN[how](frame)
        for value in range(10):
            pub.send(np.full(16, value, "u1"), timeout=0)
        assert frame.held
        assert set(kept) == {7}
        sub.close()
        pub.close()
        assert set(kept) == {7}  # both ends are gone, the memory is not


@pytest.mark.parametrize("how", TAKEN)
def test_whatever_is_taken_from_a_draft_keeps_its_buffer(how: str) -> None:
    with rm.FramePublisher("s", 16, buffers=2) as pub:
        with pub.frame() as draft:
            draft.array[:] = 7
            kept = TAKEN[how](draft)
        for value in range(10):
            pub.send(np.full(16, value, "u1"), timeout=0)
        assert set(kept) == {7}
        del kept, draft
        with pub.frame(timeout=0), pub.frame(timeout=0):
            pass
        with pub.frame() as draft:
            draft.array[:] = 8
            kept = TAKEN[how](draft)
        pub.close()
        assert set(kept) == {8}


def test_threads_that_loop_over_one_subscriber_keep_their_own_frames() -> None:
    """Each thread gets a frame, then asks for the next while the other still uses its own."""
    with rm.FramePublisher("s", 16, buffers=8) as pub, rm.FrameSubscriber("s") as sub:
        both = threading.Barrier(2, timeout=PATIENCE_S)
        used: list[list[int]] = [[], []]

        def work(mine: list[int]) -> None:
            for _, frame in zip(range(20), sub, strict=False):  # in this order: it takes no 21st frame
                both.wait()
                mine.append(int(frame.array[0]))

        threads = [threading.Thread(target=work, args=(mine,)) for mine in used]
        for thread in threads:
            thread.start()
        for value in range(40):
            while pub.next_sequence - len(used[0]) - len(used[1]) > 4:
                both_alive = [thread.is_alive() for thread in threads]
                assert all(both_alive)
            pub.send(np.full(16, value, "u1"))
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        assert sorted(used[0] + used[1]) == list(range(40))


def test_tasks_that_loop_over_one_subscriber_keep_their_own_frames() -> None:
    async def work(sub: rm.FrameSubscriber, turn: asyncio.Barrier) -> list[int]:
        used = []
        async for frame in sub:
            await turn.wait()
            used.append(int(frame.array[0]))
            if len(used) == 2:
                break
        return used

    async def main() -> list[list[int]]:
        with rm.FramePublisher("s", 16, buffers=8) as pub, rm.FrameSubscriber("s") as sub:
            for value in range(4):
                pub.send(np.full(16, value, "u1"))
            turn = asyncio.Barrier(2)
            return await asyncio.wait_for(asyncio.gather(work(sub, turn), work(sub, turn)), PATIENCE_S)

    used = asyncio.run(main())
    assert sorted(used[0] + used[1]) == [0, 1, 2, 3]
