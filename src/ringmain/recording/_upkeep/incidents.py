"""Incidents: what a flight recorder keeps. Each is a manifest, incidents/ID.json, that pins a range of segments.

    trigger ──► manifest: window, first segment ──► ... the window is over, all of it recorded ──► manifest: end

The invariants owned here: nothing is copied, so incidents share segments; retention deletes no segment that one pins;
and an incident is the rows of its range whose publish times are in its window, whether or not it is closed.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ringmain.errors import RecordingError, RecordingNotFound
from ringmain.recording import _checksum
from ringmain.recording._format import INCIDENTS, MAX_SEGMENT, REQUESTS, Position
from ringmain.recording._segment.store import Kept, Store
from ringmain.recording._upkeep.lock import is_locked

_OPEN, _NEVER = -1, MAX_SEGMENT + 1
_MAX_ID = 120


class Incident(msgspec.Struct):
    """One incident, as its file has it."""

    crc: str
    id: str
    name: str
    """Of the trigger."""
    why: str
    """What triggered it, in words."""
    trigger_ns: int
    start_ns: int
    """The window: publish times from here on,"""
    end_ns: int
    """and before this."""
    first_segment: int
    """The oldest segment that has a row of the window."""
    end_segment: int = _OPEN
    """After its last row; -1 while it is open: the window is not over, or not all of it is recorded."""
    end_row: int = 0
    whole_from_ns: int = 0
    """Of rows published before this, some were already deleted when it began; 0 if it has all of its window."""

    @property
    def is_open(self) -> bool:
        return self.end_segment == _OPEN

    @property
    def first(self) -> Position:
        return Position(self.first_segment, 0)

    @property
    def end(self) -> Position | None:
        """The position after its last row; None while it is open."""
        return None if self.is_open else Position(self.end_segment, self.end_row)

    @property
    def segments(self) -> tuple[int, int]:
        """Those that it pins: [first, end)."""
        return self.first_segment, _NEVER if self.is_open else self.end_segment + (self.end_row > 0)

    def pins(self, segment: int) -> bool:
        """Is this segment kept for it?"""
        first, end = self.segments
        return first <= segment < end


class Request(msgspec.Struct):
    """triggers/ID.json: somebody asks the recorder for an incident. It is there until the incident is."""

    crc: str
    id: str
    why: str
    time_ns: int
    name: str = "request"


def incident_id(time_ns: int, name: str) -> str:
    """Sorted by time, and says what it is: 20261118T205500.123456-hard-braking."""
    at = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
    words = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()
    return f"{at:%Y%m%dT%H%M%S}.{time_ns // 1000 % 1_000_000:06d}-{words or 'trigger'}"[:_MAX_ID]


def incidents_in(store: Store) -> list[Incident]:
    """Those of a recording, oldest first."""
    return sorted(_read(store)[0], key=lambda incident: (incident.trigger_ns, incident.id))


def _read(store: Store) -> tuple[list[Incident], bool]:
    """(incidents, does the file of any fail its checksum)."""
    found, damaged = [], False
    for name in store.names_in(INCIDENTS):
        data = store.read(f"{INCIDENTS}/{name}")
        incident = _checksum.load_json(data, Incident) if data is not None else None
        damaged = damaged or (data is not None and incident is None)
        if incident is not None:
            found.append(incident)
    return found, damaged


def find_incident(store: Store, wanted: str) -> Incident:
    """By its id, or by what only one id has in it."""
    return choose_incident(incidents_in(store), wanted)


def choose_incident(known: Sequence[Incident], wanted: str) -> Incident:
    """Of these, by its id or by what only one id has in it."""
    matching = [one for one in known if one.id == wanted] or [one for one in known if wanted in one.id]
    if len(matching) == 1:
        return matching[0]
    there = ", ".join(one.id for one in (matching or known)) or "none"
    problem = "several incidents match" if matching else "there is no incident"
    raise RecordingNotFound(f"{problem} {wanted!r}; there are {there}")


def store_of(store: Store, incident: Incident) -> Store:
    """The recording's store, narrowed to what an incident has."""
    kept = Kept(incident.id, incident.end, incident.start_ns, incident.end_ns)
    return replace(store, pinned=incident.segments, kept=kept)


def pinned_in(store: Store, segments: Collection[int]) -> set[int]:
    """Which of these segments are kept for an incident. All of them, if an incident's file fails its checksum: until it
    is repaired, what it pins is not known."""
    known, damaged = _read(store)
    return {segment for segment in segments if damaged or any(incident.pins(segment) for incident in known)}


def write_incident(directory: Path, incident: Incident, *, sync: bool) -> None:
    """Write its file, new or in place of the one before."""
    (directory / INCIDENTS).mkdir(mode=0o700, exist_ok=True)
    path = directory / INCIDENTS / f"{incident.id}.json"
    _checksum.replace_file(path, _checksum.dump_json(incident), sync=sync)


def forget(path: str | Path, incident: str) -> str:
    """Remove an incident; returns its id. The recorder then deletes its segments as it does others, unless another
    incident pins them."""
    store = Store.of(path)
    if store.directory is None:
        raise ValueError(f"incidents are removed in the recorder's own directory, not in {store.sealed_uri}")
    found = find_incident(store, incident)
    (store.directory / INCIDENTS / f"{found.id}.json").unlink(missing_ok=True)
    return found.id


def trigger(path: str | Path, why: str, *, name: str = "request") -> str:
    """Ask the recorder of this directory for an incident, of now; returns the id that it gets. Raises RecordingError if
    no recorder runs there."""
    directory = Path(path)
    if not directory.is_dir() or not is_locked(directory):
        raise RecordingError(f"no recorder runs on {directory}: start one with triggers, or with --keep")
    time_ns = time.time_ns()
    asked = Request("", incident_id(time_ns, name), why, time_ns, name)
    (directory / REQUESTS).mkdir(mode=0o700, exist_ok=True)
    _checksum.replace_file(directory / REQUESTS / f"{asked.id}.json", _checksum.dump_json(asked))
    return asked.id


def requests_in(directory: Path) -> list[Request]:
    """What the recorder has been asked for and has not done yet; what is not a request is removed."""
    folder, found = directory / REQUESTS, []
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []
    for name in names:
        try:
            asked = _checksum.load_json((folder / name).read_bytes(), Request)
        except FileNotFoundError:
            continue
        if asked is None or f"{asked.id}.json" != name:
            (folder / name).unlink(missing_ok=True)
        else:
            found.append(asked)
    return found


def done(directory: Path, asked: Request) -> None:
    """The incident that was asked for is there."""
    (directory / REQUESTS / f"{asked.id}.json").unlink(missing_ok=True)
