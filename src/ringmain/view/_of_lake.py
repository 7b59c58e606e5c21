"""A lake's topics as a source of things to show: its tables `silver/TOPIC`, and the reasons in `quarantine/TOPIC`.

The same topic comes from many robots, so it is shown as `HOST/TOPIC`; of one host alone, as `TOPIC`. Topics come one
after the other, each file by file, the oldest first: a viewer orders by time.
Invariant: every row that is selected is shown, or counted as left out.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from math import inf
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.lake import Lake
from ringmain.lake._names import quarantine_table, silver_table, topic_name
from ringmain.recording._decode import PAYLOAD
from ringmain.recording._filters import as_ns, matches_any
from ringmain.recording._format import HOST, decoded_name, is_ours
from ringmain.recording._frames import MARK
from ringmain.recording._segment.segment import time_ns_of
from ringmain.view._counts import Counts
from ringmain.view._interpret import Interpreter, Rows, misread
from ringmain.view._kept import Kept
from ringmain.view._shown import Shown

_TIMES = ("publish_time", "publish_ns")
_TIME, _TIME_NS = map(decoded_name, _TIMES)
_LOST, _EPOCH, _HOST = decoded_name("lost"), decoded_name("epoch"), decoded_name(HOST.name)
_REASON = decoded_name("reason")
_ENVELOPE = [_TIME, _TIME_NS, _LOST, _EPOCH, _HOST]
_MOST_ROWS, _MOST_PAYLOADS = 4096, 64
"""Shown at a time. A payload may be a frame."""


def topics_of(lake: Lake) -> list[str]:
    """Those that it has tables of."""
    folders = (name.partition("/") for name in lake.tables())
    return sorted({topic_name(name) for folder, _, name in folders if folder in ("silver", "quarantine")})


@dataclass
class _Life:
    interpreter: Interpreter
    kept: Kept


@dataclass
class LakeTopics:
    """The messages of a lake that match, of one host or of all; the rest is as in `RecordedTopics`."""

    lake: Lake
    topics: Sequence[str] | None = None
    host: str | None = None
    since: int | datetime | None = None
    until: int | datetime | None = None
    hz: float = inf
    points_hz: float = inf
    counts: dict[str, Counts] = field(default_factory=dict)

    @property
    def time_range_ns(self) -> tuple[int, int] | None:
        """The first and the last publish time of what matches."""
        ends = [ns for _, table in self._tables() for at in self._scanned(table, [_TIME, _TIME_NS]) for ns in _ends(at)]
        return (min(ends), max(ends)) if ends else None

    def is_empty(self) -> bool:
        """Does nothing match?"""
        return not any(len(rows) for _, table in self._tables() for rows in self._scanned(table, [_HOST]))

    def take(self) -> Iterator[tuple[str, list[Shown]]]:
        """All of it."""
        life = functools.cache(self._make_life)
        since_ns, until_ns = as_ns(self.since), as_ns(self.until)
        for topic, table in self._tables():
            there = self.lake.dataset(table).schema.names
            columns = _ENVELOPE + [n for n in there if not is_ours(n) or n in (PAYLOAD.name, _REASON)]
            for batch in self._scanned(table, columns):
                times_ns = _times_ns(batch)
                inside = numpy.ones(len(batch), bool)
                if since_ns is not None:
                    inside &= times_ns >= since_ns
                if until_ns is not None:
                    inside &= times_ns < until_ns
                lives = pa.table(batch.select([_HOST, _EPOCH])).group_by([_HOST, _EPOCH]).aggregate([]).to_pylist()
                for each in lives:
                    host, epoch = each[_HOST], each[_EPOCH]
                    same = pc.and_(pc.equal(batch.column(_HOST), host), pc.equal(batch.column(_EPOCH), epoch))
                    wanted = inside & same.to_numpy(zero_copy_only=False)
                    if wanted.any():
                        name = topic if self.host is not None else f"{host}/{topic}"
                        part = batch.filter(pa.array(wanted))
                        found = self._rows(part, times_ns[wanted], name, life(name, epoch, _is_frame(part)))
                        if found:
                            yield name, found

    # ---------------------------------------------------------------------------------------------------------

    def _tables(self) -> list[tuple[str, str]]:
        """(topic, table) of what is wanted."""
        there = self.lake.tables()
        wanted = (t for t in topics_of(self.lake) if self.topics is None or matches_any(t, self.topics))
        return [(t, table) for t in wanted for table in (silver_table(t), quarantine_table(t)) if table in there]

    def _scanned(self, table: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Rows of the host, which may be outside of the time: files and row groups without any wanted are skipped."""
        from pyarrow.dataset import field as column

        since_ns, until_ns = as_ns(self.since), as_ns(self.until)
        selected = column(_TIME).is_valid()
        if self.host is not None:
            selected &= column(_HOST) == self.host
        if since_ns is not None:
            selected &= column(_TIME) >= pa.scalar(since_ns // 1000, pa.timestamp("us", "UTC"))
        if until_ns is not None:
            selected &= column(_TIME) <= pa.scalar(until_ns // 1000, pa.timestamp("us", "UTC"))
        dataset = self.lake.dataset(table)
        oldest = {one.name: str(one.least.get(_TIME, "")) for one in self.lake.files(table)}
        for fragment in sorted(dataset.get_fragments(selected), key=lambda one: oldest.get(one.path, "")):
            yield from fragment.to_batches(
                schema=dataset.schema,
                columns=columns,
                filter=selected,
                batch_size=_MOST_PAYLOADS if PAYLOAD.name in columns else _MOST_ROWS,
                batch_readahead=1,
            )

    def _make_life(self, topic: str, epoch: int, frames: bool) -> _Life:
        return _Life(Interpreter(None, frames=frames, reader="the recorder"), Kept(self.hz, self.points_hz))

    def _rows(self, batch: pa.RecordBatch, times_ns: Any, topic: str, life: _Life) -> list[Shown]:
        counts = self.counts.setdefault(topic, Counts())
        lost = batch.column(_LOST).to_numpy(zero_copy_only=False).astype("i8")
        counts.messages += len(batch)
        counts.lost += int(lost.sum())
        names = batch.schema.names
        if _REASON in names:
            refused = misread(times_ns, batch.column(_REASON).to_pylist())
            things: Iterator[Shown] = chain(life.interpreter.losses(times_ns, lost), refused)
        elif PAYLOAD.name in names:
            things = life.interpreter.shown(Rows(times_ns, lost, batch.column(PAYLOAD.name)))
        else:
            things = life.interpreter.decoded(times_ns, lost, batch.select([n for n in names if not is_ours(n)]))
        return life.kept.of(things, counts)


def _times_ns(batch: pa.RecordBatch) -> Any:
    times = batch.select([_TIME, _TIME_NS]).rename_columns(list(_TIMES))
    return time_ns_of(times).to_numpy(zero_copy_only=False).astype("i8")


def _ends(batch: pa.RecordBatch) -> list[int]:
    times_ns = _times_ns(batch)
    return [int(times_ns.min()), int(times_ns.max())] if len(batch) else []


def _is_frame(batch: pa.RecordBatch) -> bool:
    """A lake has the frames of a frame topic as recorded."""
    return PAYLOAD.name in batch.schema.names and batch.column(PAYLOAD.name)[0].as_py().endswith(MARK)
