"""What windows are made of: episodes, and the cells of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa

from ringmain.datasets._episodes import NOTHING, After, Episodes, Span
from ringmain.datasets._grid import Grid
from ringmain.datasets._gridded import one_episode
from ringmain.datasets._holes import Verdict
from ringmain.datasets._open import Data, open_source
from ringmain.datasets._recipe import recipe
from ringmain.datasets._sources import OfRecordings, Source
from ringmain.datasets._spans import spans_of
from ringmain.errors import InvalidArgument


class Feed(Protocol):
    """Episodes, one by one."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Those that have cells."""

    @property
    def hz(self) -> float:
        """How many ticks a second has."""

    def spans(self, after: After = NOTHING) -> list[Span]:
        """All of them, in order; of each host those after one."""

    def is_whole(self, span: Span, settle_us: int) -> bool:
        """Is all of it there, as far as the times of messages can tell? A topic without one after its end is not waited
        for when another one is so much further."""

    def newest(self) -> Any:
        """Different when there may be new episodes."""

    def load(self, span: Span) -> tuple[Verdict, pa.Table | None]:
        """What is known of one, and its cells if it is not refused."""

    def state(self) -> Any:
        """What says that the same cells come again, if it is the same."""


@dataclass
class Gridded:
    """Of recordings and lakes: each episode is put on the grid when it is asked for."""

    source: Source
    grid: Grid
    episodes: Episodes

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(self.grid.topics)

    @property
    def hz(self) -> float:
        return self.grid.hz

    def spans(self, after: After = NOTHING) -> list[Span]:
        found: list[Span] = []
        for host in self.source.hosts():
            last = after.get(host, (0, 0))
            of_host = spans_of(self.episodes, self.source, host, self.topics, last[1])
            found += [span for span in of_host if (span.begin_us, span.end_us) > last]
        return found

    def is_whole(self, span: Span, settle_us: int) -> bool:
        if span.goes_on or self.episodes.incidents:
            return not span.goes_on
        ends = [end for _, end in self.source.reach(span.host, self.topics).values()]
        passed = sum(end > span.end_us for end in ends)
        return passed == len(self.topics) or max(ends, default=0) > span.end_us + settle_us

    def newest(self) -> Any:
        return self.source.newest()

    def load(self, span: Span) -> tuple[Verdict, pa.Table | None]:
        return one_episode(self.source, self.grid, self.episodes, span)

    def state(self) -> Any:
        own = [msgspec.to_builtins(span) for span in self.episodes.table or ()]
        made_of = self.source.state(self.episodes.needs(self.topics))
        return [recipe(self.grid, self.episodes), msgspec.json.encode(own, enc_hook=str).decode(), made_of]


def open_feed(source: Data, table: str | None, grid: Grid | None, episodes: Episodes | None) -> Feed:
    """Raises InvalidArgument if the recipe is missing, or there is one too many."""
    if table is not None:
        opened = open_source(source)
        if grid is not None or episodes is not None or isinstance(opened, OfRecordings):
            raise InvalidArgument(f"table={table!r}: a table of a lake, whose grid and episodes are its own")
        from ringmain.datasets._of_lake import OfLake
        from ringmain.datasets._table import Table

        assert isinstance(opened, OfLake)
        return Table.open(opened.lake, table)
    if grid is None or episodes is None:
        raise InvalidArgument(
            "windows of a recording or a lake need a grid and episodes: Windows(source, grid=Grid(...), "
            "episodes=Episodes(length_s=60), length=16)"
        )
    return Gridded(open_source(source).pinned(episodes.needs(grid.topics)), grid, episodes)
