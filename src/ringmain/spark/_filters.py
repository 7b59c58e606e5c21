"""Bounds on topic, publish time and sequence number, from Spark's filters.

Spark applies every filter again, so a bound here may be wider than the filter, never narrower.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from ringmain.recording._filters import is_pattern
from ringmain.recording._format import decoded_name
from ringmain.recording._scan import Scan


def narrow(scan: Scan, filters: Iterable[Filter]) -> Scan:
    """The scan, with the bounds that the filters allow."""
    by_column = {"topic": _narrow_topic, "publish_time": _narrow_time, "seq": _narrow_seq}
    if scan.decoding is not None:  # a column that is called `topic` is then a field of the messages
        by_column = {decoded_name(name): narrow_by for name, narrow_by in by_column.items()}
    for item in filters:
        path: tuple[str, ...] = getattr(item, "attribute", ())
        narrow_by = by_column.get(path[0]) if len(path) == 1 else None
        scan = scan if narrow_by is None else narrow_by(scan, item)
    return scan


def _narrow_topic(scan: Scan, item: Filter) -> Scan:
    if not isinstance(item, EqualTo | In):
        return scan
    named: list[Any] = list(item.value) if isinstance(item, In) else [item.value]
    if any(not isinstance(name, str) or is_pattern(name) for name in named):
        return scan
    wanted = scan.filter()
    return replace(scan, topics=tuple(name for name in named if wanted.matches(name)))


def _narrow_time(scan: Scan, item: Filter) -> Scan:
    value = getattr(item, "value", None)
    if not isinstance(value, datetime | date):
        return scan
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    # A microsecond more on both sides: publish_time is rounded down to microseconds.
    ns = round(moment.timestamp() * 1e6) * 1000
    since, until = _bounds(item, (scan.since_ns, scan.until_ns), ns - 1000, ns + 2000)
    return replace(scan, since_ns=since, until_ns=until)


def _narrow_seq(scan: Scan, item: Filter) -> Scan:
    value = getattr(item, "value", None)
    if not isinstance(value, int):
        return scan
    first, end = _bounds(item, (scan.first_seq, scan.end_seq), value, value + 1)
    return replace(scan, first_seq=first, end_seq=end)


def _bounds(item: Filter, known: tuple[int | None, int | None], low: int, high: int) -> tuple[int | None, int | None]:
    """The known range [low, high), narrowed by a comparison."""
    least, most = known
    if isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual):
        least = low if least is None else max(least, low)
    if isinstance(item, EqualTo | LessThan | LessThanOrEqual):
        most = high if most is None else min(most, high)
    return least, most
