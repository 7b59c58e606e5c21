"""A recording as a source of things to show, in the order recorded. What the recorder missed, and what the readers lost
while it recorded, are events.

Invariant: every row that is selected is shown, or counted as left out; a damaged part of the recording is named.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import SchemaError
from ringmain.recording import Recording
from ringmain.recording._format import FRAMES
from ringmain.recording._record.live_readers import READERS, ReaderFigures
from ringmain.recording._segment.segment import time_ns_of
from ringmain.typed import Schema, codec_for
from ringmain.view._counts import Counts
from ringmain.view._interpret import Interpreter, Rows
from ringmain.view._kept import Kept
from ringmain.view._shown import Event, Shown

_COLUMNS = ("topic", "epoch", "publish_time", "publish_ns", "lost", "payload")
_MOST_ROWS = 4096
"""Shown at a time: a batch of a recording may be large, and Ctrl-C ends between two."""


@dataclass
class _Life:
    interpreter: Interpreter
    kept: Kept


class RecordedTopics:
    """The messages of a recording that match. `hz`: pictures a second of each path; `points_hz`: points a second of
    each series; infinite: all."""

    def __init__(
        self,
        recording: Recording,
        topics: str | Sequence[str] | None = None,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        *,
        hz: float,
        points_hz: float,
    ) -> None:
        self._recording, self._hz, self._points_hz = recording, hz, points_hz
        self._topics, self.since, self.until = topics, since, until
        self._life = functools.cache(self._make_life)
        self._readers_lost: dict[tuple[str, str, int, int], int] = {}
        self._schemas = recording.schemas()
        self.counts: dict[str, Counts] = {}

    @property
    def time_range_ns(self) -> tuple[int, int] | None:
        """The first and the last publish time of the recording."""
        return self._recording.time_range_ns

    def take(self) -> Iterator[tuple[str, list[Shown]]]:
        """All of it."""
        selected = self._recording.batches(topics=self._topics, since=self.since, until=self.until, columns=_COLUMNS)
        for _, batch in selected:
            for first in range(0, len(batch), _MOST_ROWS):
                part = batch.slice(first, _MOST_ROWS)
                for topic, epoch in dict.fromkeys(
                    zip(part.column("topic").to_pylist(), part.column("epoch").to_pylist(), strict=True)
                ):
                    same = pc.and_(pc.equal(part.column("topic"), topic), pc.equal(part.column("epoch"), epoch))
                    yield from self._rows(topic, epoch, part.filter(same))

    def _rows(self, topic: str, epoch: int, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Shown]]]:
        if topic == READERS:
            yield from self._readers(batch)
            return
        counts = self.counts.setdefault(topic, Counts())
        lost = batch.column("lost").to_numpy(zero_copy_only=False).astype("i8")
        counts.messages += len(batch)
        counts.lost += int(lost.sum())
        life = self._life(topic, epoch)
        rows = Rows(time_ns_of(batch).to_numpy(zero_copy_only=False).astype("i8"), lost, batch.column("payload"))
        found = life.kept.of(life.interpreter.shown(rows), counts)
        if found:
            yield topic, found

    def _make_life(self, topic: str, epoch: int) -> _Life:
        meta = self._schemas.get((topic, epoch))
        try:
            schema = Schema.from_bytes(meta.schema) if meta is not None and meta.schema else None
        except SchemaError:
            schema = None  # of another version: bytes
        frames = meta is not None and meta.contract == FRAMES
        interpreter = Interpreter(schema, frames=frames, reader="the recorder")
        return _Life(interpreter, Kept(self._hz, self._points_hz))

    def _readers(self, batch: pa.RecordBatch) -> Iterator[tuple[str, list[Shown]]]:
        """What the live readers lost meanwhile, as the recorder noted it."""
        decode = codec_for(ReaderFigures).decode
        for time_ns, payload in zip(time_ns_of(batch).to_pylist(), batch.column("payload").to_pylist(), strict=True):
            now = decode(payload)
            key = (now.of_topic, now.reader, now.pid, now.joined_ns)
            more = now.reader_lost - self._readers_lost.get(key, 0)
            self._readers_lost[key] = now.reader_lost
            if more > 0:
                text = f"{now.role} '{now.reader}' (pid {now.pid}) lost {more:,} messages ({now.reader_lost:,} in all)"
                yield now.of_topic, [Event(time_ns, text, "WARN")]
