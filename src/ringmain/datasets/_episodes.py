"""`Episodes`: the recipe of episodes, the spans of time that are trained on.

The invariant owned here: *an episode is made of its own messages alone*. Its cells do not use a message from before its
begin or from its end on, so two episodes that do not overlap share none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import pyarrow as pa

from ringmain.datasets._cells import TIME
from ringmain.errors import InvalidArgument

OnHole = Literal["refuse", "mark"]


HoleKind = Literal[
    "lost", "quarantined", "silent", "no message", "null cells", "no tick", "no begin", "no end", "deleted", "open"
]


class Hole(NamedTuple):
    """What an episode lacks."""

    kind: HoleKind
    text: str

    @property
    def leaves_nothing(self) -> bool:
        """Is there nothing that could be trained on?"""
        return self.kind in ("no tick", "no begin", "no end")


class Span(NamedTuple):
    """An episode before anyone has looked at its messages: [begin, end) in microseconds."""

    host: str
    begin_us: int
    end_us: int
    labels: Mapping[str, Any] = {}
    holes: tuple[Hole, ...] = ()
    """What is known to be missing without a look at its messages, as that its end was never recorded."""

    @property
    def id(self) -> str:
        return f"{self.host}@{self.begin_us}-{self.end_us}"

    @property
    def goes_on(self) -> bool:
        """While it is recorded: may its end still come?"""
        kinds = [hole.kind for hole in self.holes]
        return "open" in kinds or ("no end" in kinds and self.begin_us == self.end_us)


After: TypeAlias = Mapping[str, tuple[int, int]]
"""By host: begin and end of an episode that was given last."""
NOTHING: After = {}


@dataclass(frozen=True)
class Episodes:
    """Which spans are episodes. Say one of `start` with `end`, `length_s`, `incidents`, and `table`."""

    start: str = ""
    """A topic whose messages begin an episode; their fields are its labels."""
    end: str = ""
    """A topic: its next message ends the episode."""
    length_s: float | None = None
    """Spans of this length, at its multiples since 1970, as far as there are messages."""
    incidents: bool = False
    """What flight recorders have kept, of recordings."""
    table: Any = None
    """Rows of your own: `host`, `begin`, `end` (times, or microseconds since 1970); all other columns are labels."""
    silence_s: float | None = None
    """A topic that is silent for longer has a hole. Without it, a silence is one if it leaves a cell null."""
    on_hole: OnHole = "refuse"
    """An episode with a hole is refused or marked; its row in the table of episodes has the reason."""

    def __post_init__(self) -> None:
        ways = [bool(self.start or self.end), self.length_s is not None, self.incidents, self.table is not None]
        if sum(ways) != 1 or bool(self.start) != bool(self.end):
            raise InvalidArgument("say which spans are episodes by one of: start and end, length_s, incidents, table")
        if self.start and self.start == self.end:
            raise InvalidArgument(f"start and end are both {self.start!r}: one topic cannot be told apart from itself")
        for name in ("length_s", "silence_s"):
            value = getattr(self, name)
            if value is not None and not 1e-6 <= value < 1e9:
                raise InvalidArgument(f"{name}={value:g}: it must be more than 0 seconds")
        if self.on_hole not in ("refuse", "mark"):
            raise InvalidArgument(f"on_hole={self.on_hole!r}: choose 'refuse' or 'mark'")
        if self.table is not None:
            object.__setattr__(self, "table", _own_rows(self.table))

    def needs(self, topics: Iterable[str]) -> list[str]:
        """Which topics are read for episodes with cells of these."""
        return list(dict.fromkeys([*topics, *filter(None, (self.start, self.end))]))


def _own_rows(table: Any) -> tuple[Span, ...]:
    """The rows of a table of the user's: of Arrow, of pandas or polars, or a list of dicts."""
    rows = table
    if hasattr(table, "to_arrow"):
        rows = table.to_arrow()
    elif hasattr(table, "to_dict") and hasattr(table, "columns"):
        rows = pa.Table.from_pandas(table)
    rows = rows.to_pylist() if hasattr(rows, "to_pylist") else list(rows)
    found = []
    for row in rows:
        if isinstance(row, Span):
            found.append(row)
            continue
        missing = {"host", "begin", "end"} - row.keys()
        if missing:
            raise InvalidArgument(
                f"a table of episodes needs the columns host, begin, end: {sorted(missing)} are not there"
            )
        begin, end = (_micros(row[name]) for name in ("begin", "end"))
        if begin >= end:
            raise InvalidArgument(f"an episode of {row['host']} ends before it begins: {row['begin']} to {row['end']}")
        labels = {name: value for name, value in row.items() if name not in ("host", "begin", "end")}
        found.append(Span(row["host"], begin, end, labels))
    return tuple(found)


def _micros(moment: Any) -> int:
    return moment if isinstance(moment, int) else int(pa.scalar(moment, TIME).value)
