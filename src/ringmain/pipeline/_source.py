"""The recordings that a lake is made of: which there are, how far a batch reads, and what has been read.

The invariant owned here: *a recording is known again*. In the ledger it has a key, its address and its identity (the
recorder and when its first session began). One that was moved keeps its key; one that was recorded anew in the same
directory, or that has another's key, gets a new one. So no row is skipped and none is read twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from pyspark.sql.streaming.datasource import ReadAllAvailable

from ringmain.errors import LakeError
from ringmain.pipeline._ledger import Batch, Source
from ringmain.recording import Position, Store, list_segments
from ringmain.recording._filters import Filter
from ringmain.recording._meta import read_meta
from ringmain.spark._options import STORAGE, Options
from ringmain.spark._plan import SPLIT_BYTES, Range, cut
from ringmain.spark._scan import Gaps, Scan, source_schema
from ringmain.spark._stream import Offset, RecordingStream, Tracker

Life = tuple[str, int]


class Recordings(RecordingStream):
    """The source's own stream, whose offsets the ledger keeps in place of Spark's checkpoint."""

    def __init__(self, options: Options, *, must_exist: bool) -> None:
        scan = Scan(source_schema(None, True, True), fail_on_loss=options.fail_on_loss, max_payload=options.max_payload)
        super().__init__(options, scan)
        self._must_exist = must_exist
        self._known: dict[str, Source] = {}
        self._identities: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._lives: dict[str, dict[Life, bytes]] = {}

    def remember(self, last: Batch | None) -> None:
        """What the ledger knows of recordings."""
        self._known = {} if last is None else {one.recording: one for one in last.recordings}

    def find(self) -> None:
        """Look which recordings there are. Raises if there is none and there must be one."""
        self._trackers = self._found()

    def start(self, consumer: str) -> Offset:
        """Where the next batch begins, in the recordings that there are now."""
        self.find()
        first = {key: str(tracker.first()) for key, tracker in self._recordings().items() if key not in self._known}
        return {"consumer": consumer, "at": {**{key: one.end for key, one in self._known.items()}, **first}}

    def advance(self, start: Offset) -> Offset:
        """How far it reads."""
        limited = self._options.max_bytes is not None
        return self.latestOffset(start, self.getDefaultReadLimit() if limited else ReadAllAvailable())

    def commit(self, end: Offset) -> None:
        """Tell the recordings' retention how far the lake has read, of those where that has changed."""
        new = {key: position for key, position in end["at"].items() if self._told.get(key) != position}
        super().commit({**end, "at": new})
        self._told |= new

    def ranges(self, start: Offset, end: Offset) -> list[Range]:
        """The rows between two offsets."""
        return [partition.value[0] for partition in self.partitions(start, end)]

    @property
    def fail_on_loss(self) -> bool:
        return self._scan.fail_on_loss

    def scan(self, consumer: str) -> Scan:
        return replace(self._scan, consumer=consumer)

    def sources(self, start: Offset, end: Offset, ranges: Iterable[Range]) -> list[Source]:
        """Every recording so far, with what this batch reads of it."""
        found = {key: replace_source(known) for key, known in self._known.items()}
        trackers = self._recordings()
        for key, position in end["at"].items():
            tracker = trackers.get(key)
            if key not in found:
                assert tracker is not None
                found[key] = Source(key, _location(tracker.store), self._identities[key], position)
            one = found[key]
            one.begin, one.end = start["at"].get(key, ""), position
            if tracker is not None:
                one.location = _location(tracker.store)
            if tracker is not None and one.begin != position:
                one.rows = self._rows_between(tracker, Position.parse(one.begin), Position.parse(position))
        for item in ranges:
            one = found[item.key]
            one.first_us = item.min_ns // 1000 if one.first_us is None else min(one.first_us, item.min_ns // 1000)
            one.last_us = item.max_ns // 1000 if one.last_us is None else max(one.last_us, item.max_ns // 1000)
        return list(found.values())

    def lives(self, fresh: Iterable[str]) -> dict[str, dict[Life, bytes]]:
        """{key: {(topic, epoch): schema}} of every recording; those in `fresh` may have changed."""
        changed = set(fresh)
        for key, tracker in self._recordings().items():
            if key in changed or key not in self._lives:
                self._lives[key] = _lives(tracker.store)
        return self._lives

    def _rows_between(self, tracker: Tracker, begin: Position, end: Position) -> int:
        """How many rows there are, whether they can be read or not."""
        rows = 0
        for plan in tracker.plans(begin, self._gaps(tracker)):
            number = plan.ref.number
            stop = plan.end_row if number < end.segment else end.row
            rows += max(0, stop - (begin.row if number == begin.segment else 0)) if number <= end.segment else 0
        return rows

    def _recordings(self) -> dict[str, Tracker]:
        """As they were found for this batch."""
        return self._trackers

    def _found(self) -> dict[str, Tracker]:
        by_address = {one.location: one for one in self._known.values()}
        stores = self._options.find_recordings(must_exist=self._must_exist)
        present = {_location(store) for store in stores.values()}
        moved = {one.identity: one for one in self._known.values() if one.identity and one.location not in present}
        taken = {tracker.store: key for key, tracker in self._trackers.items()}
        for path_key, store in stores.items():
            if store in taken:
                continue
            identity = _identity(store)
            known = by_address.get(_location(store))
            if known is None or (known.identity and identity and known.identity != identity):
                known = moved.get(identity)
            key = known.recording if known is not None else path_key
            if known is None and (path_key in self._known or path_key in self._trackers):
                key = f"{_location(store)}@{identity}"
            self._identities[key] = identity
            self._trackers[key] = Tracker(key, store)
        return self._trackers


