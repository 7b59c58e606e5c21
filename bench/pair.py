"""Processes that exchange messages and check them: the loops that every figure between processes comes from.

A pool of distinct messages is made before the fork, so all sides know what the n-th message must be. Up to 64 KB the
receiver counts all messages and compares a sample of them whole: one dropped, doubled or out of order shifts every one
that follows, and the next comparison finds it. From 1 MB on every byte of every message is read and its sum compared:
who takes such a message does something with it, and a receiver that only looks where it lies must pay for the look.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import repeat
from multiprocessing.connection import wait
from typing import Any

PATIENCE_S = 60.0
STEP = 61
"""One message in so many is compared. Prime, so that all of the pool are."""
LARGE_BYTES = 1 << 20

cpus: Sequence[int] = ()
"""Where the processes run, one on each; if there are fewer CPUs than processes, where the kernel puts them. Left to
itself the kernel often puts two that wake each other on one CPU, where a wake-up is several times cheaper, and moves
them from sample to sample."""

Send = Callable[[bytes], Any]
Receive = Callable[[], Any]
Ready = Callable[[], None]
Job = Callable[[Ready], Any]


class Wrong(Exception):
    """What arrived is not what was sent."""


def pool(size: int, seed: int = 0) -> list[bytes]:
    """Distinct messages; few where they are large, or the figure would be that of a cold cache."""
    generator = random.Random(size + seed)
    return [generator.randbytes(size) for _ in range(64 if size <= 1024 else 8 if size <= 65536 else 3)]


def total(data: Any) -> int:
    """The sum of all of a large message, as words."""
    import numpy as np  # here, since small messages are measured where there is none

    return int(np.frombuffer(data, np.uint64).sum())


def check(data: Any, messages: list[bytes], index: int) -> None:
    if memoryview(data).cast("B") != messages[index % len(messages)]:
        raise Wrong(f"message {index} is not what was sent")


def produce(send: Send, messages: list[bytes], count: int) -> None:
    """`count` is a multiple of the pool's length."""
    for _ in repeat(None, count // len(messages)):
        for message in messages:
            send(message)


def consume(receive: Receive, messages: list[bytes], count: int) -> None:
    if len(messages[0]) >= LARGE_BYTES:
        consume_large(receive, messages, count)
        return
    index = 0
    while index < count:
        few = min(STEP, count - index)
        for _ in repeat(None, few - 1):
            receive()
        index += few
        check(receive(), messages, index - 1)


def consume_large(receive: Receive, messages: list[bytes], count: int) -> None:
    totals = [total(message) for message in messages]
    for index in range(count):
        if total(receive()) != totals[index % len(totals)]:
            raise Wrong(f"message {index} is not what was sent")


def run_all(jobs: Sequence[Job]) -> list[Any]:
    """Each in a process of its own; each is given what to call when it is ready, which waits for the others."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(len(jobs))
    ends: list[Any] = []
    workers = []
    pins: Sequence[int | None] = cpus if len(cpus) >= len(jobs) else [None] * len(jobs)
    for number, job in enumerate(jobs):
        ours, theirs = context.Pipe(duplex=False)
        worker = context.Process(target=_work, args=(job, barrier, theirs, pins[number]), daemon=True)
        worker.start()
        theirs.close()
        ends.append(ours)
        workers.append(worker)
    found: dict[int, Any] = {}
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < len(jobs):
            waited_for = [end for index, end in enumerate(ends) if index not in found]
            there = wait(waited_for, max(0.0, deadline - time.monotonic()))
            if not there:
                raise TimeoutError(f"no result within {PATIENCE_S:.0f} s")
            for end in there:
                found[ends.index(end)] = _result(end)
        return [found[index] for index in range(len(jobs))]
    finally:
        for worker in workers:
            worker.join(1.0 if len(found) == len(jobs) else 0.0)
            if worker.is_alive():
                worker.kill()
                worker.join()


def _result(end: Any) -> Any:
    try:
        value, error = end.recv()
    except EOFError:
        raise Wrong("a process died without an error message") from None
    if error:
        raise Wrong(error)
    return value


def _work(job: Job, barrier: Any, end: Any, cpu: int | None) -> None:
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        result = job(lambda: barrier.wait(PATIENCE_S))
    except BaseException as error:
        end.send((None, f"{type(error).__name__}: {error}"))
    else:
        end.send((result, ""))
        # Some peers lose messages in transit when the sender leaves, so both leave together.
        barrier.wait(PATIENCE_S)


def throughput(peer: Any, messages: list[bytes], count: int) -> float:
    """Messages a second, from the first send to the last receipt."""

    def sending(ready: Ready) -> float:
        with peer.sender(0) as send:
            ready()
            start = time.perf_counter()
            peer.produce(send, messages, count)
            ready()  # the receiver has all
            return start

    def receiving(ready: Ready) -> float:
        with peer.receiver(0) as receive:
            ready()
            peer.consume(receive, messages, count)
            end = time.perf_counter()
            ready()
            return end

    start, end = run_all([sending, receiving])
    return count / float(end - start)


CENTILES = (50.0, 99.0, 99.9)


def round_trips(peer: Any, message: bytes, count: int) -> list[float]:
    """p50, p99 and p99.9 in microseconds."""
    seen: list[int] = [0] * count

    def near(ready: Ready) -> list[int]:
        with peer.sender(0) as send, peer.receiver(1) as receive:
            ready()
            clock = time.perf_counter_ns
            for index in range(count):
                start = clock()
                send(message)
                data = receive()
                seen[index] = clock() - start
                if index % STEP == 0:
                    check(data, [message], 0)
            ready()
            return seen

    def far(ready: Ready) -> None:
        with peer.receiver(0) as receive, peer.sender(1) as send:
            ready()
            for _ in repeat(None, count):
                send(receive())
            ready()

    times, _ = run_all([near, far])
    warm = statistics.quantiles(times[len(times) // 10 :], n=1000)
    return [warm[round(centile * 10) - 1] / 1e3 for centile in CENTILES]
