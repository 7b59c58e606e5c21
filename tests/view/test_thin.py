"""Thinned plots keep every peak: the least and the greatest of each slot stay, with their own times, and the rest is
counted."""

from __future__ import annotations

import numpy
from hypothesis import given
from hypothesis import strategies as st

from ringmain.view._thin import thin

SLOT_NS = 20_000_000  # of two points at 100 a second


@given(
    st.lists(st.tuples(st.integers(0, 2_000_000_000), st.floats(width=32, allow_infinity=False)), max_size=300),
)
def test_extremes_stay_and_the_rest_is_counted(points: list[tuple[int, float]]) -> None:
    points.sort(key=lambda point: point[0])
    times = numpy.array([time for time, _ in points], "i8")
    values = numpy.array([value for _, value in points], "f8")
    kept_times, kept, left_out = thin(times, values, 100.0)
    assert len(kept) + left_out == len(values)
    assert set(zip(kept_times.tolist(), map(repr, kept.tolist()), strict=True)) <= set(
        zip(times.tolist(), map(repr, values.tolist()), strict=True)
    )
    assert (numpy.diff(kept_times) >= 0).all()
    for slot in set((times // SLOT_NS).tolist()):
        before = values[(times // SLOT_NS == slot) & ~numpy.isnan(values)]
        after = kept[(kept_times // SLOT_NS == slot) & ~numpy.isnan(kept)]
        assert left_out == 0 or len(after) <= 2
        if len(before):
            assert (after.min(), after.max()) == (before.min(), before.max())


def test_what_is_slow_enough_is_left_alone() -> None:
    times = numpy.arange(50, dtype="i8") * 1_000_000_000
    values = numpy.linspace(0.0, 1.0, 50)
    kept_times, kept, left_out = thin(times, values, 10.0)
    assert left_out == 0
    assert (kept_times == times).all()
    assert (kept == values).all()
