"""`Sequencer`: forces an order between processes or threads.

Owns this invariant: a step begins only after the one before it has ended, in whichever process each of them is. A step
is a named pipe, and a byte in it starts the step. So the kernel does the waiting, with a time limit, and Ctrl-C works.
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
    """`order = Sequencer(["writer opens", "reader opens", "writer sends"])`, then, in any process:

        with order("reader opens"):
            sub = rm.Subscriber("x")

    It can be passed to other processes. The process that made it closes it.
    """

    def __init__(self, steps: Sequence[str]) -> None:
        if len(set(steps)) != len(steps) or not steps:
            raise ValueError(f"the steps of a sequence have different names, at least one: {list(steps)}")
        self._open([*steps], tempfile.mkdtemp(prefix="ringmain-order-"), os.getpid())
        for index in range(len(steps) + 1):
            os.mkfifo(self._path(index))
        # A pipe loses its bytes when no process has it open, so the process that made it keeps it open.
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
        """Wait until the step may begin. The next one may begin when the block is left, but not on an exception."""
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
        """A step without a block."""
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
        """In the process that made it: remove it."""
        for end in self._ends:
            os.close(end)
        self._ends = []
        if os.getpid() == self._maker:
            shutil.rmtree(self._directory, ignore_errors=True)


def _rebuild(steps: list[str], directory: str, maker: int) -> Sequencer:
    sequencer = Sequencer.__new__(Sequencer)
    sequencer._open(steps, directory, maker)
    return sequencer
