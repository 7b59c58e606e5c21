"""How far recordings are read, in positions, and which rows lie between two such offsets.

    {"camera-host": "000000003:1500", "arm-host": "000000000:77"}

Spark's checkpoint and the pipeline's ledger both keep such offsets, and both read through `Offsets`: a position always
means the same row, so a batch that is planned again after a crash reads the same rows.

The invariant owned here: *an end that was reported can be read*. Rows are counted only when they are complete, and a
segment only when the next one is known to exist, so no row is missed between two listings.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pyarrow import fs as pafs

from ringmain.errors import RecordingNotFound
from ringmain.recording._filters import Filter
from ringmain.recording._format import FIRST, RETIRED, Position, Retired
from ringmain.recording._meta import Meta
from ringmain.recording._plan import Range, SegmentPlan, advance, between, plan_segment, up_to
from ringmain.recording._scan import Gaps
from ringmain.recording._segment.segment import Segment
from ringmain.recording._segment.segment_reader import StreamSegment
from ringmain.recording._segment.store import SegmentRef, Store, list_segments, read_retired, reading
from ringmain.recording._upkeep.retention import missed_rows, register

At: TypeAlias = dict[str, str]  # {recording's key: position}


class Tracker:
    """The segments of one recording from a position on. Sealed ones are opened once, the growing one is refreshed."""

    def __init__(self, key: str, store: Store) -> None:
        self.key, self.store = key, store
        self._plans: dict[int, SegmentPlan] = {}
        self._growing: StreamSegment | None = None
        self._held: tuple[list[SegmentRef], Retired] | None = None
        self.meta: Meta | None = None

    def hold(self, infos: Sequence[pafs.FileInfo] | None = None, meta: Meta | None = None) -> None:
        """Look which segments there are, and go by that until the next call; else every question is one to the store.
        `infos` and `meta` are those of `list_segments`."""
        none = infos is not None and all(info.base_name != RETIRED for info in infos)
        self.meta = meta
        with reading(self.store.shown):
            self._held = list_segments(self.store, infos, meta), Retired("") if none else read_retired(self.store)

    def listed(self) -> list[SegmentRef]:
        return list_segments(self.store) if self._held is None else self._held[0]

    def retired(self) -> Retired:
        if self.store.kept is not None:  # the segments of an incident are there, whatever was deleted around them
            return Retired("")
        return read_retired(self.store) if self._held is None else self._held[1]

    def earliest(self) -> Position:
        """The first position that retention has not deleted."""
        return FIRST if self.store.kept is not None else Position(self.retired().first_segment, 0)

    def first(self) -> Position:
        """Where a new query starts. A directory may hold only some segments of a recording, copied from elsewhere."""
        listed = self.listed()
        return Position(listed[0].number, 0) if listed else self.earliest()

    def absent(self, begin: Position, end: Position) -> list[tuple[int, int, int | None]]:
        """(segment, row, end row if known) of rows between two positions that do not exist any more. Segments are
        numbered without gaps, so a missing one was deleted."""
        present = {ref.number for ref in self.listed()}
        pinned = self.store.pinned  # from latched rows, positions go on with those of the first segment of an incident
        found = []
        for number in range(begin.segment, end.segment + (end.row > 0)):
            row = begin.row if number == begin.segment else 0
            known = self._plans.get(number)
            stop = end.row if number == end.segment else None if known is None else known.end_row
            between_them = pinned is not None and number < pinned[0]
            if number not in present and not between_them and (stop is None or row < stop):
                found.append((number, row, stop))
        return found

    def plans(self, start: Position, gaps: Gaps) -> list[SegmentPlan]:
        """The segments from `start` on, as they are now."""
        with reading(self.store.shown):
            listed = [ref for ref in self.listed() if ref.number >= start.segment]
            self._plans = {number: plan for number, plan in self._plans.items() if number >= start.segment}
            found = [self._plan(ref, gaps) for ref in listed]
        return [plan for plan in found if plan is not None]

    def end(self, gaps: Gaps) -> Position:
        """The position after the last row. Opens the newest segment only."""
        with reading(self.store.shown):
            for ref in reversed(self.listed()):
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
            segment: Segment = ref.open(known=True)
        except (RecordingNotFound, ValueError) as error:
            gaps.note(ref.number, 0, None, error)
            return None
        plan = plan_segment(ref, segment)
        if isinstance(segment, StreamSegment):
            self._growing = segment
        else:
            segment.close()
        return plan


class Offsets:
    """Of several recordings, which may be growing. What each call finds is what there is then."""

    def __init__(self, *, fail_on_loss: bool = True, consumer: str | None = None) -> None:
        self.trackers: dict[str, Tracker] = {}
        self.ends: dict[str, Position] = {}  # after all rows that `advance` has seen, of each
        self.consumer = consumer
        self._fail_on_loss = fail_on_loss
        self.target: dict[str, Position] | None = None  # where to stop

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "trackers": {}}  # open segments are not copied

    def keep(self, stores: Mapping[str, Store]) -> None:
        """These are the recordings now. One that is gone stays known: what is not read of it is an error."""
        for key, store in stores.items():
            known = self.trackers.get(key)
            if known is None or known.store != store:
                self.trackers[key] = Tracker(key, store)

    def gaps(self, tracker: Tracker) -> Gaps:
        return Gaps(tracker.store, tracker.key, self.consumer, self._fail_on_loss)

    def end(self) -> At:
        """After the newest row of each."""
        return {key: str(tracker.end(self.gaps(tracker))) for key, tracker in self.trackers.items()}

    def stop_at_end(self) -> None:
        """From now on nothing is read that is not there yet."""
        self.target = {key: Position.parse(text) for key, text in self.end().items()}

    def advance(self, start: At, max_rows: int | None = None, max_bytes: int | None = None) -> At:
        """How far a batch from `start` reads within these limits."""
        at = dict(start)
        waiting = []
        for key, tracker in self.trackers.items():
            begin = self.begin(tracker, at.get(key))
            plans = tracker.plans(begin, self.gaps(tracker))
            self.ends[key] = Position(plans[-1].ref.number, plans[-1].end_row) if plans else begin
            if self.target is not None:
                plans = _up_to(plans, self.target.get(key, begin))
            waiting.append((key, begin, plans))
        for index, (key, begin, plans) in enumerate(waiting):
            # The shares are equal. What one recording does not use goes to the next ones.
            sharing = len(waiting) - index
            rows = None if max_rows is None else -(-max_rows // sharing)
            size = None if max_bytes is None else -(-max_bytes // sharing)
            if rows == 0 or size == 0:
                continue
            end, moved, moved_bytes = advance(plans, begin, rows, size)
            max_rows = None if max_rows is None else max(0, max_rows - moved)
            max_bytes = None if max_bytes is None else max(0, max_bytes - moved_bytes)
            if moved or key in at or str(end) != str(begin):
                at[key] = str(end)
        return at

    def ranges(self, start: At, end: At, split_bytes: int, wanted: Filter | None = None) -> list[Range]:
        """The rows between two offsets, in ranges of about so many bytes, those that may match. Rows that are not there
        any more are gaps."""
        found: list[Range] = []
        for key, upto in end.items():
            if start.get(key) == upto:
                continue
            last, tracker = Position.parse(upto), self.trackers.get(key)
            if tracker is None:
                raise RecordingNotFound(
                    f"there is no recording {key!r} any more, and its rows up to {last} are not read yet: put it back, "
                    "or start anew (a stream with a new checkpoint, a pipeline with a new lake)"
                )
            gaps = self.gaps(tracker)
            begin = self.begin(tracker, start.get(key), gaps)
            for number, row, stop in tracker.absent(begin, last):
                gone = RecordingNotFound(f"segment {number:09d} of {key!r} is gone, and was not read to its end")
                gaps.note(number, row, stop, gone)
            found += between(key, tracker.plans(begin, gaps), begin, last, split_bytes, wanted)
        return found

    def begin(self, tracker: Tracker, text: str | None, gaps: Gaps | None = None) -> Position:
        """Where to go on. Rows that retention deleted before they were read are reported to `gaps`."""
        if text is None:
            return tracker.first()
        earliest = tracker.earliest()
        position = Position.parse(text)
        if position >= earliest:
            return position
        missed = missed_rows(tracker.retired(), position)
        if missed and gaps is not None:
            why = f"retention has deleted {missed} rows of {tracker.key!r} from {position} on that were not read"
            gaps.note(position.segment, position.row, position.row + missed, RecordingNotFound(why))
        return earliest

    def register(self, at: At) -> None:
        """Tell the recordings' retention how far this consumer has read."""
        for key, position in at.items():
            tracker = self.trackers.get(key)
            if tracker is None or tracker.store.directory is None or tracker.store.kept is not None:
                continue  # gone; in an object store, where the recorder's directory decides; or kept anyway
            assert self.consumer is not None
            try:
                register(tracker.store.directory, self.consumer, Position.parse(position))
            except OSError as error:
                print(
                    f"ringmain: {tracker.store.directory} cannot be written ({error}), so its retention does not know "
                    "this consumer and may delete rows that it has not read; consumer=none turns this warning off",
                    file=sys.stderr,
                )


def _up_to(plans: list[SegmentPlan], target: Position) -> list[SegmentPlan]:
    """The plans up to the target: AvailableNow reads the rows that existed when it started."""
    kept = []
    for plan in plans:
        if plan.ref.number > target.segment:
            break
        kept.append(up_to(plan, target))
    return kept
