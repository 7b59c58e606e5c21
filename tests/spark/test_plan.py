"""How rows are cut into partitions: every row in one range, ranges of a size, and none that cannot match."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ringmain.recording import SegmentRef, Store
from ringmain.recording._filters import Filter
from ringmain.recording._plan import SegmentPlan, cut
from ringmain.recording._segment.segment import Run


def plan(count: int, rows: int = 10, size: int = 100) -> SegmentPlan:
    extents = tuple(Run(n * rows, rows, size, n * 1000, n * 1000 + 999) for n in range(count))
    return SegmentPlan(SegmentRef(0, False, Store(Path("/nowhere"), ""), 0), extents, count * rows, None)


@pytest.mark.parametrize(("first", "end"), [(0, 1000), (5, 995), (0, 10), (37, 38)])
@pytest.mark.parametrize("split", [1, 100, 333, 1500, 10**9])
def test_every_row_is_in_one_range_and_ranges_are_of_a_size(first: int, end: int, split: int) -> None:
    found = list(cut("r", plan(100), first, end, split))
    assert found[0].first == first
    assert found[-1].end == end
    assert all(one.end == other.first for one, other in itertools.pairwise(found))
    sizes = [r.end - r.first for r in found]
    assert max(sizes) * 10 <= max(split, 100) + 100  # an extent more at most: they are not cut
    assert max(sizes) - min(sizes) <= 10 + 10


def test_extents_outside_the_times_wanted_are_left_out() -> None:
    wanted = Filter(None, 2000, 4000, None, None)
    assert [(r.first, r.end) for r in cut("r", plan(10), 0, 100, 10**6, wanted)] == [(20, 40)]
