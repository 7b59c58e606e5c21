"""What the live view knows: rates between looks, who is slow, and who waits for whom. No terminal, no clock, no topics:
it is told what was seen and when, and so is tested with made-up topics.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ringmain._cli.observe import Flow, Reading, flow
from ringmain._cli.topic_summary import used_share
from ringmain._inspect import Participant, TopicInfo
from ringmain.frames import FrameStream

HISTORY = 30
Sort = Literal["name", "rate", "bandwidth", "full", "lost", "behind"]
SORTS: tuple[Sort, ...] = ("name", "rate", "bandwidth", "full", "lost", "behind")


class Seen(NamedTuple):
    """One topic, as one look found it."""

    info: TopicInfo
    reading: Reading
    stream: FrameStream | None = None
    """If it is a stream of frames."""


@dataclass(frozen=True)
class Row:
    """One topic, at one moment."""

    info: TopicInfo
    stream: FrameStream | None
    rate_hz: float
    bytes_per_s: float
    lost_per_s: float
    rates: tuple[float, ...]
    """The last rates, oldest first."""
    waits: tuple[tuple[str, str], ...]
    """(writer, whom it waits for)."""

    @property
    def full(self) -> float:
        return used_share(self.info, self.stream)

    @property
    def lost(self) -> int:
        return sum(reader.lost for reader in self.info.readers)

    @property
    def slowest(self) -> Participant | None:
        """The living reader that is furthest behind."""
        alive = [reader for reader in self.info.readers if reader.alive]
        return max(alive, key=lambda reader: reader.lag_messages, default=None)

    @property
    def behind(self) -> int:
        return self.slowest.lag_messages if self.slowest else 0

    @property
    def delay_s(self) -> float | None:
        """How old what the slowest reader reads next is, at the present rate; None if nothing moves."""
        return self.behind / self.rate_hz if self.rate_hz > 0 and self.slowest else None

    @property
    def dead(self) -> int:
        return sum(not member.alive for member in (*self.info.writers, *self.info.readers))


_KEYS: dict[Sort, Callable[[Row], tuple[float, str]]] = {
    "name": lambda row: (0, row.info.name),
    "rate": lambda row: (-row.rate_hz, row.info.name),
    "bandwidth": lambda row: (-row.bytes_per_s, row.info.name),
    "full": lambda row: (-row.full, row.info.name),
    "lost": lambda row: (-row.lost, row.info.name),
    "behind": lambda row: (-row.behind, row.info.name),
}


@dataclass
class _Memory:
    """What is kept of a topic from look to look."""

    reading: Reading | None = None
    lost: int = 0
    waits: tuple[tuple[str, str], ...] = ()
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


class Model:
    """Told what is seen, says what to show. Nothing grows: topics that are gone are forgotten."""

    def __init__(self) -> None:
        self._memories: dict[str, _Memory] = {}
        self._rows: list[Row] = []
        self.sort: Sort = "name"
        self.filter = ""
        self.paused = False

    def look(self, seen: Sequence[Seen]) -> None:
        """Takes in one look at all topics."""
        if self.paused:
            return
        self._memories = {each.info.name: self._memories.get(each.info.name, _Memory()) for each in seen}
        self._rows = [self._row(each, self._memories[each.info.name]) for each in seen]

    def _row(self, seen: Seen, memory: _Memory) -> Row:
        info, reading, stream = seen
        passed = flow(memory.reading, reading) or Flow(1.0, 0, 0.0)
        lost = sum(reader.lost for reader in info.readers)
        new_loss = max(0, lost - memory.lost) if memory.reading else 0
        if memory.reading is not None:
            memory.rates.append(passed.rate_hz)
        waits = tuple((w.name, w.waits_for) for w in info.writers if w.alive and w.waits_for)
        if not waits and passed.messages == 0 and any(writer.alive for writer in info.writers):
            waits = memory.waits  # one that waits looks up now and then: it has not gone on just because of that
        memory.reading, memory.lost, memory.waits = reading, lost, waits
        return Row(
            info, stream, passed.rate_hz, passed.bytes_per_s, new_loss / passed.seconds, tuple(memory.rates), waits
        )

    def rows(self) -> list[Row]:
        """What to show: filtered, and in order."""
        wanted = [row for row in self._rows if self.filter.lower() in row.info.name.lower()]
        return sorted(wanted, key=_KEYS[self.sort])

    def next_sort(self) -> Sort:
        self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        return self.sort

    def row(self, topic: str) -> Row | None:
        return next((row for row in self._rows if row.info.name == topic), None)
