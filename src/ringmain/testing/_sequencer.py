"""`Sequencer`: forces an order between processes or threads.

Owns this invariant: a step begins only after the one before it has ended, wherever each of them is. A step is a pipe
with a name: a byte in it says "your turn". So waiting is the kernel's, it has a time limit, and Ctrl-C works.
"""

from __future__ import annotations

import os
import select
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ringmain._closing import Closing
from ringmain.errors import Timeout

PATIENCE_S = 30.0


class Sequencer(Closing):
    """`order = Sequencer(["writer opens", "reader opens", "writer sends"])`, then, wherever it happens:

        with order("reader opens"):
            sub = rm.Subscriber("x")

    It can be passed to other processes. Whoever made it closes it.
    """

    def __init__(self, steps: Sequence[str]) -> None:
        if len(set(steps)) != len(steps) or not steps:
            raise ValueError(f"the steps of a sequence have different names, at least one: {list(steps)}")
        self._open([*steps], tempfile.mkdtemp(prefix="ringmain-order-"), os.getpid())
        for index in range(len(steps) + 1):
            os.mkfifo(self._path(index))
        # A pipe forgets its bytes when nobody has it open: its maker does, as long as the sequence lives.
        self._ends = [os.open(self._path(index), os.O_RDWR | os.O_CLOEXEC) for index in range(len(steps) + 1)]
        os.write(self._ends[0], b".")

    _ends: list[int]

    def _open(self, steps: list[str], directory: str, maker: int) -> None:
        self.steps, self._directory, self._maker = steps, directory, maker
        self._ends = []

    def _path(self, index: int) -> str:
        return os.path.join(self._directory, str(index))

    @contextmanager
    def __call__(self, step: str, timeout: float = PATIENCE_S) -> Iterator[None]:
        """Wait for the step's turn; when the block is left, the next has its turn. On an exception it has not."""
        if step not in self.steps:
            raise ValueError(f"{step!r} is not one of the steps {self.steps}")
        index = self.steps.index(step)
        mine = os.open(self._path(index), os.O_RDWR | os.O_CLOEXEC)
        try:
            if not select.select([mine], [], [], timeout)[0]:
                raise Timeout(f"it was not the turn of {step!r} within {timeout:g} s: {self._how_far()}")
            os.read(mine, 1)
        finally:
            os.close(mine)
        yield
        following = os.open(self._path(index + 1), os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(following, b".")
        finally:
            os.close(following)

    def done(self, step: str, timeout: float = PATIENCE_S) -> None:
        """A step that is nothing but a point to pass."""
        with self(step, timeout):
            pass

    def _how_far(self) -> str:
        for index, step in enumerate(self.steps):
            end = os.open(self._path(index), os.O_RDWR | os.O_CLOEXEC)
            try:
                if select.select([end], [], [], 0)[0]:
                    return f"{step!r} has not begun"
            finally:
                os.close(end)
        return "a step before it has begun and not ended, or it was done already"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.steps, self._directory, self._maker)

    def close(self) -> None:
        """In the process that made it: take it away."""
        for end in self._ends:
            os.close(end)
        self._ends = []
        if os.getpid() == self._maker:
            shutil.rmtree(self._directory, ignore_errors=True)


def _rebuild(steps: list[str], directory: str, maker: int) -> Sequencer:
    sequencer = Sequencer.__new__(Sequencer)
    sequencer._open(steps, directory, maker)
    return sequencer
