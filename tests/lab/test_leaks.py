"""Thousands of times opened and closed, a process has the descriptors, mappings and memory it had before.

How: in a process of its own, after a warm-up, counts of /proc/self before and after. Each round makes and removes a
topic, joins one that stays, borrows, reserves, reads its schema, looks at it from outside, and fails in the usual ways.
"""

from __future__ import annotations

import os
from collections.abc import Callable

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
    before = state()
    for _ in range(rounds): cycle(stays)
    say(*before, *state())
"""


def test_opening_and_closing_leaves_nothing_behind(child: Callable[..., Child]) -> None:
    *_, line = child(SCRIPT, ROUNDS).finish(timeout=240)
    fds, maps, kib, fds_after, maps_after, kib_after = map(int, line.split())
    assert fds_after == fds
    assert maps_after <= maps + 4  # the allocator's own
    assert kib_after - kib < 512, f"{kib_after - kib} KiB more after {ROUNDS} rounds"
