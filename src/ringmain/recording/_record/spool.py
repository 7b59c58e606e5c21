"""Where a recording's bytes are handed over: to a thread that writes them while the next are prepared, if there is
native code, and to the kernel at once otherwise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import Buffer

_MOST_PIECES = 1024  # in one system call


class PlainSpool:
    """Writes at once."""

    def __init__(self) -> None:
        self.written = 0
        self._error: OSError | None = None

    @property
    def failed(self) -> bool:
        return self._error is not None

    def put(self, fd: int, pieces: Sequence[Buffer], ahead: int = 0) -> int:
        self.wait()
        try:
            for first in range(0, len(pieces), _MOST_PIECES):
                _write(fd, pieces[first : first + _MOST_PIECES])
        except OSError as error:
            self._error = error
            raise
        self.written += 1
        return self.written

    def wait(self) -> None:
        if self._error is not None:
            raise self._error


def _write(fd: int, pieces: Sequence[Buffer]) -> None:
    total = sum(memoryview(piece).nbytes for piece in pieces)
    done = os.writev(fd, pieces)
    if done < total:  # rare: the disk is nearly full, or there are more than 2 GiB
        rest = memoryview(b"".join(pieces))[done:]
        while rest:
            rest = rest[os.write(fd, rest) :]


if TYPE_CHECKING:
    from ringmain._recording import Spool as Spool
else:
    try:
        from ringmain._recording import Spool as Spool
    except ImportError:
        Spool = PlainSpool
