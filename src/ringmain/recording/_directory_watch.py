"""Waiting for a directory to change: with inotify, or with growing pauses where it cannot be watched.

The invariant owned here: every wait is bounded and its caller looks again, so a lost event causes a delay, not a hang.
"""

from __future__ import annotations

import ctypes
import os
import select
import time
from pathlib import Path

_IN_MODIFY, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE_SELF = 0x2, 0x80, 0x100, 0x400
_IN_NONBLOCK, _IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_LONGEST_WAIT_S = 1.0
_SHORTEST_PAUSE_S = 0.01


class DirectoryWatch:
    """Waits until a directory may have changed. `None` stands for a location that cannot be watched."""

    def __init__(self, directory: Path | None) -> None:
        self._fd = _open_inotify(directory) if directory is not None else -1
        self._pause_s = _SHORTEST_PAUSE_S

    def wait(self, timeout_s: float | None = None) -> None:
        """Return after a change, after `timeout_s`, or after a second at the latest."""
        limit_s = _LONGEST_WAIT_S if timeout_s is None else max(0.0, min(timeout_s, _LONGEST_WAIT_S))
        if self._fd < 0:
            time.sleep(min(self._pause_s, limit_s))
            self._pause_s = min(2 * self._pause_s, _LONGEST_WAIT_S)
            return
        if select.select([self._fd], [], [], limit_s)[0]:
            self._drain()

    def found_something(self) -> None:
        """The caller found a change: pauses, where used, start short again."""
        self._pause_s = _SHORTEST_PAUSE_S

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        try:
            while os.read(self._fd, 65536):
                pass
        except BlockingIOError:
            pass

    def __enter__(self) -> DirectoryWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open_inotify(directory: Path) -> int:
    """A descriptor that becomes readable on changes; -1 where the system refuses one."""
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        fd = int(libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC))
    except AttributeError:
        return -1
    if fd < 0:
        return -1
    mask = _IN_MODIFY | _IN_MOVED_TO | _IN_CREATE | _IN_DELETE_SELF
    if libc.inotify_add_watch(fd, os.fsencode(directory), mask) < 0:
        os.close(fd)
        return -1
    return fd
