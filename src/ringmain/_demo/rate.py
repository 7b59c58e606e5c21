"""The loop of a part: at a fixed rate, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator


def told_to_end() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set, instead of ending the process at once."""
    over = threading.Event()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: over.set())
    return over


def ticks(rate_hz: float) -> Iterator[int]:
    """0, 1, 2, ... at a fixed rate, until the process is to end. One late tick does not delay the others."""
    over = told_to_end()
    start = time.monotonic()
    tick = 0
    while not over.wait(max(0.0, start + tick / rate_hz - time.monotonic())):
        yield tick
        tick += 1
