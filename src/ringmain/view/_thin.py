"""Fewer points, for a plot that looks the same: no peak is hidden.

Invariant: in every slot of time the smallest and the largest value stay, as they were and when they were; what is left
out is counted.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringmain.view._shown import Numbers, Times


def thin(times_ns: Times, values: Numbers, most_hz: float) -> tuple[Times, Numbers, int]:
    """At most `most_hz` values a second, two in each slot, and how many were left out."""
    import numpy

    if most_hz == inf:
        return times_ns, values, 0
    slots = times_ns // round(2e9 / most_hz)
    if len(values) <= 2 or len(values) <= 2 * (1 + int((slots[1:] != slots[:-1]).sum())):
        return times_ns, values, 0
    # By slot, then by value: the first of each slot is its least, the last its greatest. No plot draws NaN.
    order = numpy.lexsort((values, slots))
    order = order[~numpy.isnan(values[order])]
    edges = slots[order][1:] != slots[order][:-1]
    ends = numpy.concatenate(([True], edges)) | numpy.concatenate((edges, [True]))
    kept = numpy.sort(order[ends[: len(order)]])
    return times_ns[kept], values[kept], len(values) - len(kept)
