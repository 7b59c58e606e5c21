"""Gold's new rows and those that a table has come to one row for each key: on the driver, or as tasks of the engine.

What the tasks of a batch have measured is little as a rule: it comes with their reports, and the driver merges it. Of a
fleet with many thousand lives it is the work of a cluster: each task then leaves its rows in files of the lake that no
table has, and tasks of a second job merge them. Each takes the rows from one host and window to another, those that
were measured and those that the table has, and writes the files that take their place.

The invariants owned here: *both ways give the same rows*, because those of one key are merged in the same order; and
*every row of a file that is replaced has its part*, because the parts have no gaps, and the first and the last no end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from operator import ge, gt, lt
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.lake._fields import field_names
from ringmain.lake._files import Written
from ringmain.lake._gold import TIME, GoldTable, decode
from ringmain.lake._health import GOLD
from ringmain.lake._log import TableFile
from ringmain.lake._tables import Tables, micros
from ringmain.pipeline._recordings import Life
from ringmain.pipeline._work import Columns, Report
from ringmain.recording._plan import Range

MERGED_ROWS = 20_000  # a merged file of gold that grows beyond this is left alone, but for late rows
AS_TASKS_ROWS = 500_000
"""From so many rows of gold in a batch on they are merged by tasks."""
SAMPLED = 500  # rows of a table that a task has measured, of which one tells where to cut them
PART_ROWS = 50_000  # of a table that a task merges
At: TypeAlias = tuple[str, int]  # (host, start of a window in µs), by which rows are parted


def expected_rows(
    ranges: Iterable[Range], lives: Mapping[str, Mapping[Life, bytes]], typed: Mapping[str, Columns], window_us: int
) -> int:
    """About how many rows of gold a batch measures, at most: in each window of a recording each topic has one of
    health, one of its sender, and one for each field that is a number."""
    spans: dict[str, tuple[int, int, int]] = {}
    for one in ranges:
        rows, since, until = spans.get(one.key, (0, one.min_ns, one.max_ns))
        spans[one.key] = rows + one.end - one.first, min(since, one.min_ns), max(until, one.max_ns)
    of_topic = {topic: 2 + len(field_names(columns.decoding.fields)) for topic, columns in typed.items()}
    total = 0
    for key, (rows, since, until) in spans.items():
        topics = {topic for topic, _ in lives.get(key, ())}
        windows = until // (window_us * 1000) - since // (window_us * 1000) + 1
        of_each = min(windows, rows // max(1, len(topics)) + 1)
        total += of_each * sum(of_topic.get(topic, 2) for topic in topics)
    return total


@dataclass(frozen=True)
class Measured:
    """What the tasks of a batch have measured for a table: rows, or the files that have them with a sample."""

    table: GoldTable
    rows: pa.Table
    files: tuple[Written, ...]
    sample: tuple[At, ...]

    @classmethod
    def of(cls, table: GoldTable, reports: Sequence[Report]) -> Measured:
        found = [decode(one.gold[table.name]) for one in reports if table.name in one.gold]
        files = tuple(file for one in reports for file in one.gold_files if file.table == table.name)
        sample = sorted(at for one in reports for at in one.gold_sample.get(table.name, ()))
        return cls(table, table.merged(found), files, tuple(sample))

    def __bool__(self) -> bool:
        return self.count > 0

    @property
    def count(self) -> int:
        """How many rows."""
        return len(self.rows) + sum(one.rows for one in self.files)

    def windows_us(self) -> tuple[int, int]:
        """The first and the last window."""
        if not self.files:
            found = pc.min_max(self.rows.column("window_start").cast(pa.int64())).as_py()
            return found["min"], found["max"]
        bounds = [_bounds(one, "window_start") for one in self.files]
        first, last = min(least for least, _ in bounds), max(most for _, most in bounds)
        return micros(datetime.fromisoformat(first)), micros(datetime.fromisoformat(last))

    def work(self, lake: Tables, batch: int, known: Sequence[TableFile], window_s: float, cores: int) -> Merge:
        """The tasks that merge the files with those that the table has."""
        count = max(1, min(len(self.sample), max(-(-self.count // PART_ROWS), cores)))
        cuts = sorted({self.sample[len(self.sample) * n // count] for n in range(1, count)})
        there = [(one.name, one.least.get("host"), one.most.get("host")) for one in known]
        new = [(one.name, *_bounds(one, "host")) for one in self.files]
        edges = [None, *cuts, None]
        parts = tuple(Part(a, b, _with(new, a, b), _with(there, a, b)) for a, b in pairwise(edges))
        return Merge(lake, batch, self.table.name, window_s, parts)


@dataclass(frozen=True)
class Part:
    """Rows from `first` on, up to `end`; and the files that may have some."""

    first: At | None
    end: At | None
    measured: tuple[str, ...]
    known: tuple[str, ...]

    def where(self) -> pc.Expression | None:
        """Which rows they are; None: all."""
        host, window = pc.field("host"), pc.field("window_start")

        def here(at: At, later: Callable[[Any, Any], Any], same: Callable[[Any, Any], Any]) -> pc.Expression:
            return later(host, at[0]) | ((host == at[0]) & same(window, pa.scalar(at[1], TIME)))

        if self.first is None:
            return None if self.end is None else here(self.end, lt, lt) | host.is_null()
        since = here(self.first, gt, ge)
        return since if self.end is None else since & here(self.end, lt, lt)


@dataclass(frozen=True)
class Merge:
    """All tasks that merge a table. Picklable: an engine sends it to its workers."""

    lake: Tables
    batch: int
    table: str
    window_s: float
    parts: tuple[Part, ...]

    def __len__(self) -> int:
        return len(self.parts)

    def run(self, number: int) -> list[Written]:
        part = self.parts[number]
        (table,) = (one for one in GOLD if one.name == self.table)

        def rows(names: tuple[str, ...]) -> Iterable[pa.Table]:
            return map(table.of, self.lake.read_where(self.table, names, part.where()))

        pieces = replaced(table, table.merged(rows(part.measured)), rows(part.known), self.window_s)
        return [self.lake.write(self.table, self.batch, piece) for piece in pieces]


def replaced(table: GoldTable, rows: pa.Table, known: Iterable[pa.Table], window_s: float) -> list[pa.Table]:
    """New rows, and all that the table has in some files: what stands in their place, as one file or two."""
    windows = pc.unique(rows.column("window_start"))
    rest, parts = [], [rows]
    for one in known:
        inside = pc.is_in(one.column("window_start"), windows)
        parts.append(one.filter(inside))
        rest.append(one.filter(pc.invert(inside)))
    merged = table.merged(parts, window_s)
    kept = pa.concat_tables([merged.slice(0, 0), *rest])
    pieces = [pa.concat_tables([kept, merged])] if len(kept) <= MERGED_ROWS else [kept, merged]
    return [piece for piece in pieces if len(piece)]


def _with(files: Iterable[tuple[str, Any, Any]], first: At | None, end: At | None) -> tuple[str, ...]:
    """Those that may have rows of a part: (name, the least of its hosts, the greatest); files without bounds may."""

    def may_have(least: str | None, most: str | None) -> bool:
        if least is None or most is None:
            return True
        return (end is None or least <= end[0]) and (first is None or most >= first[0])

    return tuple(name for name, least, most in files if may_have(least, most))


def _bounds(one: Written, column: str) -> tuple[Any, Any]:
    said = msgspec.json.decode(one.stats)
    return said["minValues"].get(column), said["maxValues"].get(column)
