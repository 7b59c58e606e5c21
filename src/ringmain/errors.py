"""The errors of ringmain: one small family, each also the builtin that a Python person would catch.

Every message says what happened, to which topic or file, and what to do about it.
"""

from __future__ import annotations


class RingmainError(Exception):
    """The root of all errors that ringmain raises on purpose."""


class RecordingError(RingmainError, OSError):
    """A recording could not be written or reached: disk full, directory gone, no permission."""


class RecordingNotFound(RecordingError, FileNotFoundError):
    """There is no recording at this path, or the segment asked for is no longer in it."""


class RecordingCorrupt(RingmainError, ValueError):
    """Bytes of a recording fail their checksum; `Recording.verify()` says which rows are affected."""


class RecorderBusy(RingmainError, BlockingIOError):
    """Another living recorder holds the directory; a directory has one recorder at a time."""
