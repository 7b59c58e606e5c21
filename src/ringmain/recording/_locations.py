"""The recordings at a location: a recording, those below a directory, those that match a pattern, or several of these
separated by commas.

The invariant owned here: a recording's *key*, its path below the fixed part of the location, names it in Spark's
checkpoints and in ledgers. It stays the same when the whole tree is moved, and when more recordings are added beside
it.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from pyarrow import fs as pafs

from ringmain.errors import RecordingNotFound
from ringmain.recording._format import INCIDENTS, META, RETIRED, parse_segment_name
from ringmain.recording._segment.object_store import open_filesystem
from ringmain.recording._segment.store import Store, reading, shown
from ringmain.recording._upkeep.incidents import (
    Incident,
    choose_incident,
    find_incident,
    incidents_in,
    store_of,
)

SELF = "."
_OF_INCIDENT = "#incident="


@dataclass(frozen=True)
class Found:
    """A recording, as a listing has it. Nothing of it has been read."""

    location: str
    """What `Store.of` takes."""
    state: str
    """Of the names, sizes and times of its files. As long as it is the same, there are no new rows and no new
    incidents."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    listed: tuple[pafs.FileInfo, ...] | None = None
    """Its files, if it is in a store."""
    incident: Incident | None = None
    """It is what this one has."""
    has_incidents: bool = False

    @cached_property
    def address(self) -> str:
        """Without a name and password that are in a URI."""
        address = shown(self.location) if "://" in self.location else str(Path(self.location).absolute())
        return address if self.incident is None else address_of(address, self.incident.id)

    def store(self) -> Store:
        store = Store.of(self.location, self.storage)
        return store if self.incident is None else store_of(store, self.incident)


def address_of(address: str, incident: str) -> str:
    """Of an incident in the recording at this address; also a recording's key is made that of an incident."""
    return f"{address}{_OF_INCIDENT}{incident}"


def recording_of(key: str) -> str:
    """The key of the recording that this is, or is an incident of."""
    return key.partition(_OF_INCIDENT)[0]


def store_at(address: str, storage: Mapping[str, str]) -> Store:
    """The recording, or incident of one, that was found at this address."""
    location, found, incident = address.rpartition(_OF_INCIDENT)
    if not found:
        return Store.of(address, storage)
    store = Store.of(location, storage)
    return store_of(store, find_incident(store, incident))


def find_recordings(
    path: str, *, must_exist: bool = True, storage: Mapping[str, str] | None = None, incident: str | None = None
) -> dict[str, Store]:
    """{key: store} of every recording at the location now. Call it again to find recordings added later. Of one
    `incident`, by its id or a part of it: those that have it, and of them only that."""
    stores = {key: one.store() for key, one in look_for(path, must_exist=must_exist, storage=storage).items()}
    if incident is None:
        return stores
    known = {key: incidents_in(store) for key, store in stores.items()}
    found = {
        key: store_of(stores[key], choose_incident(several, incident))
        for key, several in known.items()
        if any(incident in one.id for one in several)
    }
    if not found and must_exist:
        choose_incident([one for several in known.values() for one in several], incident)
    return found


def look_for_incidents(found: Mapping[str, Found], wanted: str) -> dict[str, Found]:
    """Of these recordings, the incidents that are over and whose ids match: a pattern, or what is in them."""
    pattern = wanted if any(character in wanted for character in "*?[") else f"*{wanted}*"
    kept: dict[str, Found] = {}
    for key, one in found.items():
        with reading(one.address):
            known = incidents_in(one.store())
        for incident in known:
            if not incident.is_open and fnmatchcase(incident.id, pattern):
                kept[address_of(key, incident.id)] = replace(one, state=incident.crc, listed=None, incident=incident)
    return kept


def look_for(path: str, *, must_exist: bool = True, storage: Mapping[str, str] | None = None) -> dict[str, Found]:
    """The same without opening any: one listing of each place."""
    if "," in path and not os.path.exists(path):
        several: dict[str, Found] = {}
        for part in path.split(","):
            for key, one in look_for(part.strip(), must_exist=must_exist, storage=storage).items():
                several[part.strip() if key == SELF else os.path.join(part.strip(), key)] = one
        return several
    path = path.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        return _in_store(path, must_exist, storage or {})
    base = _fixed_part(path)
    found: dict[str, Found] = {}
    for candidate in sorted(glob.glob(path)) if glob.has_magic(path) else [path]:
        above = os.path.relpath(candidate, base)
        for directory, state, has_incidents in _recordings_below(candidate):
            inside = directory[len(candidate) :].lstrip("/")  # `relpath` of thousands of them takes a second
            key = inside if above == SELF and inside else os.path.join(above, inside).rstrip("/")
            found[key] = Found(directory, state, storage or {}, has_incidents=has_incidents)
    if not found and (must_exist or not Path(base).is_dir()):
        raise RecordingNotFound(
            f"no recording at {path}: neither it nor a directory below it has a {META} or a segment. "
            "Give the directory that the recorder writes to, or one above it"
        )
    return found