def taken(
    sources: Iterable[Source], storage: Mapping[str, str], since_us: int, until_us: int, fail_on_loss: bool = True
) -> list[Range]:
    """What the ledger says was read, of some stretch of time, as ranges of the recordings."""
    found: list[Range] = []
    wanted = Filter(None, since_us * 1000, until_us * 1000)
    for one in sources:
        if one.first_us is None or one.last_us is None or one.first_us >= until_us or one.last_us < since_us:
            continue
        store, end = Store.of(one.location, storage), Position.parse(one.end)
        plans = Tracker(one.recording, store).plans(Position(0, 0), Gaps(store, one.recording, None, fail_on_loss))
        left = [extent.min_ns // 1000 for plan in plans for extent in plan.extents]
        first = min(left, default=until_us)
        if one.first_us < first and since_us < first:
            raise LakeError(
                f"messages that the lake has taken from {one.location} are deleted there, and a table is made from "
                'them again: keep recordings for longer, or use bronze="copy" from the start (--bronze copy)'
            )
        for plan in plans:
            stop = plan.end_row if plan.ref.number < end.segment else end.row
            if plan.ref.number <= end.segment and stop:
                found += cut(one.recording, plan, 0, stop, SPLIT_BYTES, wanted)
    return found


def replace_source(one: Source) -> Source:
    """The same recording in the next batch, which has read nothing of it yet."""
    return Source(one.recording, one.location, one.identity, one.end, one.end, 0, 0, one.first_us, one.last_us)


def _location(store: Store) -> str:
    """Its address, without a name and password that are in a URI."""
    if store.directory is not None:
        return str(store.directory.absolute())
    return re.sub(r"//[^/@]*@", "//", store.sealed_uri)


def _identity(store: Store) -> str:
    meta = read_meta(store)
    if meta is None or not meta.sessions:
        return ""
    first = meta.sessions[0]
    return f"{meta.recorder}:{first.host}:{first.pid}:{first.clocks.wall_ns}"


def _lives(store: Store) -> dict[Life, bytes]:
    meta = read_meta(store)
    if meta is not None:
        return {(entry.name, entry.epoch): entry.schema for entry in meta.topics}
    found: dict[Life, bytes] = {}
    for ref in list_segments(store):
        segment = ref.open()
        found |= {(stats.topic, stats.epoch): b"" for stats in segment.stats()}
        segment.close()
    return found


def options_for(
    path: str, storage: Mapping[str, str], *, max_bytes: str, max_payload: str, fail_on_loss: bool, split_bytes: int
) -> Options:
    return Options.parse(
        {
            **{f"{STORAGE}{name}": value for name, value in storage.items()},
            "path": path, "positions": "true", "maxBytesPerTrigger": max_bytes, "maxPayload": max_payload,
            "failOnDataLoss": str(fail_on_loss).lower(), "splitBytes": str(split_bytes),
        }
    )  # fmt: skip


def as_path(recordings: str | Path | list[str | Path]) -> str:
    return ",".join(map(str, recordings)) if isinstance(recordings, list) else str(recordings)
