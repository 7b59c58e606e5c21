"""The batches that the spool's thread has, and may not have written yet.

The invariant owned here: what waits for a batch to be written is called once, in the order of the batches.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ringmain._recording import Spool
from ringmain.recording._format import BEGINNING, Position


class _Batch(NamedTuple):
    number: int
    rows: int
    then: Position
    """The position after it."""
    written: list[Callable[[], None]]


class InSpool:
    """In the order in which they were given to it."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._batches: deque[_Batch] = deque()
        self.position = BEGINNING  # after the last row that is in the file

    def __bool__(self) -> bool:
        return bool(self._batches)

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self._batches)

    def add(self, number: int, rows: int, then: Position, written: list[Callable[[], None]]) -> None:
        self._batches.append(_Batch(number, rows, then, written))

    def tell_after_last(self, written: Callable[[], None]) -> None:
        """Call it once the last of them is written."""
        self._batches[-1].written.append(written)

    def note_written(self) -> None:
        """Forget those that are in the file by now."""
        written = self._spool.written
        while self._batches and self._batches[0].number <= written:
            done = self._batches.popleft()
            self.position = done.then
            call_all(done.written)

    def clear(self) -> list[Callable[[], None]]:
        """Forget all. Returns what was to be called."""
        left = [call for batch in self._batches for call in batch.written]
        self._batches.clear()
        return left


def call_all(calls: Sequence[Callable[[], None]]) -> None:
    """All are called, even if one raises."""
    with contextlib.ExitStack() as stack:
        for call in reversed(calls):
            stack.callback(call)
