"""Is a file locked? Locks (flock) end with the process that holds them, so this says whether that process is alive."""

from __future__ import annotations

import fcntl
import os


def is_locked(path: str | os.PathLike[str]) -> bool:
    """Does a process hold the file's exclusive lock? A file that does not exist is not locked."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