def _in_store(uri: str, must_exist: bool, storage: Mapping[str, str]) -> dict[str, Found]:
    """The recordings at or below an address in an object store, by one listing."""
    address, question, options = uri.partition("?")
    address = address.rstrip("/")
    filesystem, base = open_filesystem(f"{address}{question}{options}", storage)
    folders: dict[str, list[pafs.FileInfo]] = {}
    manifests: dict[str, list[pafs.FileInfo]] = {}
    for info in filesystem.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True)):
        folder, inside = os.path.split(os.path.relpath(os.path.dirname(info.path), base))
        if info.is_file and inside == INCIDENTS:
            manifests.setdefault(folder or SELF, []).append(info)
        elif info.is_file and _matters(info.base_name):
            folders.setdefault(os.path.join(folder, inside), []).append(info)
    named = {f: infos for f, infos in folders.items() if any(_shows(info.base_name) for info in infos)}
    if not named and must_exist:
        raise RecordingNotFound(
            f"no recording at {address}: neither it nor a folder below it has a {META} or a segment"
        )
    found = {}
    for folder in sorted(named, key=lambda folder: (folder != SELF, folder)):
        if any(above in found for above in _above(folder)):
            continue  # everything inside a recording belongs to it
        kept = manifests.get(folder, [])
        state = _state((info.base_name, info.size, info.mtime_ns or 0) for info in (*named[folder], *kept))
        location = uri if folder == SELF else f"{address}/{folder}{question}{options}"
        found[folder] = Found(location, state, storage, tuple(named[folder]), has_incidents=bool(kept))
    return found


def _above(folder: str) -> list[str]:
    """All folders that it is in."""
    parts = folder.split("/")
    return [] if folder == SELF else [SELF, *("/".join(parts[:n]) for n in range(1, len(parts)))]


def _shows(name: str) -> bool:
    """Is a folder with such a file a recording?"""
    return name == META or parse_segment_name(name) is not None


def _matters(name: str) -> bool:
    """Is what such a file says a reason to look at the recording again?"""
    return name == RETIRED or _shows(name)


def _state(files: Iterable[tuple[str, int, int]]) -> str:
    text = "\n".join(f"{name} {size} {time_ns}" for name, size, time_ns in sorted(files))
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def absolute(path: str) -> str:
    """The same location from any working directory: the JVM's, whose child processes read it, may be another."""
    if os.path.exists(path):
        return os.path.abspath(path)
    parts = [part.strip() for part in path.split(",")]
    return ",".join(part if ":/" in part else os.path.abspath(part) for part in parts)


def covers(path: str, location: str) -> bool:
    """Would a recording at this location be found, if it were there?"""
    for part in path.split(","):
        fixed = part.strip().removeprefix("file://").removeprefix("file:")
        if "://" not in fixed and not glob.has_magic(fixed):
            fixed = os.path.abspath(fixed)
        fixed = shown(fixed.partition("?")[0] if "://" in fixed else fixed).rstrip("/")
        if location == fixed or location.startswith(f"{fixed}/"):
            return True
    return False


def _fixed_part(path: str) -> str:
    """The part before the first wildcard."""
    fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), Path(path).parts))
    return str(Path(*fixed)) if fixed else SELF


def _recordings_below(directory: str) -> Iterator[tuple[str, str, bool]]:
    """(directory, state, has it a folder of incidents) of each."""
    try:
        with os.scandir(directory) as entries:
            listed = list(entries)
    except OSError:
        return
    shows = [entry for entry in listed if _shows(entry.name)]
    if any(not entry.is_dir() for entry in shows):
        more = [entry for entry in listed if entry.name in (RETIRED, INCIDENTS)]
        yield directory, _state(map(_described, shows + more)), any(entry.name == INCIDENTS for entry in more)
        return  # everything inside a recording belongs to it
    for folder in sorted(entry.path for entry in listed if entry.is_dir(follow_symlinks=False)):
        yield from _recordings_below(folder)


def _described(entry: os.DirEntry[str]) -> tuple[str, int, int]:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return entry.name, -1, 0  # it has moved on just now, so the next listing has another state
    return entry.name, status.st_size, status.st_mtime_ns
