"""Streaming over recordings that may still be growing. Offsets are positions.

    {"consumer": "spark-1f2e3d4c", "at": {"camera-host": "000000003:1500", "arm-host": "000000000:77"}}

A position always means the same row, so Spark reads the same rows again after a crash: exactly once, with any sink that
replaces what the batch wrote before. The consumer's name is chosen when the query first starts. It is part of the
offsets and so of the checkpoint: a restarted query is the same consumer. Under this name the stream registers its
position with the recording's retention, which deletes nothing that it has not read.

The invariant owned here: *an end offset that was reported can be read*. Rows are counted only when they are complete,
and a segment only when the next one is known to exist, so no row is missed between two listings.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ringmain.errors import RecordingNotFound, SchemaMismatch
from ringmain.recording import Position, SegmentRef, Store, list_segments, register
from ringmain.recording._decode import Decoding
from ringmain.recording._segment.segment import Segment
from ringmain.recording._segment.segment_reader import StreamSegment
from ringmain.recording._segment.store import read_retired
from ringmain.recording._upkeep.retention import missed_rows
from ringmain.spark._locations import SELF
from ringmain.spark._options import Options
from ringmain.spark._plan import Range, SegmentPlan, advance, cut, plan_segment
from ringmain.spark._scan import Gaps, Scan, lives_of

Offset = dict[str, Any]


class Tracker:
    """The segments of one recording from a position on. Sealed ones are opened once, the growing one is refreshed."""

    def __init__(self, key: str, store: Store) -> None:
        self.key, self.store = key, store
        self._plans: dict[int, SegmentPlan] = {}
        self._growing: StreamSegment | None = None

    def earliest(self) -> Position:
        """The first position that retention has not deleted."""
        return Position(read_retired(self.store).first_segment, 0)

    def first(self) -> Position:
        """Where a new query starts. A directory may hold only some segments of a recording, copied from elsewhere."""
        listed = list_segments(self.store)
        return Position(listed[0].number, 0) if listed else self.earliest()

    def absent(self, begin: Position, end: Position) -> list[tuple[int, int, int | None]]:
        """(segment, row, end row if known) of rows between two positions that do not exist any more. Segments are
        numbered without gaps, so a missing one was deleted."""
        present = {ref.number for ref in list_segments(self.store)}
        found = []
        for number in range(begin.segment, end.segment + (end.row > 0)):
            row = begin.row if number == begin.segment else 0
            known = self._plans.get(number)
            stop = end.row if number == end.segment else None if known is None else known.end_row
            if number not in present and (stop is None or row < stop):
                found.append((number, row, stop))
        return found

    def plans(self, start: Position, gaps: Gaps) -> list[SegmentPlan]:
        """The segments from `start` on, as they are now."""
        listed = [ref for ref in list_segments(self.store) if ref.number >= start.segment]
        self._plans = {number: plan for number, plan in self._plans.items() if number >= start.segment}
        found = [self._plan(ref, gaps) for ref in listed]
        return [plan for plan in found if plan is not None]

    def end(self, gaps: Gaps) -> Position:
        """The position after the last row. Opens the newest segment only."""
        for ref in reversed(list_segments(self.store)):
            plan = self._plan(ref, gaps)
            if plan is not None:
                return Position(ref.number, plan.end_row)
        return self.earliest()

    def _plan(self, ref: SegmentRef, gaps: Gaps) -> SegmentPlan | None:
        known = self._plans.get(ref.number)
        if known is None or known.ref.sealed != ref.sealed or not ref.sealed:
            known = self._look(ref, gaps)
            if known is not None:
                self._plans[ref.number] = known
        return known

    def _look(self, ref: SegmentRef, gaps: Gaps) -> SegmentPlan | None:
        growing = self._growing
        if growing is not None and growing.number == ref.number and not ref.sealed:
            try:
                growing.refresh()
                return plan_segment(ref, growing)
            except FileNotFoundError:
                pass  # sealed since it was listed
        try:
            segment: Segment = ref.open()
        except (RecordingNotFound, ValueError) as error:
            gaps.note(ref.number, 0, None, error)
            return None
        plan = plan_segment(ref, segment)
        if isinstance(segment, StreamSegment):
            self._growing = segment
        else:
            segment.close()
        return plan


class RecordingStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query, as long as it runs. `read` runs on copies of it, in workers."""

    def __init__(self, options: Options, scan: Scan) -> None:
        self._options, self._scan = options, scan
        self._trackers: dict[str, Tracker] = {}
        self._target: dict[str, Position] | None = None
        self._consumer = scan.consumer
        self._registered = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trackers": {}}  # open segments are not copied

    # Offsets

    def initialOffset(self) -> Offset:
        recordings = self._recordings()
        self._consumer = self._options.consumer or f"spark-{os.urandom(4).hex()}"
        chosen = _starting(self._options.starting, recordings)
        at = {}
        for key, tracker in recordings.items():
            asked = chosen.get(key, "earliest")
            if asked == "earliest":
                at[key] = str(tracker.first())
            elif asked == "latest":
                at[key] = str(tracker.end(self._gaps(tracker)))
            else:
                at[key] = str(Position.parse(asked))
        return {"consumer": self._consumer, "at": at}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._consumer = start["consumer"]
        if not self._registered:
            # Not in initialOffset: Spark calls it at every start, and ignores the result if there is a checkpoint.
            self.commit(start)
            self._registered = True
        unlimited = isinstance(limit, ReadAllAvailable)
        rows_left = None if unlimited else self._options.max_rows
        bytes_left = None if unlimited else self._options.max_bytes
        at = dict(start["at"])
        waiting = []
        for key, tracker in self._recordings().items():
            begin = self._begin(tracker, at.get(key))
            plans = tracker.plans(begin, self._gaps(tracker))
            if self._target is not None:
                plans = _up_to(plans, self._target.get(key, begin))
            waiting.append((key, begin, plans))
        for index, (key, begin, plans) in enumerate(waiting):
            # The shares are equal. What one recording does not use goes to the next ones.
            sharing = len(waiting) - index
            rows = None if rows_left is None else -(-rows_left // sharing)
            size = None if bytes_left is None else -(-bytes_left // sharing)
            if rows == 0 or size == 0:
                continue
            end, moved, moved_bytes = advance(plans, begin, rows, size)
            rows_left = None if rows_left is None else max(0, rows_left - moved)
            bytes_left = None if bytes_left is None else max(0, bytes_left - moved_bytes)
            if moved or key in at or str(end) != str(begin):
                at[key] = str(end)
        return {"consumer": start["consumer"], "at": at}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = {key: tracker.end(self._gaps(tracker)) for key, tracker in self._recordings().items()}

    def reportLatestOffset(self) -> Offset | None:
        if self._consumer is None:
            return None
        recordings = self._recordings().items()
        return {"consumer": self._consumer, "at": {key: str(t.end(self._gaps(t))) for key, t in recordings}}

    # Rows

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._consumer = start["consumer"]
        recordings = self._recordings()
        self._check_fields([tracker.store for tracker in recordings.values()])
        wanted = self._scan.filter()
        found: list[Range] = []
        for key, upto in end["at"].items():
            last = Position.parse(upto)
            if start["at"].get(key) == upto:
                continue
            tracker = recordings.get(key)
            if tracker is None:
                raise RecordingNotFound(
                    f"there is no recording {key!r} below {self._options.path} any more, and its rows up to {last} are "
                    "not read yet: put it back, or start the query with a new checkpoint"
                )
            gaps = self._gaps(tracker)
            begin = self._begin(tracker, start["at"].get(key), gaps)
            for number, row, stop in tracker.absent(begin, last):
                gone = RecordingNotFound(f"segment {number:09d} of {key!r} is gone, and was not read to its end")
                gaps.note(number, row, stop, gone)
            for plan in tracker.plans(begin, gaps):
                number = plan.ref.number
                first = begin.row if number == begin.segment else 0
                stop = plan.end_row if number < last.segment else last.row
                if number <= last.segment and first < stop and plan.may_match(wanted):
                    found += cut(key, plan, first, stop, self._options.split_bytes)
        return [InputPartition((item, self._consumer)) for item in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted_range, consumer = partition.value
        return replace(self._scan, consumer=consumer).read(wanted_range)

    def commit(self, end: Offset) -> None:
        """Registers with the recordings' retention how far this query has read."""
        if self._options.consumer == "none":
            return
        recordings = self._recordings()
        for key, position in end["at"].items():
            tracker = recordings.get(key)
            if tracker is None or tracker.store.directory is None:
                continue  # gone, or in an object store, where the recorder's directory decides
            try:
                register(tracker.store.directory, end["consumer"], Position.parse(position))
            except OSError as error:
                print(
                    f"ringmain: {tracker.store.directory} cannot be written ({error}), so its retention does not know "
                    "this stream and may delete rows that it has not read; consumer=none turns this warning off",
                    file=sys.stderr,
                )

    # How it is done

    def _recordings(self) -> dict[str, Tracker]:
        for key, store in self._options.find_recordings(must_exist=False).items():
            known = self._trackers.get(key)
            if known is None or known.store != store:
                self._trackers[key] = Tracker(key, store)
        return self._trackers

    def _gaps(self, tracker: Tracker) -> Gaps:
        return Gaps(tracker.store, tracker.key, self._consumer, self._scan.fail_on_loss)

    def _begin(self, tracker: Tracker, text: str | None, gaps: Gaps | None = None) -> Position:
        """Where to continue. Rows that retention deleted before they were read are reported to `gaps`."""
        if text is None:
            return tracker.first()
        earliest = tracker.earliest()
        position = Position.parse(text)
        if position >= earliest:
            return position
        missed = missed_rows(read_retired(tracker.store), position)
        if missed and gaps is not None:
            why = f"retention has deleted {missed} rows of {tracker.key!r} from {position} on that were not read"
            gaps.note(position.segment, position.row, position.row + missed, RecordingNotFound(why))
        return earliest

    def _check_fields(self, stores: list[Store]) -> None:
        """The columns of a running query are fixed. If a topic gains a field, the query must be restarted."""
        known = self._scan.decoding
        if known is None:
            return
        now = Decoding.of(known.topic, lives_of(stores, known.topic))
        if not now.fields.equals(known.fields):
            changed = [f"{f.name} ({f.type})" for f in now.fields if f not in list(known.fields)]
            raise SchemaMismatch(
                f"columns {', '.join(changed)}",
                "the columns that this query started with",
                ["restart the query: it continues where it stopped, with the new columns"],
                topic=known.topic,
            )


def _starting(text: str, recordings: dict[str, Tracker]) -> dict[str, str]:
    """{key: where to start}."""
    if text.lower() in ("earliest", "latest"):
        return dict.fromkeys(recordings, text.lower())
    if text.startswith("{"):
        given: dict[str, str] = json.loads(text)
        unknown = [key for key in given if key not in recordings]
        if unknown:
            raise ValueError(f"startingPosition: no recording {', '.join(unknown)}; there are {', '.join(recordings)}")
        return given
    Position.parse(text)
    if len(recordings) != 1:
        raise ValueError(
            f"startingPosition={text!r} is a position in one recording, not in {len(recordings)}: use earliest, "
            f'latest, or {{"{next(iter(recordings), SELF)}": "{text}", ...}}'
        )
    return dict.fromkeys(recordings, text)


def _up_to(plans: list[SegmentPlan], target: Position) -> list[SegmentPlan]:
    """The plans up to the target: AvailableNow reads the rows that existed when it started."""
    kept = []
    for plan in plans:
        if plan.ref.number > target.segment:
            break
        if plan.ref.number == target.segment:
            extents = tuple(
                replace(e, rows=rows, bytes=e.bytes * rows // e.rows)
                for e in plan.extents
                if (rows := min(e.end_row, target.row) - e.row) > 0
            )
            plan = replace(plan, extents=extents, end_row=min(plan.end_row, target.row))
        kept.append(plan)
    return kept
