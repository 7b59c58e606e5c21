"""The recordings at a location: a recording, those below a directory, those that match a pattern, or several of these
separated by commas.

The invariant owned here: a recording's *key*, its path below the fixed part of the location, names it in Spark's
checkpoints. It stays the same when the whole tree is moved, and when more recordings are added beside it.
"""

from __future__ import annotations

import glob
import itertools
import os
from pathlib import Path

from ringmain.errors import RecordingNotFound
from ringmain.recording import Store
from ringmain.recording._format import META, parse_segment_name

SELF = "."


def find_recordings(path: str, *, must_exist: bool = True) -> dict[str, Store]:
    """{key: store} of every recording at the location now. Call it again to find recordings added later."""
    if "," in path and not os.path.exists(path):
        several: dict[str, Store] = {}
        for part in path.split(","):
            for key, store in find_recordings(part.strip(), must_exist=must_exist).items():
                several[part.strip() if key == SELF else os.path.join(part.strip(), key)] = store
        return several
    path = path.removeprefix("file://").removeprefix("file:")
    if "://" in path:
        return {SELF: Store.of(path)}
    base = _fixed_part(path)
    found: dict[str, Store] = {}
    for candidate in sorted(glob.glob(path)) if glob.has_magic(path) else [path]:
        for directory in _recordings_below(Path(candidate)):
            found[os.path.relpath(directory, base)] = Store.of(directory)
    if not found and (must_exist or not Path(base).is_dir()):
        raise RecordingNotFound(
            f"no recording at {path}: neither it nor a directory below it has a {META} or a segment. "
            "Give the directory that the recorder writes to, or one above it"
        )
    return found


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
