"""What can be made of Spark's filters: bounds on topic, publish time and sequence number.

Spark applies every filter again, so what is done here only has to be right in what it leaves out: a bound may be wider
than the filter, never narrower.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from ringmain.recording._filters import is_pattern
from ringmain.spark._scan import Scan


def narrow(scan: Scan, filters: Iterable[Filter]) -> Scan:
    """The scan, with the bounds that the filters allow."""
    for item in filters:
        attribute = getattr(item, "attribute", None)
        if attribute == ("topic",):
            scan = _narrow_topic(scan, item)
        elif attribute == ("publish_time",):
            scan = _narrow_time(scan, item)
        elif attribute == ("seq",):
            scan = _narrow_seq(scan, item)
    return scan


def _narrow_topic(scan: Scan, item: Filter) -> Scan:
    named: list[Any]
    if isinstance(item, EqualTo):
        named = [item.value]
    elif isinstance(item, In):
        named = list(item.value)
    else:
        return scan
    if any(not isinstance(name, str) or is_pattern(name) for name in named):
        return scan
    wanted = scan.filter()
    return replace(scan, topics=tuple(name for name in named if wanted.matches(name)))


def _narrow_time(scan: Scan, item: Filter) -> Scan:
    value = getattr(item, "value", None)
    if not isinstance(value, datetime | date):
        return scan
    moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
    # A microsecond to either side: publish_time has dropped its nanoseconds.
    ns = round(moment.timestamp() * 1e6) * 1000
    since, until = scan.since_ns, scan.until_ns
    if isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual):
        since = ns - 1000 if since is None else max(since, ns - 1000)
    if isinstance(item, EqualTo | LessThan | LessThanOrEqual):
        until = ns + 2000 if until is None else min(until, ns + 2000)
    return replace(scan, since_ns=since, until_ns=until)


def _narrow_seq(scan: Scan, item: Filter) -> Scan:
    value = getattr(item, "value", None)
    if not isinstance(value, int):
        return scan
    first, end = scan.first_seq, scan.end_seq
    if isinstance(item, EqualTo | GreaterThan | GreaterThanOrEqual):
        first = value if first is None else max(first, value)
    if isinstance(item, EqualTo | LessThan | LessThanOrEqual):
        end = value + 1 if end is None else min(end, value + 1)
    return replace(scan, first_seq=first, end_seq=end)
