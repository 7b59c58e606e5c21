"""The recordings at a location: a recording, those below a directory, those that match a pattern, or several of these
separated by commas.

The invariant owned here: a recording's *key*, its path below the fixed part of the location, names it in Spark's
checkpoints. It stays the same when the whole tree is moved, and when more recordings are added beside it.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections.abc import Mapping
from pathlib import Path

from pyarrow import fs as pafs

from ringmain.errors import RecordingNotFound
from ringmain.recording import Store
from ringmain.recording._format import META, parse_segment_name
from ringmain.recording._segment.object_store import open_filesystem

SELF = "."


def find_recordings(
    path: str, *, must_exist: bool = True, storage: Mapping[str, str] | None = None
) -> dict[str, Store]:
    """{key: store} of every recording at the location now. Call it again to find recordings added later."""
    if "," in path and not os.path.exists(path):
        several: dict[str, Store] = {}
        for part in path.split(","):
            for key, store in find_recordings(part.strip(), must_exist=must_exist, storage=storage).items():
                several[part.strip() if key == SELF else os.path.join(part.strip(), key)] = store
        return several
    path = path.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        return _in_store(path, must_exist, storage or {})
    base = _fixed_part(path)
    found: dict[str, Store] = {}
    for candidate in sorted(glob.glob(path)) if glob.has_magic(path) else [path]:
        for directory in _recordings_below(Path(candidate)):
            found[os.path.relpath(directory, base)] = Store.of(directory, storage)
    if not found and (must_exist or not Path(base).is_dir()):
        raise RecordingNotFound(
            f"no recording at {path}: neither it nor a directory below it has a {META} or a segment. "
            "Give the directory that the recorder writes to, or one above it"
        )
    return found


def _in_store(uri: str, must_exist: bool, storage: Mapping[str, str]) -> dict[str, Store]:
    """The recordings at or below an address in an object store, by one listing."""
    address, question, options = uri.partition("?")
    address = address.rstrip("/")
    filesystem, base = open_filesystem(f"{address}{question}{options}", storage)
    listed = filesystem.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True))
    folders = {
        os.path.relpath(os.path.dirname(info.path), base)
        for info in listed
        if info.is_file and (info.base_name == META or parse_segment_name(info.base_name))
    }
    outer = sorted(f for f in folders if not any(f != other and _is_below(f, other) for other in folders))
    if not outer and must_exist:
        raise RecordingNotFound(
            f"no recording at {address}: neither it nor a folder below it has a {META} or a segment"
        )
    return {f: Store.of(uri if f == SELF else f"{address}/{f}{question}{options}", storage) for f in outer}


def _is_below(folder: str, other: str) -> bool:
    return other == SELF or folder.startswith(f"{other}/")


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


def _recordings_below(directory: Path) -> list[Path]:
    found = []
    for root, folders, files in os.walk(directory):
        if META in files or any(parse_segment_name(name) for name in files):
            found.append(Path(root))
            folders.clear()  # everything inside a recording belongs to it
        else:
            folders.sort()
    return found
