"""ringmain's baselines: what a call, a copy and a cache line cost on this machine."""

from __future__ import annotations

import ctypes
import mmap
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import repeat

import ringmain as rm
from bench import pair
from bench.floors import floor
from bench.harness import Cell, burst_ns
from bench.versus import SIZES
from ringmain import _native

SMALL = 32
MEGABYTE = 1 << 20
BURST = 1000


def empty_calls(budget_s: float) -> float:
    nothing = _native.nothing

    def run() -> None:
        for _ in repeat(None, BURST):
            nothing()
            nothing()

    return burst_ns(run, BURST, budget_s)


def send_and_recv(budget_s: float) -> float:
    """One message sent and received by one process, ns."""
    with rm.Publisher("one") as pub, rm.Subscriber("one") as sub:
        return one_by_one(pub.send, sub.recv, budget_s)


def batches(budget_s: float) -> float:
    with rm.Publisher("many") as pub, rm.Subscriber("many") as sub:
        return in_batches(pub.send_many, sub.recv_many, budget_s)


def one_by_one(send: Callable[[bytes], object], recv: Callable[[], object], budget_s: float) -> float:
    message = bytes(SMALL)

    def run() -> None:
        for _ in repeat(None, BURST):
            send(message)
            recv()

    found = burst_ns(run, BURST, budget_s)
    send(message)
    if recv() != message:
        raise pair.Wrong("what was received is not what was sent")
    return found


def in_batches(
    send_many: Callable[[list[bytes]], object], recv_many: Callable[[int], object], budget_s: float
) -> float:
    messages = pair.pool(SMALL)

    def run() -> None:
        for _ in repeat(None, 16):
            send_many(messages)
            recv_many(64)

    found = burst_ns(run, 16 * len(messages), budget_s)
    send_many(messages)
    if recv_many(64) != messages:
        raise pair.Wrong("what was received is not what was sent")
    return found


def large_copy(budget_s: float) -> float:
    """1 MB: `send` + `recv_into`, as a multiple of two memcpys between the same source, a shared mapping of the ring's
    size at the same offsets, and the same destination. Both alternate, since the cache is what decides."""
    capacity = 4 * MEGABYTE
    source, target = os.urandom(MEGABYTE), bytearray(MEGABYTE)
    memcpy = ctypes.CDLL(None).memcpy
    memcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    with (
        rm.Publisher("large", capacity=capacity) as pub,
        rm.Subscriber("large") as sub,
        mmap.mmap(-1, capacity) as ring,
    ):
        first = ctypes.c_char.from_buffer(ring)  # a mapping can only be closed when nothing points into it any more
        base = ctypes.addressof(first)
        taken = ctypes.c_char.from_buffer(target)
        target_at = ctypes.addressof(taken)
        source_at = ctypes.cast(ctypes.c_char_p(source), ctypes.c_void_p).value
        ratios: list[float] = []
        deadline, clock, index = time.perf_counter() + budget_s, time.perf_counter_ns, 0
        while len(ratios) < 50 or time.perf_counter() < deadline:
            spot = base + index % 4 * MEGABYTE
            index += 1
            start = clock()
            memcpy(spot, source_at, MEGABYTE)
            memcpy(target_at, spot, MEGABYTE)
            copied = clock()
            pub.send(source)
            sub.recv_into(target)
            ratios.append((clock() - copied) / (copied - start))
        if target != source:
            raise pair.Wrong("what was received is not what was sent")
        del taken, first
    return statistics.median(ratios)


SYSTEM_CALLS = """
import sys
import ringmain as rm
message = bytes(32)
with rm.Publisher("silent", contract="bus") as pub, rm.Subscriber("silent") as sub:
    for _ in range(int(sys.argv[1])):
        pub.send(message)
        sub.recv()
"""


def system_calls(budget_s: float) -> float:
    """How many more system calls a hundred thousand messages make than none, by strace."""
    counts = []
    for messages in (100, 100_100):
        log = os.path.join(os.environ["RINGMAIN_DIR"], "..", f"strace-{os.getpid()}")
        command = ["strace", "-f", "-c", "-o", log, sys.executable, "-c", SYSTEM_CALLS, str(messages)]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            with open(log) as file:
                total = [line.split() for line in file if line.rstrip().endswith(" total")]
            counts.append(int(total[0][3]))
        finally:
            if os.path.exists(log):
                os.unlink(log)
    return float(counts[1] - counts[0])


def memcpy_us(size: int) -> Callable[[float], float]:
    """A copy within the caches: the lower bound for passing on a large message with one copy."""

    def sample(budget_s: float) -> float:
        source, target = bytearray(os.urandom(size)), bytearray(size)
        taken = [ctypes.c_char.from_buffer(one) for one in (target, source)]
        to, at = map(ctypes.addressof, taken)
        memmove = ctypes.memmove
        repeats = max(1, (1 << 20) // size)

        def run() -> None:
            for _ in repeat(None, repeats):
                memmove(to, at, size)

        found = burst_ns(run, repeats, budget_s)
        if source != target:
            raise pair.Wrong("the copy is not equal")
        del taken
        return found / 1e3

    return sample


def ring_rate(budget_s: float) -> float:
    return floor("throughput", int(2_000_000 * budget_s), pair.cpus)


def ring_round_trip_us(budget_s: float) -> float:
    return floor("roundtrip", int(40_000 * budget_s), pair.cpus) / 1e3


def core_cells() -> list[Cell]:
    return [
        Cell("cache line round trip", "ns", lambda s: floor("cacheline", cpus=pair.cpus), True),
        *(Cell(f"memcpy {label}", "µs", memcpy_us(size)) for label, size in SIZES.items() if size >= 65536),
        Cell("two empty native calls", "ns", empty_calls),
        Cell("32 B send + recv", "ns", send_and_recv),
        Cell("32 B send_many + recv_many", "ns/message", batches),
        Cell("1 MB send + recv_into / two memcpys", "x", large_copy),
        Cell("system calls in 100k publishes", "calls", system_calls),
        Cell("C++ ring 32 B", "messages/s", ring_rate, True, False),
        Cell("C++ ring round trip, spinning", "µs", ring_round_trip_us, True),
    ]
