"""Which rows are wanted: by topic pattern, publish time and sequence number. The rules of topic patterns are here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc

from ringmain import _names
from ringmain.recording._segment.segment import time_ns_of


def is_pattern(topic: str) -> bool:
    """Is it a pattern (`*`, `?`, `[abc]`) rather than a topic's name?"""
    return any(character in topic for character in "*?[")


def check_patterns(what: str, given: str | Sequence[str]) -> list[str]:
    """Names or patterns of topics as a list; raises ValueError for what is neither."""
    patterns = [given] if isinstance(given, str) else list(given)
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern:
            raise ValueError(f"{what}: expected a topic's name or pattern, not {pattern!r}")
        if not is_pattern(pattern):
            _names.check_topic(pattern)
    return patterns


def matches_any(topic: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(topic, pattern) for pattern in patterns)


def as_ns(moment: int | datetime | None) -> int | None:
    """Nanoseconds since 1970, from an int of such or a datetime with a time zone."""
    if moment is None or isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; say datetime(..., tzinfo=timezone.utc), or give ns")
    delta = moment - datetime.fromtimestamp(0, tz=moment.tzinfo)
    return ((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds) * 1000


class Filter:
    """Rows whose topic matches any pattern, with publish time in [since, until) and sequence in [first, end)."""

    def __init__(
        self,
        topics: str | Sequence[str] | None = None,
        since_ns: int | None = None,
        until_ns: int | None = None,
        first_seq: int | None = None,
        end_seq: int | None = None,
    ) -> None:
        self.patterns = [topics] if isinstance(topics, str) else list(topics) if topics is not None else None
        self.since_ns, self.until_ns = since_ns, until_ns
        self.first_seq, self.end_seq = first_seq, end_seq
        self.columns: set[str] = set()
        if self.patterns is not None:
            self.columns.add("topic")
        if since_ns is not None or until_ns is not None:
            self.columns |= {"publish_time", "publish_ns"}
        if first_seq is not None or end_seq is not None:
            self.columns.add("seq")

    def matches(self, topic: str) -> bool:
        return self.patterns is None or matches_any(topic, self.patterns)

    def apply(self, first_row: int, batch: pa.RecordBatch) -> tuple[pa.Array, pa.RecordBatch]:
        """(row numbers, rows) that are wanted."""
        rows = pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), len(batch)), start=first_row - 1)
        mask = self._mask(batch)
        return (rows, batch) if mask is None else (rows.filter(mask), batch.filter(mask))

    def _mask(self, batch: pa.RecordBatch) -> pa.Array | None:
        masks = []
        if self.patterns is not None:
            names = [name for name in pc.unique(batch.column("topic")).to_pylist() if self.matches(name)]
            masks.append(pc.is_in(batch.column("topic"), pa.array(names, pa.string())))
        if self.since_ns is not None or self.until_ns is not None:
            masks += _between(time_ns_of(batch), self.since_ns, self.until_ns)
        if self.first_seq is not None or self.end_seq is not None:
            masks += _between(batch.column("seq"), self.first_seq, self.end_seq)
        if not masks:
            return None
        combined = masks[0]
        for mask in masks[1:]:
            combined = pc.and_(combined, mask)
        return combined


def _between(values: pa.Array, first: int | None, end: int | None) -> list[pa.Array]:
    masks = []
    if first is not None:
        masks.append(pc.greater_equal(values, first))
    if end is not None:
        masks.append(pc.less(values, end))
    return masks
