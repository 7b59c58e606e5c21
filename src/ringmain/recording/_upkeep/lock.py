"""The lock that admits one recorder to a directory.

It is `flock` on DIR/lock: the kernel drops it when the last descriptor closes, however the process ends; a pid file
could be stale. A forked child inherits the descriptor, and with it the lock, so it closes the descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import weakref
from pathlib import Path

from ringmain import _file_lock, _names
from ringmain.errors import RecorderBusy
from ringmain.recording._format import LOCK

_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


class DirectoryLock:
    """Held from construction until `release()` or the death of the process."""

    def __init__(self, directory: Path) -> None:
        path = directory / LOCK
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _describe(os.pread(self._fd, 4096, 0))
            os.close(self._fd)
            self._fd = -1
            raise RecorderBusy(
                errno.EWOULDBLOCK,
                f"{directory} is being recorded to by {owner}; stop that recorder, or record to another directory",
            ) from None
        who = json.dumps({"pid": os.getpid(), "pid_namespace": _names.pid_namespace(), "host": socket.gethostname()})
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, who.encode(), 0)
        _held.add(self)

    @property
    def held(self) -> bool:
        return self._fd >= 0

    def release(self) -> None:
        if self._fd >= 0:
            # Closing is not enough: a child forked just now may still have the descriptor.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the descriptor without unlocking, in a forked child whose parent holds the lock."""
        os.close(self._fd)
        self._fd = -1
        _held.discard(self)


def _describe(owner: bytes) -> str:
    """The recorder that wrote this. It may be on another host, or in another container of this one."""
    try:
        who = json.loads(owner)
        pid, host = int(who["pid"]), str(who["host"])
        elsewhere = "" if host == socket.gethostname() else f" on host {host}"
        return _names.describe_pid(pid, int(who.get("pid_namespace", 0))) + elsewhere
    except (ValueError, TypeError, KeyError, AttributeError):
        return "another process"


def recorder_pid(directory: Path) -> str:
    """The pid, in its own namespace, of the recorder that has or last had the lock; empty if it is not known."""
    try:
        return str(json.loads((directory / LOCK).read_bytes())["pid"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""


def is_locked(directory: Path) -> bool:
    """Does a recorder run on this directory?"""
    return _file_lock.is_locked(directory / LOCK)


def _close_in_child() -> None:
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_close_in_child)
