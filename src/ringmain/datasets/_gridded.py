"""A grid over a source: span by span the cells, and what is known of each episode."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.datasets._cells import KEYS, TIME, cell_type, columns
from ringmain.datasets._episodes import Episodes, Hole, Span
from ringmain.datasets._grid import Grid, age_label, label_of, methods_of, ticks_us
from ringmain.datasets._holes import Verdict, add_holes, as_rows, judge
from ringmain.datasets._open import Data, open_source
from ringmain.datasets._sources import Source, span
from ringmain.datasets._spans import spans_of

EPISODE, STEP = "rm_episode", "rm_step"


def cells(source: Data, grid: Grid, episodes: Episodes | None = None) -> pa.Table:
    """The cells of a recording, the path of recordings, a list of these, or a `Lake`: a row for each host and tick.

    Columns: `rm_host`, `rm_time`; of each topic a struct with its fields, null where no message is near enough, and how
    old the message is, `rm_TOPIC_age_ms`: below 0 if it is later than the tick, of "linear" that of the message before,
    of a window that of its newest. With `episodes` only theirs that are not refused, with `rm_episode` and `rm_step`.
    """
    opened = open_source(source)
    if episodes is not None:
        found = [cells for _, cells in gridded(opened, grid, episodes) if cells is not None]
        return pa.concat_tables(found or [schema_of(opened, grid).empty_table()])
    parts = []
    for host in opened.hosts():
        there = span(opened, host, grid.topics)
        if there is not None:
            messages = {topic: opened.messages(host, topic, there) for topic in grid.topics}
            ticks = ticks_us(grid.hz, *there)
            parts.append(_with_keys(host, ticks, columns(grid, messages, ticks)))
    schema = pa.schema([f for f in schema_of(opened, grid) if f.name not in (EPISODE, STEP)])
    return pa.concat_tables(parts or [schema.empty_table()])


def episodes_of(source: Data, grid: Grid, episodes: Episodes) -> pa.Table:
    """A row for each episode of a source, also for those that are refused for what this grid needs, with the reason."""
    return as_rows([verdict for verdict, _ in gridded(open_source(source), grid, episodes)])


def schema_of(source: Source, grid: Grid) -> pa.Schema:
    """The columns of cells of episodes."""
    fields = [*KEYS, pa.field(EPISODE, pa.string()), pa.field(STEP, pa.int64())]
    for topic, method in methods_of(grid).items():
        fields.append(pa.field(label_of(topic), cell_type(source.type_of(topic), method)))
        fields.append(pa.field(age_label(topic), pa.float64()))
    return pa.schema(fields)


def gridded(source: Source, grid: Grid, episodes: Episodes) -> Iterator[tuple[Verdict, pa.Table | None]]:
    """Every episode, and its cells if it is not refused."""
    for host in source.hosts():
        for one in spans_of(episodes, source, host, list(grid.topics)):
            yield one_episode(source, grid, episodes, one)


def one_episode(source: Source, grid: Grid, episodes: Episodes, span: Span) -> tuple[Verdict, pa.Table | None]:
    """One episode, and its cells if it is not refused: those from the first tick at which all topics have a value, to
    the last."""
    verdict = Verdict.of(span)
    reach = (span.begin_us, span.end_us)
    messages = {topic: source.messages(span.host, topic, reach) for topic in grid.topics}
    lost_after = {topic: source.lost_before_next(span.host, topic, span.end_us) for topic in grid.topics}
    judge(episodes, verdict, span, messages, lost_after)
    if verdict.refused:
        return verdict, None
    ticks = ticks_us(grid.hz, *reach)
    cells = columns(grid, messages, ticks)
    there = {topic: np.asarray(cells.column(age_label(topic)).is_valid()) for topic in grid.topics}
    whole = np.flatnonzero(np.logical_and.reduce(list(there.values())))
    first, end = (int(whole[0]), int(whole[-1]) + 1) if len(whole) else (0, 0)
    verdict.steps, verdict.trimmed = end - first, len(ticks) - (end - first)
    nulls = {topic: int((~of_topic[first:end]).sum()) for topic, of_topic in there.items()}
    verdict.null_cells = sum(nulls.values())
    holes = [Hole("null cells", f"{topic}: {count} cells without a value") for topic, count in nulls.items() if count]
    holes += [] if len(whole) else [Hole("no tick", "no tick at which every topic has a value")]
    add_holes(episodes, verdict, holes)
    if verdict.refused:
        return verdict, None
    made = _with_keys(span.host, ticks[first:end], cells.slice(first, end - first))
    names = pa.repeat(pa.scalar(verdict.episode), end - first)
    made = made.add_column(2, EPISODE, names).add_column(3, STEP, pa.array(np.arange(end - first)))
    return verdict, made


def _with_keys(host: str, ticks_us: np.ndarray, cells: pa.Table) -> pa.Table:
    times = pc.cast(pa.array(ticks_us, pa.int64()), TIME)
    hosts = pa.repeat(pa.scalar(host), len(ticks_us))
    return cells.add_column(0, "rm_host", hosts).add_column(1, "rm_time", times)
