"""The recordings that a lake is made of: which there are, how far a batch reads, and what has been read.

The invariant owned here: *a recording is known again*. In the ledger it has a key, its address and its identity (the
recorder and when its first session began). One that was moved keeps its key; one that was recorded anew in the same
directory, or that has another's key, gets a new one. So no row is skipped and none is read twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from ringmain.errors import RecordingNotFound
from ringmain.lake._ledger import BEGUN, Batch, Source
from ringmain.recording import Position, Recording, Store, list_segments
from ringmain.recording._locations import Found, address_of, covers, look_for, look_for_incidents
from ringmain.recording._meta import Meta, host_of, read_meta
from ringmain.recording._offsets import At, Offsets, Tracker
from ringmain.recording._plan import SPLIT_BYTES, Range
from ringmain.recording._scan import Scan, source_schema, with_dictionaries
from ringmain.recording._segment.store import reading, shown

Life = tuple[str, int]
_READERS = 8


@dataclass(frozen=True)
class Reading:
    """Which recordings, and how they are read."""

    path: str
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    must_exist: bool = True
    fail_on_loss: bool = True
    max_bytes: int | None = None
    """The most that a batch reads."""
    split_bytes: int = SPLIT_BYTES
    max_payload: int | None = None
    incident: str | None = None
    """Of flight recordings, only the incidents whose ids match."""

    def scan(self, consumer: str) -> Scan:
        schema = with_dictionaries(source_schema(None, True, True))
        return Scan(schema, fail_on_loss=self.fail_on_loss, max_payload=self.max_payload, consumer=consumer)


class Recordings:
    """The offsets of recordings that the ledger knows, and of those that came since."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._offsets = Offsets(fail_on_loss=reading.fail_on_loss)
        self._known: dict[str, Source] = {}
        self._unread: set[str] = set()  # of the batch that is begun
        self._found: dict[str, Found] = {}
        self._has_looked = False
        self._trackers: dict[str, Tracker] = {}  # of all that were opened; the offsets have those with news
        self._identities: dict[str, str] = {}
        self._told: dict[str, str] = {}
        self._lives: dict[str, dict[Life, bytes]] = {}

    def remember(self, known: dict[str, Source], last: Batch | None) -> None:
        """What the lake knows of recordings, and its newest batch."""
        self._known = known
        begun = last.recordings if last is not None and last.state == BEGUN else ()
        self._unread = {one.recording for one in begun if one.begin != one.end}

    def stop_at_end(self) -> None:
        """From now on nothing is read that is not there yet."""
        self._find()
        self._has_looked = True
        self._offsets.stop_at_end()

    def all_read(self) -> bool:
        """Is nothing left of what was there when it was told to stop at the end?"""
        ends = {key: one.end for key, one in self._known.items()}
        target = self._offsets.target
        return target is not None and all(ends.get(key) == str(position) for key, position in target.items())

    def start(self, consumer: str) -> At:
        """Where the next batch begins, in the recordings that there are now."""
        if not self._has_looked:
            self._find()
        self._has_looked = False
        self._offsets.consumer = consumer
        first = {key: str(one.first()) for key, one in self._offsets.trackers.items() if key not in self._known}
        return {**{key: one.end for key, one in self._known.items()}, **first}

    def advance(self, start: At) -> At:
        """How far it reads."""
        if not self._told:
            self.read_up_to(start)
        return self._offsets.advance(start, max_bytes=self._reading.max_bytes)

    def read_up_to(self, end: At) -> None:
        """Tell the recordings' retention how far the lake has read, of those where that has changed."""
        new = {key: position for key, position in end.items() if self._told.get(key) != position}
        self._offsets.register(new)
        self._told |= new

    def ranges(self, start: At, end: At, consumer: str) -> list[Range]:
        """The rows between two offsets."""
        if not self._trackers:  # of a batch that was begun before this process was
            self._find()
        self._offsets.consumer = consumer
        return [self._with_host(item) for item in self._offsets.ranges(start, end, self._reading.split_bytes)]

    def _with_host(self, item: Range) -> Range:
        """Tasks need not read what is known of a recording in a store."""
        meta, store = self._offsets.trackers[item.key].meta, item.ref.store
        return item if meta is None else replace(item, host=host_of(meta, store.recorded_in(item.ref.number)))

    def sources(self, start: At, end: At, ranges: Iterable[Range]) -> list[Source]:
        """Every recording so far, with what this batch reads of it."""
        found = {key: _untouched(known) for key, known in self._known.items()}
        for key, position in end.items():
            tracker = self._offsets.trackers.get(key)
            if key not in found:
                assert tracker is not None
                found[key] = Source(key, _location(tracker.store), self._identities[key], position)
            one = found[key]
            one.begin, one.end = start.get(key, ""), position
            if tracker is not None:
                one.location = _location(tracker.store)
                all_read = str(self._offsets.ends.get(key)) == position
                one.seen = self._found[key].state if all_read and key in self._found else ""
            if tracker is not None and one.begin != position:
                one.rows = self._rows_between(tracker, Position.parse(one.begin), Position.parse(position))
        for item in ranges:
            one = found[item.key]
            one.first_us = item.min_ns // 1000 if one.first_us is None else min(one.first_us, item.min_ns // 1000)
            one.last_us = item.max_ns // 1000 if one.last_us is None else max(one.last_us, item.max_ns // 1000)
        return list(found.values())

    def begun(self, batch: Batch) -> list[Source]:
        """The same, of a batch that is begun."""
        found = {key: _untouched(known) for key, known in self._known.items()}
        return list((found | {one.recording: one for one in batch.recordings}).values())

    def news(self, sources: Iterable[Source]) -> list[Source]:
        """Those of which the ledger has to know something."""
        return [one for one in sources if _is_new(one, self._known.get(one.recording))]

    def topics(self) -> set[str]:
        """All that the segments have, also such as were never declared."""
        found: set[str] = set()
        for key in {*self._found, *self._offsets.trackers}:
            store = self._store(key)
            with reading(store.shown):
                location = store.directory or store.sealed_uri
                kept = store.kept.incident if store.kept is not None else None
                options = dict(store.options)
                found |= Recording(location, skip_damage=True, storage_options=options, incident=kept).topics().keys()
        return found

    def flights(self) -> list[tuple[str, Store, Meta | None]]:
        """The flight recordings whose incidents may be new: (key, store, meta.json)."""
        known = {key: self._found[key] for key in self._offsets.trackers if key in self._found}
        return [(key, one.store(), self._meta(key)) for key, one in known.items() if one.has_incidents]

    def lives(self, sources: Iterable[Source]) -> dict[str, dict[Life, bytes]]:
        """{key: {(topic, epoch): schema}} of what a batch reads, of what is not read yet, and of the recordings that
        have rows of the same time as those of the batch: there messages may be twice."""
        sources = list(sources)
        changed = {one.recording: one for one in sources if one.begin != one.end}
        firsts = [one.first_us for one in changed.values() if one.first_us is not None]
        lasts = [one.last_us for one in changed.values() if one.last_us is not None]
        since, until = min(firsts, default=0), max(lasts, default=-1)
        beside = {
            one.recording
            for one in sources
            if one.first_us is not None and one.last_us is not None and one.first_us <= until and one.last_us >= since
        }
        wanted = {*self._offsets.trackers, *(self._found.keys() & beside)}
        unknown = sorted(key for key in wanted if key in changed or key not in self._lives)
        with ThreadPoolExecutor(_READERS) as pool:
            self._lives |= zip(unknown, pool.map(self._lives_of, unknown), strict=True)
        return self._lives

    def _lives_of(self, key: str) -> dict[Life, bytes]:
        store = self._store(key)
        meta = self._meta(key)
        with reading(store.shown):
            return _lives(store, meta)

    def _meta(self, key: str) -> Meta | None:
        """As new as the rows that are known. Of a recording in a store it was read once these were listed."""
        tracker, store = self._offsets.trackers.get(key), self._store(key)
        if tracker is not None and tracker.meta is not None:
            return tracker.meta
        with reading(store.shown):
            return read_meta(store)

    def _store(self, key: str) -> Store:
        tracker = self._offsets.trackers.get(key)
        return self._found[key].store() if tracker is None else tracker.store

    def _rows_between(self, tracker: Tracker, begin: Position, end: Position) -> int:
        """How many rows there are, whether they can be read or not."""
        rows = 0
        for plan in tracker.plans(begin, self._offsets.gaps(tracker)):
            number = plan.ref.number
            stop = plan.end_row if number < end.segment else end.row
            rows += max(0, stop - (begin.row if number == begin.segment else 0)) if number <= end.segment else 0
        return rows

    def _find(self) -> None:
        """Look which recordings there are, and which of them may have new rows: a recording whose files are those that
        it had when all of it was read has none, and is not opened. Raises if there is none and there must be one."""
        wanted, trackers = self._reading, self._trackers
        by_address = {one.location: one for one in self._known.values()}
        with reading(wanted.path):
            listed = look_for(wanted.path, must_exist=wanted.must_exist, storage=wanted.storage)
        if wanted.incident is not None:
            there, listed = listed, look_for_incidents(listed, wanted.incident)
            if not listed and wanted.must_exist:
                raise RecordingNotFound(
                    f"no incident that is over matches {wanted.incident!r} in {', '.join(there)}: ringmain info lists "
                    "them"
                )
        present = {one.address for one in listed.values()}
        moved = {one.identity: one for one in self._known.values() if one.identity and one.location not in present}
        taken = {tracker.store: key for key, tracker in trackers.items()}
        self._found = {}
        active: dict[str, Tracker] = {}
        for path_key, one in listed.items():
            known = by_address.get(one.address)
            if known is not None and known.seen == one.state and known.recording not in self._unread:
                self._found[known.recording] = one
                continue
            store = one.store()
            key = taken.get(store)
            meta = None
            if key is None or store.directory is None:
                with reading(store.shown):
                    meta = read_meta(store)
            if key is None:
                identity = _identity(store, meta)
                if known is None or (known.identity and identity and known.identity != identity):
                    known = moved.get(identity)
                key = known.recording if known is not None else path_key
                if known is None and (path_key in self._known or path_key in trackers):
                    key = f"{_location(store)}@{identity}"
                self._identities[key] = identity
                trackers[key] = Tracker(key, store)
            trackers[key].hold(one.listed, meta if store.directory is None else None)  # here, it grows meanwhile
            self._found[key], active[key] = one, trackers[key]
        for key, tracker in trackers.items():
            if key not in self._found and not (key in self._known and self._known[key].seen):
                active[key] = tracker  # it is gone: what is not read of it is an error
        self._offsets.trackers = active
        now = time.time_ns() // 1000
        for key, source in self._known.items():
            if key in self._found:
                source.gone_us = None
            elif source.gone_us is None and wanted.incident is None and covers(wanted.path, source.location):
                source.gone_us = now


