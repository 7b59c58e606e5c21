"""In which order the samples of a data set are taken: shuffled by a seed, divided among ranks, resumable.

The invariant owned here: *the order is a function of seed, epoch and number of samples alone*. So every rank knows the
parts of the others, and a run that was interrupted goes on where it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ringmain.errors import InvalidArgument


class Order:
    """The numbers of samples, epoch after epoch: each `for` loop is an epoch. A sampler for torch's `DataLoader`, too.

    order = windows.order(seed=1)
    for number in order: windows[number]

    Of `ranks` processes each has as many; the last few samples of an epoch are left out if they do not go round.
    """

    def __init__(self, samples: int, *, seed: int = 0, shuffle: bool = True, rank: int = 0, ranks: int = 1) -> None:
        if ranks < 1 or not 0 <= rank < ranks:
            raise InvalidArgument(f"rank={rank} of ranks={ranks}: ranks count from 0")
        if seed < 0:
            raise InvalidArgument(f"seed={seed}: a seed is 0 or more")
        self.samples, self.seed, self.shuffle, self.rank, self.ranks = samples, seed, shuffle, rank, ranks
        self.epoch = 0
        self._taken = 0

    def __len__(self) -> int:
        """How many samples an epoch has, of this rank."""
        return self.samples // self.ranks

    def __iter__(self) -> Iterator[int]:
        numbers = self._of_epoch()
        while self._taken < len(numbers):
            self._taken += 1
            yield int(numbers[self._taken - 1])
        self.epoch, self._taken = self.epoch + 1, 0

    def _of_epoch(self) -> np.ndarray:
        every = np.arange(self.samples)
        if self.shuffle:
            every = np.random.default_rng([self.seed, self.epoch]).permutation(self.samples)
        return every[self.rank : len(self) * self.ranks : self.ranks]

    def batches(self, size: int) -> Iterator[list[int]]:
        """An epoch, or the rest of one, in lists of this size; the last may be shorter. What was yielded is taken."""
        if size < 1:
            raise InvalidArgument(f"size={size}: a batch has 1 sample or more")
        batch: list[int] = []
        for number in self:
            batch.append(number)
            if len(batch) == size:
                yield batch
                batch = []
        if batch:
            yield batch

    def state_dict(self, taken: int | None = None) -> dict[str, int | bool]:
        """Where it is. A `DataLoader` with workers asks for samples ahead of time: `taken` says how many of this rank's
        were trained on in this epoch."""
        return {
            "samples": self.samples, "seed": self.seed, "shuffle": self.shuffle, "rank": self.rank,
            "ranks": self.ranks, "epoch": self.epoch, "taken": self._taken if taken is None else taken,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there. Raises InvalidArgument if it is the state of another order."""
        mine = self.state_dict()
        other = [name for name in mine if name not in ("epoch", "taken") and state.get(name) != mine[name]]
        if other:
            found = ", ".join(f"{name} {state.get(name)!r} and not {mine[name]!r}" for name in other)
            raise InvalidArgument(f"this is the state of another order: it has {found}")
        if not 0 <= state["taken"] <= len(self) or state["epoch"] < 0:
            raise InvalidArgument(f"epoch {state['epoch']} with {state['taken']} taken of {len(self)}: no such state")
        self.epoch, self._taken = state["epoch"], state["taken"]
