"""Work that several processes share: each message goes to one of three workers, from one sender or from three.

The rate is that of messages done, from the first send to the last receipt. Before the first timed run of a cell, one
short run in which every worker keeps what it got, and all of it together is compared with what was sent. A queue whose
messages come in order ends with one empty message a worker; where a worker may get several of these, or none (batches,
ZeroMQ), it ends when all workers together have all, which it looks at whenever nothing has come for a moment.

The hand-over: tasks of one millisecond, and the time from the end of one to the beginning of the worker's next.
"""

from __future__ import annotations

import mmap
import multiprocessing
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import repeat
from typing import Any

import ringmain as rm
from bench import pair
from bench.harness import Cell
from bench.versus import in_directory

WORKERS = 3
SIZE = 32
BATCH = 64
IDLE_S = 0.05
TASK_NS = 1_000_000
STOP = b""


class Sharing:
    """What an adapter must have. Made before the processes part."""

    name = ""
    in_order = True
    """A worker that gets an empty message is done."""
    many = False
    """`receive` gives a list, which is empty if nothing came for a moment."""

    def __init__(self, directory: str, senders: int) -> None:
        self.directory, self.senders = directory, senders

    def sender(self, index: int) -> AbstractContextManager[Callable[[list[bytes]], Any]]:
        """What sends a list of messages."""
        raise NotImplementedError

    def worker(self, index: int) -> AbstractContextManager[Callable[[], Any]]:
        raise NotImplementedError

    def flush(self) -> None:
        """Of a sender that sends no more: returns when all that it sent is in the queue."""


def _one_by_one(send: Callable[[bytes], Any]) -> Callable[[list[bytes]], None]:
    def send_all(messages: list[bytes]) -> None:
        for message in messages:
            send(message)

    return send_all


class Ring(Sharing):
    name = "ringmain"

    @contextmanager
    def sender(self, index: int) -> Iterator[Callable[[list[bytes]], Any]]:
        with rm.Publisher("work", contract="work") as pub:
            yield pub.send_many if self.many else _one_by_one(pub.send)

    @contextmanager
    def worker(self, index: int) -> Iterator[Callable[[], Any]]:
        with rm.Subscriber("work") as sub:
            while not sub.attached:
                rm.wait([sub], timeout=0.01)
            recv_many = sub.recv_many
            yield (lambda: recv_many(BATCH, IDLE_S)) if self.many else sub.recv


class RingBatch(Ring):
    name = "ringmain, batch"
    in_order, many = False, True


class Queue(Sharing):
    name = "multiprocessing.Queue"

    def __init__(self, directory: str, senders: int) -> None:
        super().__init__(directory, senders)
        self._queue: Any = multiprocessing.get_context("fork").Queue(4096)

    @contextmanager
    def sender(self, index: int) -> Iterator[Callable[[list[bytes]], Any]]:
        yield _one_by_one(self._queue.put)

    @contextmanager
    def worker(self, index: int) -> Iterator[Callable[[], Any]]:
        yield self._queue.get

    def flush(self) -> None:
        """`put` leaves a message to a thread of its process."""
        self._queue.close()
        self._queue.join_thread()


class Fifo(Sharing):
    name = "faster-fifo"

    def __init__(self, directory: str, senders: int) -> None:
        import faster_fifo

        super().__init__(directory, senders)
        self._queue: Any = faster_fifo.Queue(1 << 20, loads=bytes, dumps=bytes)
        self._empty = faster_fifo.Empty

    @contextmanager
    def sender(self, index: int) -> Iterator[Callable[[list[bytes]], Any]]:
        put, put_many = self._queue.put, self._queue.put_many
        if self.many:
            yield lambda messages: put_many(messages, timeout=pair.PATIENCE_S)
        else:
            yield _one_by_one(lambda message: put(message, timeout=pair.PATIENCE_S))

    @contextmanager
    def worker(self, index: int) -> Iterator[Callable[[], Any]]:
        get, get_many = self._queue.get, self._queue.get_many

        def receive_many() -> Any:
            try:
                return get_many(timeout=IDLE_S, max_messages_to_get=BATCH)
            except self._empty:
                return []

        yield receive_many if self.many else lambda: get(timeout=pair.PATIENCE_S)


class FifoBatch(Fifo):
    name = "faster-fifo, batch"
    in_order, many = False, True


class PushPull(Sharing):
    """Each sender is connected to each worker, and hands out in turn. A worker may have a message in each hand when it
    could stop, so it stops when all are done."""

    name = "pyzmq PUSH/PULL"
    in_order = False

    @contextmanager
    def sender(self, index: int) -> Iterator[Callable[[list[bytes]], Any]]:
        import zmq

        with zmq.Context() as context, context.socket(zmq.PUSH) as one:
            for worker in range(WORKERS):
                one.connect(f"ipc://{self.directory}/{worker}")
            for _ in range(WORKERS):  # in turn, so one to each: then all are connected
                one.send(STOP)
            yield _one_by_one(one.send)

    @contextmanager
    def worker(self, index: int) -> Iterator[Callable[[], Any]]:
        import zmq

        with zmq.Context() as context, context.socket(zmq.PULL) as one:
            one.bind(f"ipc://{self.directory}/{index}")
            for _ in range(self.senders):
                one.recv()
            one.setsockopt(zmq.RCVTIMEO, int(IDLE_S * 1000))
            receive, again = one.recv, zmq.Again

            def receive_or_none() -> Any:
                try:
                    return receive()
                except again:
                    return STOP

            yield receive_or_none


