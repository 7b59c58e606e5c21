"""The stretch of time in which most of a batch's recordings are, by which rows with impossible times are told.

A robot whose clock is a day off, or was not set when it started, would widen the bounds of every file that has a row of
it, and readers skip files by these bounds. So rows outside this stretch go to files of their own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ringmain.recording._plan import Range

HOUR_US = 3600 * 10**6
_DAY_US = 24 * HOUR_US
_YEAR_2000_US = 946_684_800 * 10**6
_ENOUGH = 3  # recordings, of which most must agree


@dataclass
class _Cluster:
    first: int
    last: int
    recordings: set[str] = field(default_factory=set)


def main_stretch(ranges: Iterable[Range], now_us: int) -> tuple[int, int] | None:
    """[since, until) in microseconds; None if nothing tells which times are wrong.

    With three recordings and more it is where most of them are, and an hour around. With fewer it is all the time since
    2000, if any recording is there: those of simulated time begin at 0 together."""
    spans = sorted((one.min_ns // 1000, one.max_ns // 1000, one.key) for one in ranges)
    clusters: list[_Cluster] = []
    for first, last, key in spans:
        if last - first > _DAY_US:
            continue  # its clock was set meanwhile
        if not clusters or first > clusters[-1].last + HOUR_US:
            clusters.append(_Cluster(first, last))
        clusters[-1].last = max(clusters[-1].last, last)
        clusters[-1].recordings.add(key)
    every = len({key for _, _, key in spans})
    most = max(clusters, key=lambda one: len(one.recordings), default=None)
    if most is not None and every >= _ENOUGH and 2 * len(most.recordings) > every:
        return most.first - HOUR_US, most.last + HOUR_US
    possible = _YEAR_2000_US, now_us + _DAY_US
    return possible if any(possible[0] <= last < possible[1] for _, last, _ in spans) else None
