"""What both sides of a ZeroMQ topic share: deadlines on the real clock, and being made anew in another process."""

from __future__ import annotations

import time
from typing import Any

SLICE_S = 0.04
"""No wait is longer than this without a look whether the endpoint was closed, or a signal came."""


class Deadline:
    """When a wait of so many nanoseconds ends; None for never."""

    def __init__(self, timeout_ns: int | None) -> None:
        self._at = None if timeout_ns is None else time.monotonic_ns() + timeout_ns

    def left_s(self) -> float:
        return SLICE_S if self._at is None else max(0.0, (self._at - time.monotonic_ns()) / 1e9)


def poll_ms(left_s: float) -> int:
    """How long to poll now: a slice at most."""
    return max(1, int(min(left_s, SLICE_S) * 1000))


def rebuild(cls: Any, topic: str, options: dict[str, Any]) -> Any:
    """What unpickling calls."""
    return cls(topic, **options)
