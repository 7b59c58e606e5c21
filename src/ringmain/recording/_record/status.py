"""How a recorder is doing, for whoever watches: plain values, taken at one moment."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

State = Literal["ready", "recording", "sealing", "stopped", "failed"]
_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One topic, since the recorder started."""

    topic: str
    contract: str
    """Empty while the topic has not appeared."""
    observed: bool
    """Does it look on, so that no writer waits for it?"""
    messages: int
    bytes: int
    lost: int
    rate_hz: float
    """Messages a second, over the last second or two."""
    bytes_per_s: float
    lag_messages: int
    """Published and not yet taken."""
    lag_bytes: int
    problem: str = ""
    """Why it is not being recorded, if so."""


@dataclass(frozen=True, slots=True)
class RecorderStatus:
    """The recorder as a whole."""

    path: str
    state: State
    elapsed_s: float
    messages: int
    bytes: int
    """Payload and envelope, before compression."""
    lost: int
    rate_hz: float
    bytes_per_s: float
    topics: list[TopicStatus]
    position: str
    """The position after the last row flushed."""
    segments_waiting: int
    """Finished and not yet sealed."""
    damaged: list[int]
    """Segments of an earlier recorder that do not pass their checksums and were left for `Recording.repair()`."""
    disk_free_bytes: int | None
    error: str = ""


@dataclass(slots=True)
class Meter:
    """Counts, and rates over a window that moves once a second."""

    messages: int = 0
    bytes: int = 0
    lost: int = 0
    _mark: tuple[float, int, int] = field(default_factory=lambda: (time.monotonic(), 0, 0))
    _next_mark: tuple[float, int, int] = field(default_factory=lambda: (time.monotonic(), 0, 0))

    def add(self, messages: int, size: int, lost: int) -> None:
        self._move()
        self.messages += messages
        self.bytes += size
        self.lost += lost

    def rates(self) -> tuple[float, float]:
        """(messages, bytes) a second."""
        self._move()
        since_s, messages, size = self._mark
        took_s = max(time.monotonic() - since_s, 1e-3)
        return (self.messages - messages) / took_s, (self.bytes - size) / took_s

    def _move(self) -> None:
        now = time.monotonic()
        if now - self._next_mark[0] >= _WINDOW_S:
            self._mark, self._next_mark = self._next_mark, (now, self.messages, self.bytes)
