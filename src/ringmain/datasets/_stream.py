"""`WindowStream`: windows in the order in which episodes come, without a file: for data that is read once.

The invariant owned here: *memory is that of one episode*, and what a shard does not have, it does not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ringmain.datasets._episodes import Episodes
from ringmain.datasets._feed import open_feed
from ringmain.datasets._grid import Grid
from ringmain.datasets._leaves import Leaf, Repeated, whole_runs
from ringmain.datasets._open import Data
from ringmain.datasets._pictures import decoded
from ringmain.datasets._windows import as_tensors, check_window, chosen_features
from ringmain.errors import InvalidArgument


class WindowStream:
    """The same windows as `Windows` has, episode after episode; each `for` loop is an epoch. `torch()` is an iterable
    data set of torch, whose workers divide the episodes.

    Parameters are those of `Windows`, and:

    shuffle: episodes come in another order each epoch, and so do the windows of each. Windows of different episodes are
    not mixed: `Windows` does that.
    rank, ranks: this process has each `ranks`-th episode.
    """

    def __init__(
        self,
        source: Data,
        *,
        length: int,
        stride: int = 1,
        table: str | None = None,
        grid: Grid | None = None,
        episodes: Episodes | None = None,
        topics: Sequence[str] | None = None,
        newest: Mapping[str, int] | None = None,
        ages: bool = False,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        ranks: int = 1,
        tensors: bool = False,
    ) -> None:
        check_window(length, stride)
        if ranks < 1 or not 0 <= rank < ranks:
            raise InvalidArgument(f"rank={rank} of ranks={ranks}: ranks count from 0")
        self._feed = open_feed(source, table, grid, episodes)
        self._features = chosen_features(self._feed, topics, newest, ages)
        self.length, self.stride, self.tensors = length, stride, tensors
        self.shuffle, self.seed, self.rank, self.ranks = shuffle, seed, rank, ranks
        self.epoch = 0
        self._at = (0, 0)
        self.left_out: dict[str, str] = {}
        """What the topics have besides, as far as it was seen, and why no window has it."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        spans = self._feed.spans()
        order = np.arange(len(spans))
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(len(spans))
        mine = order[self.rank :: self.ranks].tolist()
        while self._at[0] < len(mine):
            position, taken = self._at
            _, cells = self._feed.load(spans[mine[position]])
            runs = [] if cells is None else list(whole_runs(cells, self._features.topics))
            leaves: dict[int, dict[str, Leaf]] = {}
            windows = [
                (first, end, at) for first, end in runs for at in range(0, end - first - self.length + 1, self.stride)
            ]
            if self.shuffle:
                mixed = np.random.default_rng([self.seed, self.epoch, mine[position]]).permutation(len(windows))
                windows = [windows[n] for n in mixed.tolist()]
            for n, (first, end, at) in enumerate(windows[taken:], taken + 1):
                if first not in leaves:
                    assert cells is not None
                    leaves[first] = self._features.of(cells.slice(first, end - first), self.left_out)
                self._at = (position, n)
                yield self._window(leaves[first], at)
            self._at = (position + 1, 0)
        self.epoch, self._at = self.epoch + 1, (0, 0)

    def _window(self, leaves: Mapping[str, Leaf], at: int) -> dict[str, Any]:
        found = {name: _steps(leaf, at, self.length) for name, leaf in leaves.items() if name not in self.left_out}
        return as_tensors(found) if self.tensors else found

    def state_dict(self) -> dict[str, Any]:
        """Where it is: which epoch, and how many episodes and windows of it were given."""
        return {**self._recipe(), "epoch": self.epoch, "episodes": self._at[0], "windows": self._at[1]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there. Raises InvalidArgument if it is the state of another stream."""
        mine = self._recipe()
        if {name: state.get(name) for name in mine} != mine:
            raise InvalidArgument(f"this is the state of another stream: {dict(state)}, and this one is {mine}")
        self.epoch, self._at = state["epoch"], (state["episodes"], state["windows"])

    def _recipe(self) -> dict[str, Any]:
        names = ("length", "stride", "shuffle", "seed", "rank", "ranks")
        return {name: getattr(self, name) for name in names}

    def torch(self) -> Any:
        """As a `torch.utils.data.IterableDataset`."""
        from ringmain.datasets._torch import TorchStream

        return TorchStream(self)


def _steps(leaf: Leaf, at: int, length: int) -> np.ndarray:
    if not isinstance(leaf, Repeated):
        return leaf[at : at + length].copy()  # Arrow's memory cannot be written to, which torch wants
    wanted = leaf.of_step[at : at + length]
    if isinstance(leaf.values, np.ndarray):
        return np.asarray(leaf.values[wanted])
    pictures = {n: decoded(leaf.values[n]) for n in set(wanted.tolist())}
    return np.stack([pictures[n] for n in wanted.tolist()])
