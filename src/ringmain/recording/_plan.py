"""From positions to work: which rows of which segments there are, and how they are cut into partitions.

The invariant owned here: the rows between two positions are always the same, whether their segment is growing or sealed
at that moment. So a micro-batch that is planned again after a crash reads the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise

from ringmain.errors import RecordingCorrupt, RecordingNotFound
from ringmain.recording._filters import Filter
from ringmain.recording._format import LATCHED, Position
from ringmain.recording._segment.segment import Run, Segment
from ringmain.recording._segment.store import SegmentRef, Store, list_segments

SPLIT_BYTES = 32 << 20  # of a range: large enough for a task, small enough to spread over the cores
_OPENERS = 8  # footers are small, so latency is their cost, mostly in object stores


@dataclass(frozen=True, slots=True)
class Range:
    """Rows [first, end) of a segment: what one task reads; about how many bytes, and bounds of publish times. `host` is
    None where its recording's meta.json says it."""

    key: str
    ref: SegmentRef
    first: int
    end: int
    bytes: int = 0
    min_ns: int = 0
    max_ns: int = 0
    host: str | None = None


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """What a segment holds, without its rows."""

    ref: SegmentRef
    extents: tuple[Run, ...]
    end_row: int
    topics: frozenset[str] | None  # None while it grows: they are not counted yet

    def may_match(self, wanted: Filter) -> bool:
        return self.topics is None or any(wanted.matches(topic) for topic in self.topics)


def plan_segment(ref: SegmentRef, segment: Segment) -> SegmentPlan:
    topics = frozenset(stats.topic for stats in segment.stats()) if segment.sealed else None
    plan = SegmentPlan(ref, tuple(segment.runs), segment.end_row, topics)
    kept = ref.store.kept
    return plan if kept is None or kept.end is None else up_to(plan, kept.end)


def up_to(plan: SegmentPlan, end: Position) -> SegmentPlan:
    """What a segment, none after that of `end`, has before it."""
    if plan.ref.number < end.segment:
        return plan
    extents = tuple(
        replace(e, rows=rows, bytes=e.bytes * rows // e.rows)
        for e in plan.extents
        if (rows := min(e.end_row, end.row) - e.row) > 0
    )
    return replace(plan, extents=extents, end_row=min(plan.end_row, end.row))


def open_plan(ref: SegmentRef) -> SegmentPlan:
    segment = ref.open(known=True)
    try:
        return plan_segment(ref, segment)
    finally:
        segment.close()


def plan_all(store: Store, on_unreadable: Callable[[SegmentRef, Exception], None]) -> list[SegmentPlan]:
    """Every segment of a recording as it is now. One that cannot be opened is passed to `on_unreadable`."""

    def look(ref: SegmentRef) -> SegmentPlan | None:
        try:
            return open_plan(ref)
        except (RecordingNotFound, RecordingCorrupt) as error:
            on_unreadable(ref, error)
            return None

    with ThreadPoolExecutor(_OPENERS) as pool:
        return [plan for plan in pool.map(look, list_segments(store)) if plan is not None]


def between(
    key: str,
    plans: Iterable[SegmentPlan],
    begin: Position,
    end: Position | None,
    split_bytes: int,
    wanted: Filter | None = None,
) -> Iterator[Range]:
    """The rows of a recording from `begin` on, up to `end` if there is one, as ranges; without those of which it is
    known that they do not match. Batches, streams, the pipeline and the lake's bronze all read such ranges."""
    for plan in plans:
        number = plan.ref.number
        first = begin.row if number == begin.segment else 0
        stop = plan.end_row if end is None or number < end.segment else end.row
        outside = number < begin.segment or (end is not None and number > end.segment)
        if not outside and first < stop and (wanted is None or plan.may_match(wanted)):
            yield from cut(key, plan, first, stop, split_bytes, wanted)


def cut(
    key: str, plan: SegmentPlan, first: int, end: int, split_bytes: int, wanted: Filter | None = None
) -> Iterator[Range]:
    """Rows [first, end) of a segment as ranges of at most about `split_bytes`. They have similar sizes, so that no core
    waits for one with a larger range. Extents that cannot match are left out."""
    pieces = []
    for extent in plan.extents:
        lo, hi = max(first, extent.row), min(end, extent.end_row)
        if lo < hi and (wanted is None or plan.ref.number == LATCHED or not _outside(extent, wanted)):
            share = extent.bytes * (hi - lo) // extent.rows
            pieces.append(Range(key, plan.ref, lo, hi, share, extent.min_ns, extent.max_ns))
    total = sum(piece.bytes for piece in pieces)
    part = total / max(1, -(-total // split_bytes))
    found: Range | None = None
    size, enough = 0, part
    for piece in pieces:
        full = size + piece.bytes / 2 > enough
        if found is not None and (full or piece.first != found.end):
            yield found
            found = None
        if full:
            enough += part
        found = piece if found is None else _joined(found, piece)
        size += piece.bytes
    if found is not None:
        yield found


def split(one: Range, parts: int) -> list[Range]:
    """A range as so many of about the same size, also where rows are stored together: each then reads what they are
    stored in, and takes its part of the rows."""
    rows = one.end - one.first
    edges = [one.first + rows * n // parts for n in range(parts + 1)]
    return [replace(one, first=a, end=b, bytes=one.bytes * (b - a) // rows) for a, b in pairwise(edges) if a < b]


def _joined(one: Range, more: Range) -> Range:
    bounds = min(one.min_ns, more.min_ns), max(one.max_ns, more.max_ns)
    return Range(one.key, one.ref, one.first, more.end, one.bytes + more.bytes, *bounds)


def _outside(extent: Run, wanted: Filter) -> bool:
    return (wanted.since_ns is not None and extent.max_ns < wanted.since_ns) or (
        wanted.until_ns is not None and extent.min_ns >= wanted.until_ns
    )


def advance(
    plans: list[SegmentPlan], start: Position, max_rows: int | None, max_bytes: int | None
) -> tuple[Position, int, int]:
    """(position, rows, bytes): the furthest end from `start` within the limits. At least one row, if there is any."""
    at, rows, size = start, 0, 0
    for plan in plans:
        number = plan.ref.number
        if number < start.segment:
            continue
        for extent in plan.extents:
            lo = max(extent.row, at.row) if number == at.segment else extent.row
            if lo >= extent.end_row:
                continue
            row_bytes = max(1, extent.bytes // extent.rows)
            room = extent.end_row - lo
            if max_rows is not None:
                room = min(room, max_rows - rows)
            if max_bytes is not None:
                room = min(room, (max_bytes - size) // row_bytes)
            if room <= 0 and rows:
                return at, rows, size
            room = max(1, room)
            at, rows, size = Position(number, lo + room), rows + room, size + room * row_bytes
            if lo + room < extent.end_row:
                return at, rows, size
        # Damaged rows at a segment's end have no extent. They are skipped here, and read() reports them as missing.
        if plan.end_row > (at.row if number == at.segment else 0):
            at = Position(number, plan.end_row)
    return at, rows, size
