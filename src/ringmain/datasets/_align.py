"""Which messages make the cell of a tick, by their times alone.

    messages   ----a-----b---------c----d------►      newest: b   nearest: c   next: c   linear: b, c   window: a, b
    tick                       |

The invariant owned here: *of messages of the same nanosecond the last one counts*, as if it had replaced the others
(a window has all of them). Of two that are equally near, the earlier one is the nearest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ringmain.datasets._grid import Method


class Alignment(NamedTuple):
    """Of each tick the messages [first, end) of its cell; none where `end` is `first`. `age_ns` is undefined there."""

    first: np.ndarray
    end: np.ndarray
    age_ns: np.ndarray
    after: np.ndarray
    """Of "linear": the message after the tick; elsewhere the same as `first`."""
    share: np.ndarray
    """Of "linear": how far the tick is from the one before to the one after, from 0 to 1."""

    @property
    def there(self) -> np.ndarray:
        """Which ticks have a cell."""
        return np.asarray(self.end > self.first)


def align(times_ns: np.ndarray, ticks_ns: np.ndarray, method: Method, tolerance_ns: int) -> Alignment:
    """Of messages with these times, in order, for these ticks."""
    if method.kind == "window":
        first = np.searchsorted(times_ns, ticks_ns - method.window_ns, "right")
        end = np.searchsorted(times_ns, ticks_ns, "right")
        return _aligned(first, end, ticks_ns - _at(times_ns, end - 1))
    last = np.flatnonzero(np.append(times_ns[1:] != times_ns[:-1], True))[: len(times_ns)]
    points = times_ns[last]
    before = np.searchsorted(points, ticks_ns, "right") - 1
    after = np.searchsorted(points, ticks_ns, "left")
    from_before, to_after = ticks_ns - _at(points, before), _at(points, after) - ticks_ns
    has_before = (before >= 0) & (from_before <= tolerance_ns)
    has_after = (after < len(points)) & (to_after <= tolerance_ns)
    if method.kind == "newest":
        chosen, there, age = before, has_before, from_before
    elif method.kind == "next":
        chosen, there, age = after, has_after, -to_after
    elif method.kind == "nearest":
        later = has_after & (~has_before | (to_after < from_before))
        chosen, there = np.where(later, after, before), has_before | has_after
        age = np.where(later, -to_after, from_before)
    else:
        span = np.maximum(from_before + to_after, 1)
        found = _aligned(_at(last, before), _at(last, before) + (has_before & has_after), from_before)
        return found._replace(after=_at(last, after), share=from_before / span)
    first = _at(last, chosen)
    return _aligned(first, first + there, age)


def _at(values: np.ndarray, where: np.ndarray) -> np.ndarray:
    """The values there; 0 where there is none."""
    if not len(values):
        return np.zeros(len(where), np.int64)
    inside = (where >= 0) & (where < len(values))
    return np.where(inside, values[np.clip(where, 0, len(values) - 1)], 0)


def _aligned(first: np.ndarray, end: np.ndarray, age_ns: np.ndarray) -> Alignment:
    return Alignment(first, end, age_ns, first, np.zeros(len(first)))
