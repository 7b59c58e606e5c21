"""The measurements of `ringmain bench`: send and receive in one process, throughput and round trips between two."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from typing import TypedDict

import ringmain as rm

SIZES = (32, 1024, 65536, 1 << 20)
CAPACITY = 16 << 20
PATIENCE_S = 30.0
STEP = 61
"""All messages of a flood are counted, and every 61st is compared."""
PEER = """
import sys, ringmain as rm
from ringmain._cli.benchmark import STEP, payload_of
expected, arrived = payload_of(int(sys.argv[1])), 0
with rm.Subscriber("bench/there", name="bench peer") as there, rm.Publisher("bench/back", contract="reliable") as back:
    print("in", flush=True)
    for message in iter(lambda: there.recv_message(timeout=30), None):
        if message.kind == "end":
            break
        if message.kind == "flood":
            arrived += 1
            if arrived % STEP == 0 and message.data != expected:
                arrived = -1 << 62
        else:
            back.send(b"%d" % (arrived if message.kind == "last" else len(message.data)), timeout=30)
"""


def payload_of(size: int) -> bytes:
    """The payload: not all zeros, and the same on both sides."""
    return (bytes(range(256)) * (size // 256 + 1))[:size]


class Cell(TypedDict):
    """The results for one message size."""

    size_bytes: int
    send_recv_ns: float
    messages_per_s: float
    round_trip_p50_ns: float
    round_trip_p99_ns: float


def measure(seconds: float) -> list[Cell]:
    """All sizes, on topics in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="ringmain-bench-", dir="/dev/shm") as directory:
        os.environ["RINGMAIN_DIR"] = directory  # for the peer process, too; the command ends after this
        return [_cell(size, seconds) for size in SIZES]


def _cell(size: int, seconds: float) -> Cell:
    payload = payload_of(size)
    alone = _alone(payload, seconds)
    with (
        rm.Publisher("bench/there", contract="reliable", capacity=CAPACITY) as there,
        subprocess.Popen([sys.executable, "-c", PEER, str(size)], stdout=subprocess.PIPE) as peer,
        rm.Subscriber("bench/back", start="oldest") as back,
    ):
        try:
            assert peer.stdout is not None
            peer.stdout.readline()
            there.wait_for_readers(1, PATIENCE_S)
            trips = _round_trips(there, back, payload, seconds)
            rate = _flood(there, back, payload, seconds)
            there.send(b"", "end", PATIENCE_S)
            peer.wait(PATIENCE_S)
        finally:
            peer.kill()  # no effect once it has ended
    return {
        "size_bytes": size,
        "send_recv_ns": alone,
        "messages_per_s": rate,
        "round_trip_p50_ns": trips[len(trips) // 2],
        "round_trip_p99_ns": trips[len(trips) * 99 // 100],
    }


def _alone(payload: bytes, seconds: float) -> float:
    """Nanoseconds for a send and a receive in one process: the best of many batches, as load only makes it slower."""
    best = float("inf")
    with rm.Publisher("bench/alone", capacity=CAPACITY) as pub, rm.Subscriber("bench/alone") as sub:
        send, recv = pub.send, sub.recv
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            start = time.perf_counter_ns()
            for _ in range(100):
                send(payload)
                recv()
            best = min(best, (time.perf_counter_ns() - start) / 100)
            send(payload)
            _check(recv() == payload)
    return best


def _check(right: bool) -> None:
    """Results count only if the messages arrived unchanged."""
    if not right:
        raise rm.RingmainError("bench: a message that arrived differs from the one that was sent")


def _round_trips(there: rm.Publisher, back: rm.Subscriber, payload: bytes, seconds: float) -> list[int]:
    trips: list[int] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end or not trips:
        start = time.perf_counter_ns()
        there.send(payload, "ping", PATIENCE_S)
        answer = back.recv(PATIENCE_S)
        trips.append(time.perf_counter_ns() - start)
        _check(int(answer) == len(payload))
    return sorted(trips)


def _flood(there: rm.Publisher, back: rm.Subscriber, payload: bytes, seconds: float) -> float:
    """Messages a second, until the last of them has been received."""
    sent = 0
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        for _ in range(32):
            there.send(payload, "flood", PATIENCE_S)
        sent += 32
    there.send(b"", "last", PATIENCE_S)
    arrived = int(back.recv(PATIENCE_S))
    took_s = time.monotonic() - start
    _check(arrived == sent)
    return sent / took_s