def _is_new(one: Source, known: Source | None) -> bool:
    """Has the ledger to know it?"""
    return (
        known is None
        or one.begin != one.end
        or (one.seen, one.location, one.end) != (known.seen, known.location, known.end)
    )


def _untouched(one: Source) -> Source:
    """The same recording in the next batch, which has read nothing of it yet."""
    return msgspec.structs.replace(one, begin=one.end, rows=0, damaged=0)


def _location(store: Store) -> str:
    """Its address, without a name and password that are in a URI."""
    address = str(store.directory.absolute()) if store.directory is not None else shown(store.sealed_uri)
    return address if store.kept is None else address_of(address, store.kept.incident)


def _identity(store: Store, meta: Meta | None) -> str:
    if meta is None or not meta.sessions:
        return ""
    first = meta.sessions[0]
    identity = f"{meta.recorder}:{first.host}:{first.pid}:{first.clocks.wall_ns}"
    return identity if store.kept is None else address_of(identity, store.kept.incident)


def _lives(store: Store, meta: Meta | None) -> dict[Life, bytes]:
    if meta is not None:
        return {(entry.name, entry.epoch): entry.schema for entry in meta.topics}
    found: dict[Life, bytes] = {}
    for ref in list_segments(store):
        segment = ref.open()
        found |= {(stats.topic, stats.epoch): b"" for stats in segment.stats()}
        segment.close()
    return found


def as_path(recordings: str | Path | list[str | Path]) -> str:
    return ",".join(map(str, recordings)) if isinstance(recordings, list) else str(recordings)
