"""Where a recording's bytes are handed over: to a thread that writes them while the next are prepared, if there is
native code, and to the kernel at once otherwise."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from typing_extensions import Buffer


class PlainSpool:
    """Writes at once."""

    def __init__(self) -> None:
        self.written = 0

    def put(self, fd: int, pieces: Sequence[Buffer], ahead: int = 0) -> int:
        total = sum(memoryview(piece).nbytes for piece in pieces)
        done = os.writev(fd, pieces)
        if done < total:  # rare: the disk is nearly full, or there are more than 2 GiB
            rest = memoryview(b"".join(pieces))[done:]
            while rest:
                rest = rest[os.write(fd, rest) :]
        self.written += 1
        return self.written

    def wait(self) -> None:
        pass


if TYPE_CHECKING:
    from ringmain._recording import Spool as Spool
else:
    try:
        from ringmain._recording import Spool as Spool
    except ImportError:
        Spool = PlainSpool
