"""A message's time lies between the clock before its `send` and the clock after it.

How: the clock is read around every send, as fast as they go, with pauses, and while other threads interrupt them. The
publisher reads the processor's counter in between, so this finds a counter that was paired badly with the clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import ringmain as rm

RESOLUTION_NS = 100
"""What a reading of the clock takes: the counter is paired with the clock no better than this."""


def outside(pub: rm.Publisher, sub: rm.Subscriber, count: int, pause_s: float = 0.0) -> list[tuple[int, int]]:
    """How far times lie before the beginning and after the end of their sends, where they do."""
    found = []
    for _ in range(count):
        begin_ns = time.time_ns()
        pub.send(b"x")
        end_ns = time.time_ns()
        sent_ns = sub.recv_message(timeout=1).time_ns
        before_ns, after_ns = begin_ns - sent_ns, sent_ns - end_ns
        if max(before_ns, after_ns) > RESOLUTION_NS:
            found.append((before_ns, after_ns))
        if pause_s:
            time.sleep(pause_s)
    return found


@pytest.mark.parametrize(("count", "pause_s"), [(50_000, 0.0), (300, 0.0005), (50, 0.005)])
def test_it_lies_within_the_call(count: int, pause_s: float) -> None:
    with rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        assert outside(pub, sub, count, pause_s) == []


def test_also_while_the_thread_is_interrupted(in_thread: Callable[..., Callable[[], object]]) -> None:
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    computing = in_thread(compute)
    try:
        with rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
            assert outside(pub, sub, 2000) == []
    finally:
        over.set()
        computing()
