"""The episodes of a table `train/NAME`, which `build` has made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.datasets._build import EPISODES_TABLE
from ringmain.datasets._cells import TIME
from ringmain.datasets._episodes import NOTHING, After, Span
from ringmain.datasets._gridded import EPISODE, STEP
from ringmain.datasets._holes import Verdict, verdict_of
from ringmain.datasets._recipe import RECIPE
from ringmain.lake import Lake
from ringmain.lake._column_types import without_views


@dataclass
class Table:
    """Of a table `train/NAME` of a lake, as it is when it is opened."""

    lake: Lake
    name: str
    version: int
    episodes_version: int
    topics: tuple[str, ...]
    hz: float

    @classmethod
    def open(cls, lake: Lake, name: str) -> Table:
        table = lake.table(f"train/{name}")
        found: dict[str, Any] = msgspec.json.decode(table.metadata().configuration[RECIPE])
        episodes_version = lake.table(EPISODES_TABLE).version()
        return cls(lake, name, table.version(), episodes_version, tuple(found["topics"]), found["hz"])

    def _rows(self) -> list[dict[str, Any]]:
        rows = self.lake.dataset(EPISODES_TABLE, self.episodes_version).to_table(
            filter=pc.field("dataset") == self.name
        )
        found: list[dict[str, Any]] = rows.sort_by(
            [(name, "ascending") for name in ("host", "begin", "end")]
        ).to_pylist()
        return found

    @cached_property
    def _verdicts(self) -> dict[str, Verdict]:
        return {row["episode"]: verdict_of(row) for row in self._rows()}

    def spans(self, after: After = NOTHING) -> list[Span]:
        found = [Span(one.host, one.begin, one.end) for one in self._verdicts.values()]
        return [span for span in found if (span.begin_us, span.end_us) > after.get(span.host, (0, 0))]

    def is_whole(self, span: Span, settle_us: int) -> bool:
        return True

    def newest(self) -> Any:
        return self.state()

    def load(self, span: Span) -> tuple[Verdict, pa.Table | None]:
        if self._verdicts[span.id].refused:
            return self._verdicts[span.id], None
        at = pc.field("rm_time")
        since, until = (pa.scalar(edge, TIME) for edge in (span.begin_us, span.end_us))
        wanted = (pc.field("rm_host") == span.host) & (at >= since) & (at < until) & (pc.field(EPISODE) == span.id)
        rows = self.lake.dataset(f"train/{self.name}", self.version).to_table(filter=wanted).sort_by(STEP)
        return self._verdicts[span.id], rows.cast(pa.schema([f.with_type(without_views(f.type)) for f in rows.schema]))

    def state(self) -> Any:
        return [self.lake.uri, self.name, self.version]
