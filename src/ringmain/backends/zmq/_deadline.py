"""Waiting for ZeroMQ, on the real clock.

Owns this invariant: no wait is longer than a slice without a check whether the endpoint was closed, or a signal came.
"""

from __future__ import annotations

import time

SLICE_S = 0.04


class Deadline:
    """The end of a wait of so many nanoseconds; None: without a limit."""

    def __init__(self, timeout_ns: int | None) -> None:
        self._at = None if timeout_ns is None else time.monotonic_ns() + timeout_ns

    def left_s(self) -> float:
        return SLICE_S if self._at is None else max(0.0, (self._at - time.monotonic_ns()) / 1e9)


def poll_ms(left_s: float) -> int:
    """How long to poll now: a slice at most."""
    return max(1, int(min(left_s, SLICE_S) * 1000))