class Done:
    """How many messages each worker has done, for those that end when all are."""

    def __init__(self) -> None:
        self._counts = memoryview(mmap.mmap(-1, 8 * WORKERS)).cast("q")

    def all_are(self, index: int, mine: int, total: int) -> bool:
        self._counts[index] = mine
        return sum(self._counts) >= total


def _consume(
    adapter: Sharing, receive: Callable[[], Any], keep: list[bytes] | None, ended: Callable[[int], bool]
) -> float:
    """Until all is done; returns when the last message came."""
    if adapter.many:
        count, last_s = 0, time.perf_counter()
        while True:
            batch = receive()
            if batch:
                count, last_s = count + len(batch), time.perf_counter()
                if keep is not None:
                    keep += batch
            elif ended(count):
                return last_s
    if adapter.in_order:
        if keep is not None:
            keep.extend(iter(receive, STOP))
        else:
            for _ in iter(receive, STOP):
                pass
        return time.perf_counter()
    count, last_s, clock = 0, time.perf_counter(), time.perf_counter
    while True:
        for message in iter(receive, STOP):
            count, last_s = count + 1, clock()
            if keep is not None:
                keep.append(message)
        if ended(count):
            return last_s


def share(adapter: Sharing, messages: list[bytes], rounds: int, whole: bool) -> float:
    """Each sender sends all messages so often."""
    total = rounds * len(messages) * adapter.senders
    done, last_sender = Done(), multiprocessing.get_context("fork").Barrier(adapter.senders)

    def sending(index: int) -> pair.Job:
        def job(ready: pair.Ready) -> float:
            with adapter.sender(index) as send:
                ready()
                start = time.perf_counter()
                for _ in repeat(None, rounds):
                    send(messages)
                if index != 0:
                    adapter.flush()
                last_sender.wait(pair.PATIENCE_S)
                if index == 0 and adapter.in_order:
                    send([STOP] * WORKERS)
                ready()
                return start

        return job

    def working(index: int) -> pair.Job:
        def job(ready: pair.Ready) -> tuple[float, list[bytes]]:
            keep: list[bytes] = []
            with adapter.worker(index) as receive:
                ready()
                end = _consume(adapter, receive, keep if whole else None, lambda n: done.all_are(index, n, total))
                ready()
                return end, keep

        return job

    jobs = [*(sending(i) for i in range(adapter.senders)), *(working(i) for i in range(WORKERS))]
    found = pair.run_all(jobs)
    starts, ends = found[: adapter.senders], found[adapter.senders :]
    if whole and Counter(m for _, kept in ends for m in kept) != Counter(messages * (rounds * adapter.senders)):
        raise pair.Wrong("what the workers did is not what was sent")
    return float(total / (max(end for end, _ in ends) - min(starts)))


def hand_over_us(adapter: Sharing, tasks: int) -> float:
    """The median time from the end of a task to the beginning of the worker's next."""

    def sending(ready: pair.Ready) -> None:
        with adapter.sender(0) as send:
            ready()
            for _ in repeat(None, tasks):
                send([bytes(SIZE)])
            send([STOP] * WORKERS)
            ready()

    def working(index: int) -> pair.Job:
        def job(ready: pair.Ready) -> list[int]:
            clock, gaps = time.perf_counter_ns, []
            with adapter.worker(index) as receive:
                ready()
                receive()
                while True:
                    until = clock() + TASK_NS
                    while (now := clock()) < until:
                        pass
                    if not receive():
                        break
                    gaps.append(clock() - now)
                ready()
            return gaps

        return job

    _, *all_gaps = pair.run_all([sending, *(working(i) for i in range(WORKERS))])
    return statistics.median([gap for gaps in all_gaps for gap in gaps]) / 1e3


def sample_of(kind: type[Sharing], senders: int) -> Callable[[float], float]:
    messages = [b"%d" % number + bytes(SIZE - len(b"%d" % number)) for number in range(BATCH)]
    rounds: list[int] = []

    def once(count: int, whole: bool = False) -> float:
        return in_directory(lambda directory: share(kind(directory, senders), messages, count, whole))

    def sample(budget_s: float) -> float:
        if not rounds:
            once(24, whole=True)
            rounds.append(max(24, int(once(200) * budget_s / BATCH / senders)))
        return once(rounds[0])

    return sample


def hand_over_of(kind: type[Sharing]) -> Callable[[float], float]:
    return lambda budget_s: in_directory(
        lambda directory: hand_over_us(kind(directory, 1), max(60, int(budget_s * 1e9 / TASK_NS) * WORKERS))
    )


KINDS: tuple[type[Sharing], ...] = (Ring, RingBatch, Queue, Fifo, FifoBatch, PushPull)


def work_cells(absent: Sequence[str]) -> list[Cell]:
    """`absent`: packages that are not here."""
    kinds = [kind for kind in KINDS if not any(package in kind.name for package in absent)]
    made = []
    for senders in (1, 3):
        for kind in kinds:
            name = f"work {senders} → {WORKERS}, {SIZE} B | {kind.name}"
            made.append(Cell(name, "messages/s", sample_of(kind, senders), True, False, processes=senders + WORKERS))
    for kind in kinds:
        if kind.in_order:
            name = f"work, hand-over of 1 ms tasks | {kind.name}"
            made.append(Cell(name, "µs", hand_over_of(kind), True, processes=1 + WORKERS))
    return made
