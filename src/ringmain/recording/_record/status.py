"""The status of a recorder: plain values, taken at one moment."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ringmain._contracts import CONTRACTS
from ringmain.recording._format import FRAMES
from ringmain.recording._record.tap_set import Taps

State = Literal["ready", "recording", "sealing", "stopped", "failed"]
_WINDOW_S = 1.0


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """One topic, since the recorder started."""

    topic: str
    contract: str
    """Empty while the topic has not appeared."""
    observed: bool
    """Does the recorder only observe it, so that no writer waits?"""
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
    """Why it is not being recorded, if it is not."""


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
    uploads_waiting: int
    """Sealed and not yet at `sealed_uri`; they are in the directory, and readable there."""
    upload_problem: str
    """Why the last upload failed. It is tried again, and recording goes on."""
    damaged: list[int]
    """Segments of an earlier recorder that do not pass their checksums and were left for `Recording.repair()`."""
    disk_free_bytes: int | None
    error: str = ""
    incidents: int = 0
    """Kept so far, by this and earlier recorders."""
    incidents_open: int = 0
    """Of these, those whose window is not over."""
    trigger_problems: list[str] = field(default_factory=list)
    """Why expressions of triggers could not be applied to the last messages they were asked of."""


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


def topic_statuses(taps: Taps, meters: Mapping[str, Meter], observe: bool) -> list[TopicStatus]:
    """The status of every topic that is, was or should be recorded."""
    live = {tap.topic: tap for tap in taps.current()}
    problems = dict(taps.problems)
    found = []
    for topic in sorted({*live, *meters, *problems}):
        meter = meters.get(topic) or Meter()
        tap = live.get(topic)
        lag_messages, lag_bytes = tap.lag() if tap is not None else (0, 0)
        contract = next((life.contract for life in reversed((tap.lives if tap else {}).values())), "")
        rate_hz, bytes_per_s = meter.rates()
        found.append(
            TopicStatus(
                topic, contract, observe or _only_observed(contract), meter.messages,
                meter.bytes, meter.lost, rate_hz, bytes_per_s, lag_messages, lag_bytes, problems.get(topic, ""),
            )
        )  # fmt: skip
    return found


def free_bytes(path: Path) -> int | None:
    """Of the disk, for this user; None where the system does not tell."""
    try:
        room = os.statvfs(path)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize


def _only_observed(contract: str) -> bool:
    """Does no writer wait for a recorder there? On a frame topic, never; on a pipe it leaves the one reader alone."""
    traits = CONTRACTS.get(contract)
    return contract == FRAMES or (traits is not None and (traits.holds == "never" or traits.takes_away))
