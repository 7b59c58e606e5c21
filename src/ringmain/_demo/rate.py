"""Keeping time: a part's loop, so many times a second, until the process is told to end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


def told_to_end() -> threading.Event:
    """Is set by SIGTERM or Ctrl-C, instead of ending the process at once."""
    over = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return over


def ticks(rate_hz: float) -> Iterator[int]:
    """0, 1, 2, ... at a steady rate, until told to end. Being late once does not shift the rest."""
    over = told_to_end()
    start = time.monotonic()
    tick = 0
    while not over.wait(max(0.0, start + tick / rate_hz - time.monotonic())):
        yield tick
        tick += 1
