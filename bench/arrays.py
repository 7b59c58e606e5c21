"""A camera's frames: numpy arrays of 6 MB, from one process to another. Every writer fills the pixels, every reader
gets an array and reads all of it; the sums are compared."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

import ringmain as rm
from bench import pair
from bench.harness import Cell
from bench.peers import Peer, ring, standard
from bench.versus import in_directory

SHAPE = (1000, 2000, 3)
SIZE = 6_000_000


class Array(Peer):
    """Reads all of every array."""

    def consume(self, receive: pair.Receive, messages: list[Any], count: int) -> None:
        pair.consume_large(receive, messages, count)


class Frames(ring.Frames):
    def _publisher(self, lane: int) -> rm.FramePublisher:
        return rm.FramePublisher(f"frames/{lane}", SHAPE, "u1", buffers=self.AHEAD + 1, spin=self.SPIN_S)

    def _data(self, frame: Any) -> Any:
        return frame.array


class Typed(Array):
    """The array as a message: copied in and copied out."""

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        with rm.Publisher("array", contract="pipe", capacity=2 * SIZE, type=np.ndarray) as pub:
            yield pub.send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        with rm.Subscriber("array", type=np.ndarray) as sub:
            yield sub.recv


class Queue(Array, standard.Queue):
    pass


def _zmq(directory: str) -> Peer:
    """As pyzmq's documentation shows for arrays: sent without a copy, and an array made of the buffer that came. The
    shape is known here; there it is sent in a message of its own, so this favours pyzmq."""
    from bench.peers.zeromq import PushPull

    class Zmq(Array, PushPull):
        @contextmanager
        def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
            with super().receiver(lane, index) as receive:
                yield lambda: np.frombuffer(receive(), np.uint8).reshape(SHAPE)

    return Zmq(directory, SIZE)


def _iceoryx(directory: str) -> Peer:
    """A loaned sample that is filled in place, and an array over the one that came."""
    from bench.peers.iceoryx import Iceoryx

    class Loaned(Array, Iceoryx):
        @contextmanager
        def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
            with self.publisher(lane) as publisher:
                loan, content = publisher.loan_slice_uninit, ctypes.c_uint8 * SIZE

                def fill(array: Any) -> int:
                    sample = loan(SIZE)
                    target = np.frombuffer(memoryview(content.from_address(sample.payload_ptr)), np.uint8).reshape(
                        SHAPE
                    )
                    np.copyto(target, array)
                    delivered: int = sample.assume_init().send()
                    return delivered

                def send(array: Any) -> None:
                    while not fill(array):  # the queue was full
                        pass

                yield send

        @contextmanager
        def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
            with super().receiver(lane, index) as receive:
                yield lambda: np.frombuffer(receive(), np.uint8).reshape(SHAPE)

    return Loaned(directory, SIZE)


WAYS: dict[str, tuple[str, Callable[[str], Peer]]] = {
    "ringmain, frames": ("ringmain", lambda directory: Frames(directory, SIZE)),
    "ringmain": ("ringmain", lambda directory: Typed(directory, SIZE)),
    "multiprocessing.Queue": ("multiprocessing", lambda directory: Queue(directory, SIZE)),
    "pyzmq PUSH/PULL": ("zmq", _zmq),
    "iceoryx2": ("iceoryx2", _iceoryx),
}


def throughput(make: Callable[[str], Peer]) -> Callable[[float], float]:
    arrays: list[Any] = [np.frombuffer(data, np.uint8).reshape(SHAPE) for data in pair.pool(SIZE)]
    counts: list[int] = []

    def sample(budget_s: float) -> float:
        def once(count: int) -> float:
            return in_directory(lambda directory: pair.throughput(make(directory), arrays, count))

        if not counts:
            few = 2 * len(arrays)
            counts.append(max(few, int(once(few) * budget_s) // len(arrays) * len(arrays)))
        return once(counts[0])

    return sample


def array_cells() -> list[Cell]:
    return [
        Cell(f"numpy frame, 6 MB | {name}", "frames/s", throughput(make), True, False)
        for name, (package, make) in WAYS.items()
        if find_spec(package)
    ]
