"""Thousands of times opened and closed, a process has the descriptors, mappings and memory it had before.

How: in a process of its own, after a warm-up, counts of /proc/self before and after each stretch of the rounds. Each
round makes and removes a topic, joins one that stays, borrows, reserves, reads its schema, looks at it from outside,
and fails in the usual ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise

from tests.conftest import Child

ROUNDS = int(os.environ.get("RINGMAIN_LEAK_ROUNDS", "2000"))
"""`make lab` does ten thousand."""

SCRIPT = """
from contextlib import suppress
def state():
    import gc; gc.collect()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return len(os.listdir("/proc/self/fd")), len(open("/proc/self/maps").readlines()), int(status["VmRSS"].split()[0])

def cycle(stays):
    with rm.Publisher("new", capacity=4096) as pub, rm.Subscriber("new", start="oldest") as sub:
        pub.send(b"x", kind="k")
        with pub.reserve(10) as room: room[:2] = b"ab"
        with suppress(ZeroDivisionError), pub.stream() as out: out.write(b"1"); 1 / 0
        sub.recv_message(timeout=1)
        with sub.borrow(timeout=1) as message: bytes(message.data)
        with suppress(rm.Timeout): sub.recv(timeout=0)
        len(sub.recv_batch()); rm.wait([sub], timeout=0)
    with rm.Subscriber("stays") as sub: sub.try_recv()
    with suppress(rm.TopicBusy): rm.Publisher("stays")
    with suppress(rm.TopicMismatch): rm.Publisher("stays", capacity=65536)
    with suppress(rm.TopicNotFound): rm.info("nowhere")
    with suppress(ValueError): rm.Subscriber("not/../good")
    rm.info("stays"); rm.topics()

rounds = int(sys.argv[1])
with rm.Publisher("stays", capacity=4096) as stays:
    for _ in range(rounds // 10): cycle(stays)
    say(*state())
    for _ in range(int(sys.argv[2])):
        for _ in range(rounds // int(sys.argv[2])): cycle(stays)
        say(*state())
"""
STRETCHES = 4
LEAK_BYTES = 128
"""What a round would leave behind at least, if it left anything."""


def test_opening_and_closing_leaves_nothing_behind(child: Callable[..., Child]) -> None:
    """An allocator takes what it likes once, and after other rounds in each Python; a leak grows in every stretch."""
    lines = child(SCRIPT, ROUNDS, STRETCHES).finish(timeout=240)
    states = [tuple(map(int, line.split())) for line in lines]
    (fds, maps, _), (fds_after, maps_after, _) = states[0], states[-1]
    assert fds_after == fds
    assert maps_after <= maps + 4  # the allocator's own
    grown_kib = [after[2] - before[2] for before, after in pairwise(states)]
    assert min(grown_kib) * 1024 < LEAK_BYTES * ROUNDS // STRETCHES, f"{grown_kib} KiB more, in {ROUNDS} rounds"
