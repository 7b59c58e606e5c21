"""Streaming over recordings that may still be growing. Offsets are positions.

    {"consumer": "spark-1f2e3d4c", "at": {"camera-host": "000000003:1500", "arm-host": "000000000:77"}}

A position never changes its meaning, so whatever Spark reads twice after a crash is the same rows: exactly once with
any sink that replaces what a batch wrote before. The consumer's name is drawn when the query first starts and lives in
the offsets, hence in the checkpoint: a restarted query is the same consumer. Under that name the stream tells the
recording's retention how far it has come, and nothing it has not read is deleted.

The invariant owned here: *an end that was announced can be read*. A segment's rows are counted only after they are
complete, and a segment is counted after the one behind it is known to exist, so no row slips between two looks.
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
from ringmain.recording._segment.segment import Segment
from ringmain.recording._segment.segment_reader import StreamSegment
from ringmain.recording._segment.store import read_retired
from ringmain.recording._upkeep.retention import missed_rows
from ringmain.spark._decode import Decoding
from ringmain.spark._locations import SELF, find_recordings
from ringmain.spark._options import Options
from ringmain.spark._plan import Range, SegmentPlan, advance, cut, plan_segment
from ringmain.spark._scan import Gaps, Scan, lives_of

Offset = dict[str, Any]


class Tracker:
    """Knows the segments of one recording from a position on. Sealed ones are looked at once, the growing one again."""

    def __init__(self, key: str, store: Store) -> None:
        self.key, self.store = key, store
        self._plans: dict[int, SegmentPlan] = {}
        self._growing: StreamSegment | None = None

    def earliest(self) -> Position:
        """The first that retention has left."""
        return Position(read_retired(self.store).first_segment, 0)

    def first(self) -> Position:
        """Where a new query begins: a directory may hold but some segments of a recording, copied from elsewhere."""
        listed = list_segments(self.store)
        return Position(listed[0].number, 0) if listed else self.earliest()

    def absent(self, begin: Position, end: Position) -> list[tuple[int, int, int | None]]:
        """(segment, row, end row if known) of rows between two positions that are gone. Numbers are given without
        leaving any out, so a segment that is not there was deleted by somebody."""
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
        """The position after the last row; looks at the newest segment only."""
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
    """One for each query, alive as long as the query; `read` runs on copies of it, in workers."""

    def __init__(self, options: Options, scan: Scan) -> None:
        self._options, self._scan = options, scan
        self._trackers: dict[str, Tracker] = {}
        self._target: dict[str, Position] | None = None
        self._consumer = scan.consumer
        self._registered = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_trackers": {}}  # open segments stay where they are

    # Offsets

    def initialOffset(self) -> Offset:
        places = self._places()
        self._consumer = self._options.consumer or f"spark-{os.urandom(4).hex()}"
        chosen = _starting(self._options.starting, places)
        at = {}
        for key, tracker in places.items():
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
            # Not in initialOffset: Spark calls that at every start, and throws the answer away if it has a checkpoint.
            self.commit(start)
            self._registered = True
        unlimited = isinstance(limit, ReadAllAvailable)
        rows_left = None if unlimited else self._options.max_rows
        bytes_left = None if unlimited else self._options.max_bytes
        at = dict(start["at"])
        waiting = []
        for key, tracker in self._places().items():
            begin = self._begin(tracker, at.get(key))
            plans = tracker.plans(begin, self._gaps(tracker))
            if self._target is not None:
                plans = _up_to(plans, self._target.get(key, begin))
            waiting.append((key, begin, plans))
        for index, (key, begin, plans) in enumerate(waiting):
            # Shares are equal, and what one recording leaves goes to those after it.
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
        self._target = {key: tracker.end(self._gaps(tracker)) for key, tracker in self._places().items()}

    def reportLatestOffset(self) -> Offset | None:
        if self._consumer is None:
            return None
        places = self._places().items()
        return {"consumer": self._consumer, "at": {key: str(t.end(self._gaps(t))) for key, t in places}}

    # Rows

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        self._consumer = start["consumer"]
        places = self._places()
        self._check_fields([tracker.store for tracker in places.values()])
        wanted = self._scan.filter()
        found: list[Range] = []
        for key, upto in end["at"].items():
            last = Position.parse(upto)
            if start["at"].get(key) == upto:
                continue
            tracker = places.get(key)
            if tracker is None:
                raise RecordingNotFound(
                    f"the recording {key!r} below {self._options.path} is gone, and rows up to {last} of it were to be "
                    "read: put it back, or start the query with a new checkpoint"
                )
            gaps = self._gaps(tracker)
            begin = self._begin(tracker, start["at"].get(key), gaps)
            for number, row, stop in tracker.absent(begin, last):
                gone = RecordingNotFound(f"segment {number:09d} of {key!r} is gone, and it was not read to its end")
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
        """Tell the recordings how far this query has come for good."""
        if self._options.consumer == "none":
            return
        places = self._places()
        for key, position in end["at"].items():
            tracker = places.get(key)
            if tracker is None or tracker.store.directory is None:
                continue  # gone, or in an object store, where the recorder's own directory rules
            try:
                register(tracker.store.directory, end["consumer"], Position.parse(position))
            except OSError as error:
                print(
                    f"ringmain: {tracker.store.directory} cannot be written to ({error}), so retention there does not "
                    "know of this stream and may delete what it has not read; consumer=none silences this",
                    file=sys.stderr,
                )

    # How it is done

    def _places(self) -> dict[str, Tracker]:
        for key, store in find_recordings(self._options.path, must_exist=False).items():
            known = self._trackers.get(key)
            if known is None or known.store != store:
                self._trackers[key] = Tracker(key, store)
        return self._trackers

    def _gaps(self, tracker: Tracker) -> Gaps:
        return Gaps(tracker.store, tracker.key, self._consumer, self._scan.fail_on_loss)

    def _begin(self, tracker: Tracker, text: str | None, gaps: Gaps | None = None) -> Position:
        """Where to go on; rows that retention has deleted before they were read are told to `gaps`."""
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
        """The columns of a running query are fixed; a topic that gains a field needs a restart, not silence."""
        known = self._scan.decoding
        if known is None:
            return
        now = Decoding.of(known.topic, lives_of(stores, known.topic))
        if not now.fields.equals(known.fields):
            changed = [f"{f.name} ({f.type})" for f in now.fields if f not in list(known.fields)]
            raise SchemaMismatch(
                f"columns {', '.join(changed)}",
                "the columns that this query began with",
                ["restart the query: it goes on where it stopped, with the new columns"],
                topic=known.topic,
            )


def _starting(text: str, places: dict[str, Tracker]) -> dict[str, str]:
    """{key: where to start}."""
    if text.lower() in ("earliest", "latest"):
        return dict.fromkeys(places, text.lower())
    if text.startswith("{"):
        given: dict[str, str] = json.loads(text)
        unknown = [key for key in given if key not in places]
        if unknown:
            raise ValueError(f"startingPosition: no recording {', '.join(unknown)}; there are {', '.join(places)}")
        return given
    Position.parse(text)
    if len(places) != 1:
        raise ValueError(
            f"startingPosition={text!r} is a place in one recording, not in {len(places)}: say earliest, latest, "
            f'or {{"{next(iter(places), SELF)}": "{text}", ...}}'
        )
    return dict.fromkeys(places, text)


def _up_to(plans: list[SegmentPlan], target: Position) -> list[SegmentPlan]:
    """Nothing beyond the target: AvailableNow reads what was there when it began."""
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
