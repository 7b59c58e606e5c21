"""The state of the live view: rates, slow readers, waiting writers. It has no terminal, no clock and no topics: it is
given observations, so tests use made-up topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from ringmain._cli.observe import Flow, Reading, flow
from ringmain._cli.topic_summary import used_share
from ringmain._inspect import Participant, TopicInfo
from ringmain._service import ServiceInfo
from ringmain.frames import FrameTopic

HISTORY = 30
Sort = Literal["name", "rate", "bandwidth", "full", "lost", "behind"]
SORTS: tuple[Sort, ...] = get_args(Sort)


class Seen(NamedTuple):
    """One observation of a topic."""

    info: TopicInfo
    reading: Reading
    frames: FrameTopic | None = None
    """If it is a frame topic."""
    service: ServiceInfo | None = None
    """If it is the topic of a service's requests."""


@dataclass(frozen=True)
class Row:
    """A row of the table: one topic at one moment."""

    info: TopicInfo
    frames: FrameTopic | None
    rate_hz: float
    bytes_per_s: float
    lost_per_s: float
    rates: tuple[float, ...]
    """The last rates, oldest first."""
    waits: tuple[tuple[str, str], ...]
    """(writer, the reader it waits for)."""
    service: ServiceInfo | None = None

    @property
    def full(self) -> float:
        return used_share(self.info, self.frames)

    @property
    def lost(self) -> int:
        return sum(reader.lost for reader in self.info.readers)

    @property
    def slowest(self) -> Participant | None:
        """The live reader that is furthest behind."""
        alive = [reader for reader in self.info.readers if reader.alive]
        return max(alive, key=lambda reader: reader.lag_messages, default=None)

    @property
    def behind(self) -> int:
        """On `work`, how many messages wait for a worker."""
        if self.info.waiting is not None:
            return self.info.waiting
        return self.slowest.lag_messages if self.slowest else 0

    @property
    def delay_s(self) -> float | None:
        """The age of the next message of the slowest reader, estimated from the rate. None if nothing is sent."""
        return self.behind / self.rate_hz if self.rate_hz > 0 and self.slowest else None

    @property
    def dead(self) -> int:
        return sum(not each.alive for each in (*self.info.writers, *self.info.readers))


_LARGEST_FIRST: dict[Sort, Callable[[Row], float]] = {
    "name": lambda row: 0,
    "rate": lambda row: row.rate_hz,
    "bandwidth": lambda row: row.bytes_per_s,
    "full": lambda row: row.full,
    "lost": lambda row: row.lost,
    "behind": lambda row: row.behind,
}
"""Rows with the same value are sorted by name."""


@dataclass
class _Memory:
    """What is kept of a topic between observations."""

    reading: Reading | None = None
    lost: int = 0
    waits: tuple[tuple[str, str], ...] = ()
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


class Model:
    """Takes observations, gives rows. Removed topics are forgotten, so it does not grow."""

    def __init__(self) -> None:
        self._memories: dict[str, _Memory] = {}
        self._rows: list[Row] = []
        self.sort: Sort = "name"
        self.filter = ""
        self.paused = False

    def look(self, seen: Sequence[Seen]) -> None:
        """Takes one observation of all topics."""
        if self.paused:
            return
        self._memories = {each.info.name: self._memories.get(each.info.name, _Memory()) for each in seen}
        self._rows = [self._row(each, self._memories[each.info.name]) for each in seen]

    def _row(self, seen: Seen, memory: _Memory) -> Row:
        info, reading, frames, service = seen
        passed = flow(memory.reading, reading) or Flow(1.0, 0, 0.0)
        lost = sum(reader.lost for reader in info.readers)
        new_loss = max(0, lost - memory.lost) if memory.reading else 0
        if memory.reading is not None:
            memory.rates.append(passed.rate_hz)
        waits = tuple((w.name, w.waits_for) for w in info.writers if w.alive and w.waits_for)
        if not waits and passed.messages == 0 and any(writer.alive for writer in info.writers):
            waits = memory.waits  # a waiting writer wakes up now and then; without a new message it still waits
        memory.reading, memory.lost, memory.waits = reading, lost, waits
        return Row(
            info,
            frames,
            passed.rate_hz,
            passed.bytes_per_s,
            new_loss / passed.seconds,
            tuple(memory.rates),
            waits,
            service,
        )

    def rows(self) -> list[Row]:
        """The rows to show, filtered and sorted."""
        wanted = [row for row in self._rows if self.filter.lower() in row.info.name.lower()]
        return sorted(wanted, key=lambda row: (-_LARGEST_FIRST[self.sort](row), row.info.name))

    def next_sort(self) -> Sort:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        return self.sort

    def row(self, topic: str) -> Row | None:
        return next((row for row in self._rows if row.info.name == topic), None)
