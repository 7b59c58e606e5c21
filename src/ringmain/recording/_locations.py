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
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs as pafs

from ringmain.errors import RecordingNotFound
from ringmain.recording._format import META, RETIRED, parse_segment_name
from ringmain.recording._segment.object_store import open_filesystem
from ringmain.recording._segment.store import Store, shown

SELF = "."


@dataclass(frozen=True)
class Found:
    """A recording, as a listing has it. Nothing of it has been read."""

    location: str
    """What `Store.of` takes."""
    state: str
    """Of the names, sizes and times of its files. As long as it is the same, there are no new rows."""
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    listed: tuple[pafs.FileInfo, ...] | None = None
    """Its files, if it is in a store."""

    @property
    def address(self) -> str:
        """Without a name and password that are in a URI."""
        if "://" in self.location:
            return shown(self.location)
        return self.location if os.path.isabs(self.location) else str(Path(self.location).absolute())

    def store(self) -> Store:
        return Store.of(self.location, self.storage)


def find_recordings(
    path: str, *, must_exist: bool = True, storage: Mapping[str, str] | None = None
) -> dict[str, Store]:
    """{key: store} of every recording at the location now. Call it again to find recordings added later."""
    return {key: one.store() for key, one in look_for(path, must_exist=must_exist, storage=storage).items()}


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
        for directory, state in _recordings_below(candidate):
            found[os.path.relpath(directory, base)] = Found(directory, state, storage or {})
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
    for info in filesystem.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True)):
        if info.is_file and _matters(info.base_name):
            folders.setdefault(os.path.relpath(os.path.dirname(info.path), base), []).append(info)
    named = {f: infos for f, infos in folders.items() if any(_shows(info.base_name) for info in infos)}
    if not named and must_exist:
        raise RecordingNotFound(
            f"no recording at {address}: neither it nor a folder below it has a {META} or a segment"
        )
    found = {}
    for folder in sorted(named, key=lambda folder: (folder != SELF, folder)):
        if any(above in found for above in _above(folder)):
            continue  # everything inside a recording belongs to it
        state = _state((info.base_name, info.size, info.mtime_ns or 0) for info in named[folder])
        location = uri if folder == SELF else f"{address}/{folder}{question}{options}"
        found[folder] = Found(location, state, storage, tuple(named[folder]))
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


def _fixed_part(path: str) -> str:
    """The part before the first wildcard."""
    fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), Path(path).parts))
    return str(Path(*fixed)) if fixed else SELF


def _recordings_below(directory: str) -> Iterator[tuple[str, str]]:
    """(directory, state) of each."""
    try:
        with os.scandir(directory) as entries:
            listed = list(entries)
    except OSError:
        return
    if any(_shows(entry.name) and not entry.is_dir() for entry in listed):
        yield directory, _state(_described(entry) for entry in listed if _matters(entry.name))
        return  # everything inside a recording belongs to it
    for folder in sorted(entry.path for entry in listed if entry.is_dir(follow_symlinks=False)):
        yield from _recordings_below(folder)


def _described(entry: os.DirEntry[str]) -> tuple[str, int, int]:
    try:
        status = entry.stat()
    except FileNotFoundError:
        return entry.name, -1, 0  # it has moved on just now, so the next listing has another state
    return entry.name, status.st_size, status.st_mtime_ns
