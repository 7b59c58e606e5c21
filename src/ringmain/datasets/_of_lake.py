"""The tables of a lake as a source of messages: silver has each message once, quarantine those that do not decode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from ringmain.datasets._cells import Messages
from ringmain.datasets._sources import LOOK_AHEAD_S, LOST, PUBLISH_NS, PUBLISH_TIME, RAW, RM_HOST, messages_of
from ringmain.errors import TopicNotFound
from ringmain.lake._column_types import without_views
from ringmain.lake._health import HEALTH, INCIDENTS
from ringmain.lake._incidents import incidents_of
from ringmain.lake._lake import Lake
from ringmain.lake._names import quarantine_table, silver_table
from ringmain.recording._format import is_ours
from ringmain.recording._upkeep.incidents import Incident

_TIME = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class OfLake:
    """Picklable: it travels to Spark's workers."""

    lake: Lake
    versions: Mapping[str, int] = field(default_factory=dict)
    """By table: which version is read; that of now for one that is not there."""

    def pinned(self, topics: Iterable[str]) -> OfLake:
        tables = [name for topic in topics for name in (silver_table(topic), quarantine_table(topic))]
        tables.append(INCIDENTS.name)
        found = {name: self.lake.snapshot(name) for name in tables}
        return replace(self, versions={name: table.version for name, table in found.items() if table is not None})

    def state(self, topics: Iterable[str]) -> Any:
        return [self.lake.uri, sorted(self.pinned(topics).versions.items())]

    def newest(self) -> Any:
        return sorted(self.versions.items())

    def hosts(self) -> list[str]:
        found = pc.unique(self.lake.to_arrow(HEALTH.name, columns=["host"]).column("host"))
        return sorted(found.to_pylist())

    def reach(self, host: str, topics: Iterable[str]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for topic in topics:
            for batch in self._dataset(topic).scanner([PUBLISH_TIME], filter=_of(host)).to_batches():
                if len(batch):
                    there = pc.min_max(batch.column(0).cast(pa.int64())).as_py()
                    known = found.get(topic, (there["min"], there["max"] + 1))
                    found[topic] = min(there["min"], known[0]), max(there["max"] + 1, known[1])
        return found

    def incidents(self, host: str) -> list[Incident]:
        return [one for where, one in self.all_incidents() if where == host]

    def all_incidents(self) -> list[tuple[str, Incident]]:
        """(host, incident)"""
        there = self._there(INCIDENTS.name)
        return incidents_of(self.lake, self.versions.get(INCIDENTS.name)) if there else []

    def type_of(self, topic: str) -> pa.DataType:
        fields = [f.with_type(without_views(f.type)) for f in self._dataset(topic).schema]
        return pa.struct([f for f in fields if not is_ours(f.name)]) if not _raw(fields) else RAW

    def messages(self, host: str, topic: str, span: tuple[int, int]) -> Messages:
        rows = self._rows(self._dataset(topic), host, span)
        quarantined = lost = 0
        if self._there(quarantine_table(topic)):
            bad = self._rows(self._open(quarantine_table(topic)), host, span, [LOST])
            quarantined, lost = len(bad), pc.sum(bad.column(LOST)).as_py() or 0
        return messages_of(rows, self.type_of(topic), quarantined, lost)

    def lost_before_next(self, host: str, topic: str, at_us: int) -> int:
        span = (at_us, at_us + LOOK_AHEAD_S * 1_000_000)
        tables = [silver_table(topic), quarantine_table(topic)]
        wanted = [PUBLISH_TIME, PUBLISH_NS, LOST]
        rows = pa.concat_tables(
            self._rows(self._open(name), host, span, wanted) for name in tables if self._there(name)
        ).sort_by([(PUBLISH_TIME, "ascending"), (PUBLISH_NS, "ascending")])
        return int(rows.column(LOST)[0].as_py()) if len(rows) else 0

    def _rows(self, table: Any, host: str, span: tuple[int, int], columns: list[str] | None = None) -> pa.Table:
        at = ds.field(PUBLISH_TIME)
        since, until = (pa.scalar(edge, _TIME) for edge in span)
        rows = table.to_table(columns, filter=_of(host) & (at >= since) & (at < until))
        return rows.cast(pa.schema([f.with_type(without_views(f.type)) for f in rows.schema]))

    def _there(self, name: str) -> bool:
        return name in self.versions if self.versions else self.lake.snapshot(name) is not None

    def _dataset(self, topic: str) -> Any:
        if not self._there(silver_table(topic)):
            there = [name for name in self.lake.tables() if name.startswith("silver/")]
            raise TopicNotFound(f"{self.lake.uri} has no topic {topic!r}; it has {', '.join(there)}", topic=topic)
        return self._open(silver_table(topic))

    def _open(self, name: str) -> Any:
        return self.lake.dataset(name, self.versions.get(name))


def _of(host: str) -> Any:
    return ds.field(RM_HOST) == host


def _raw(fields: Iterable[pa.Field]) -> bool:
    return all(is_ours(f.name) for f in fields)
