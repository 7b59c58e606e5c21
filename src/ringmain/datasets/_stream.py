"""`WindowStream`: windows in the order in which episodes come, without a file: for data that is read once, or that is
still being recorded.

The invariant owned here: *memory is that of one episode*, and what a shard does not have, it does not read.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ringmain.datasets._episodes import Episodes, Span
from ringmain.datasets._feed import Feed, open_feed
from ringmain.datasets._following import following
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
    follow: the source is still written: go on with the episodes that come, each once all of it is there, until
    `close()`. That is when each topic has a message after its end, or another one has for `settle_s`, or nothing has
    come for `settle_s`. Episodes come as they end, also with `shuffle`.
    idle_timeout_s: with `follow`, end when nothing has come for so long.
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
        follow: bool = False,
        settle_s: float = 2.0,
        idle_timeout_s: float | None = None,
    ) -> None:
        check_window(length, stride)
        if ranks < 1 or not 0 <= rank < ranks:
            raise InvalidArgument(f"rank={rank} of ranks={ranks}: ranks count from 0")
        if settle_s <= 0 or (idle_timeout_s is not None and (idle_timeout_s <= 0 or not follow)):
            raise InvalidArgument(
                f"settle_s={settle_s:g}, idle_timeout_s={idle_timeout_s}: seconds, above 0; they are of follow=True"
            )
        self._opened = partial(open_feed, source, table, grid, episodes)
        self._feed = self._opened()
        self._features = chosen_features(self._feed, topics, newest, ages)
        self.length, self.stride, self.tensors = length, stride, tensors
        self.shuffle, self.seed, self.rank, self.ranks = shuffle, seed, rank, ranks
        self.follow, self._settle_s, self._idle_timeout_s = follow, settle_s, idle_timeout_s
        self.epoch = 0
        self._at = (0, 0)
        self._after: dict[str, tuple[int, int]] = {}
        self._in = ("", 0)
        self._closed = False
        self.left_out: dict[str, str] = {}
        """What the topics have besides, as far as it was seen, and why no window has it."""
        self.refused: Counter[str] = Counter()
        """How many episodes were refused so far, for each kind of hole."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self.follow:
            yield from self._followed()
            return
        spans = self._feed.spans()
        order = np.arange(len(spans))
        if self.shuffle:
            order = np.random.default_rng([self.seed, self.epoch]).permutation(len(spans))
        mine = order[self.rank :: self.ranks].tolist()
        while self._at[0] < len(mine):
            position, taken = self._at
            for n, window in self._windows_of(self._feed, spans[mine[position]], mine[position], taken):
                self._at = (position, n)
                yield window
            self._at = (position + 1, 0)
        self.epoch, self._at = self.epoch + 1, (0, 0)

    def _followed(self) -> Iterator[dict[str, Any]]:
        """A rank has the episodes whose names it draws: which come first, each rank may see differently."""
        found = following(self._opened, self._after, self._settle_s, self._idle_timeout_s, lambda: self._closed)
        try:
            for feed, span in found:
                number = zlib.crc32(span.id.encode())
                if number % self.ranks == self.rank:
                    taken = self._in[1] if self._in[0] == span.id else 0
                    for n, window in self._windows_of(feed, span, number, taken):
                        self._in = (span.id, n)
                        yield window
                        if self._closed:
                            return
                self._after[span.host] = (span.begin_us, span.end_us)
        finally:
            self._closed = False

    def close(self) -> None:
        """End a loop with `follow`, also from another thread. Another loop goes on there."""
        self._closed = True

    def _windows_of(self, feed: Feed, span: Span, number: int, taken: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """(how many of an episode were given then, a window), after those that were `taken`."""
        verdict, cells = feed.load(span)
        self.refused.update(verdict.holes if verdict.refused else ())
        runs = [] if cells is None else list(whole_runs(cells, self._features.topics))
        leaves: dict[int, dict[str, Leaf]] = {}
        windows = [
            (first, end, at) for first, end in runs for at in range(0, end - first - self.length + 1, self.stride)
        ]
        if self.shuffle:
            mixed = np.random.default_rng([self.seed, self.epoch, number]).permutation(len(windows))
            windows = [windows[n] for n in mixed.tolist()]
        for n, (first, end, at) in enumerate(windows[taken:], taken + 1):
            if first not in leaves:
                assert cells is not None
                leaves[first] = self._features.of(cells.slice(first, end - first), self.left_out)
            yield n, self._window(leaves[first], at)

    def _window(self, leaves: Mapping[str, Leaf], at: int) -> dict[str, Any]:
        found = {name: _steps(leaf, at, self.length) for name, leaf in leaves.items() if name not in self.left_out}
        return as_tensors(found) if self.tensors else found

    def state_dict(self) -> dict[str, Any]:
        """Where it is: which epoch, and how many episodes and windows of it were given; with `follow` the last episode
        of each host, and how many windows of the next one."""
        if self.follow:
            after = {host: list(times) for host, times in self._after.items()}
            return {**self._recipe(), "after": after, "episode": self._in[0], "windows": self._in[1]}
        return {**self._recipe(), "epoch": self.epoch, "episodes": self._at[0], "windows": self._at[1]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on there. Raises InvalidArgument if it is the state of another stream."""
        mine = self._recipe()
        if {name: state.get(name) for name in mine} != mine:
            raise InvalidArgument(f"this is the state of another stream: {dict(state)}, and this one is {mine}")
        if self.follow:
            self._after = {host: (begin, end) for host, (begin, end) in state["after"].items()}
            self._in = (state["episode"], state["windows"])
        else:
            self.epoch, self._at = state["epoch"], (state["episodes"], state["windows"])

    def _recipe(self) -> dict[str, Any]:
        names = ("length", "stride", "shuffle", "seed", "rank", "ranks", "follow")
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
