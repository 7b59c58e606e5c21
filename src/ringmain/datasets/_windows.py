"""`Windows`: the windows of all episodes, by number.

The first time, every episode is put on the grid and its features are written to a file; from then on windows are read
from that file, mapped. So a window costs little, processes share the pages, and memory does not grow with the data.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from ringmain.datasets._cells import TIME
from ringmain.datasets._episodes import Episodes, Span
from ringmain.datasets._export import Exported, Format, export
from ringmain.datasets._feed import Feed, open_feed
from ringmain.datasets._grid import Grid
from ringmain.datasets._holes import as_rows
from ringmain.datasets._leaves import Features, whole_runs
from ringmain.datasets._lerobot import DEFAULT_CODEC, Recipe
from ringmain.datasets._open import Data
from ringmain.datasets._order import Order
from ringmain.datasets._store import VERSION, Store, StoredEpisode, StoreWriter
from ringmain.errors import InvalidArgument

By = Literal["host", "episode"]
_UNUSED_BYTES = 32 << 20  # of Arrow's, before it is asked to give memory back
_EPISODES = pa.schema(
    [
        ("episode", pa.string()), ("host", pa.string()), ("begin", TIME), ("end", TIME), ("state", pa.string()),
        ("labels", pa.string()), ("windows", pa.int64()),
    ]
)  # fmt: skip


class Feature(NamedTuple):
    """What a window has under a name: an array of `length` steps of this shape."""

    shape: tuple[int, ...]
    dtype: str


class Windows:
    """Windows of `length` steps, one every `stride`, each within one episode and without a null.

    `windows[n]` is a dict of arrays, by topic and field: `state.position` with the shape (length, 2). Frames and
    pictures are arrays, too. It is a map-style data set of torch as it is: `DataLoader(windows, num_workers=4)`. What
    has no fixed shape is not in it; `left_out` says why.

    source: recordings or a lake, with a grid and episodes; or a lake with a table.
    table: the name of a table `train/NAME` that `build` has made.
    topics: those of the grid that a window has; None: all.
    newest: of a topic that is a window of messages the newest so many, with NaN in front where there are fewer.
    ages: also how old each cell is.
    decode: JPEG and PNG are decoded once, when the mapped file is written, and not for each window. The file is as
    large as their pixels.
    cache: a directory for the mapped file, which is used again as long as the data and the recipe are the same. None: a
    temporary one, removed with this object.
    tensors: of torch, and not arrays of numpy.
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
        decode: bool = False,
        cache: str | Path | None = None,
        tensors: bool = False,
    ) -> None:
        check_window(length, stride)
        feed = open_feed(source, table, grid, episodes)
        features = chosen_features(feed, topics, newest, ages)
        self.length, self.stride, self.tensors = length, stride, tensors
        self.hz = feed.hz
        self._store = stored(feed, features, None if cache is None else Path(cache), decode=decode)
        self._choose(range(len(self._store.index.runs)))

    def _choose(self, runs: Sequence[int]) -> None:
        """Have the windows of these runs."""
        known = self._store.index.runs
        self._runs = np.fromiter(runs, np.int64)
        steps = np.fromiter((known[n].steps for n in runs), np.int64)
        self._ends: list[int] = np.cumsum(np.maximum(0, (steps - self.length) // self.stride + 1)).tolist()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, number: int) -> dict[str, Any]:
        run, start = self._where(number)
        found = self._store.read(run, start, self.length)
        return as_tensors(found) if self.tensors else found

    def __getitems__(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        return [self[number] for number in numbers]

    def batch(self, numbers: Sequence[int], *, out: dict[str, Any] | None = None) -> dict[str, Any]:
        """Several windows as one: each array has a first dimension for them.

        out: a batch of as many windows that is no longer needed; it is written over, and given back. New memory for
        each batch costs a tenth of the time."""
        if not len(numbers):
            raise InvalidArgument("a batch has 1 window or more")
        kinds = self._store.index.features
        if out is None:
            made = {name: np.empty((len(numbers), self.length, *kinds[name][1]), kinds[name][0]) for name in kinds}
            out = as_tensors(made) if self.tensors else made
        stacked = {name: np.asarray(values) for name, values in out.items()}
        there = {name: (values.shape, values.dtype) for name, values in stacked.items()}
        if there != {
            name: ((len(numbers), self.length, *shape), np.dtype(dtype)) for name, (dtype, shape) in kinds.items()
        }:
            raise InvalidArgument(f"out is no batch of {len(numbers)} of these windows")
        for n, number in enumerate(numbers):
            for name, values in self._store.read(*self._where(number), self.length).items():
                stacked[name][n] = values
        return out

    def where(self, number: int) -> tuple[str, int]:
        """(the episode of a window, its first step there)."""
        run, start = self._where(number)
        known = self._store.index.runs[run]
        return self._store.index.episodes[known.episode].id, known.first + start

    def _where(self, number: int) -> tuple[int, int]:
        if not -len(self) <= number < len(self):
            raise IndexError(f"window {number} of {len(self)}")
        number = int(number) % len(self)
        which = bisect_right(self._ends, number)
        before = self._ends[which - 1] if which else 0
        return int(self._runs[which]), (number - before) * self.stride

    @property
    def features(self) -> dict[str, Feature]:
        """What a window has."""
        return {
            name: Feature((self.length, *shape), np.dtype(dtype).name)
            for name, (dtype, shape) in self._store.index.features.items()
        }

    @property
    def left_out(self) -> dict[str, str]:
        """What the topics have besides, and why no window has it."""
        return dict(self._store.index.left_out)

    @property
    def episodes(self) -> pa.Table:
        """A row for each episode that windows are of, with how many."""
        counts = dict.fromkeys(range(len(self._store.index.episodes)), 0)
        there = set()
        for run, count in zip(self._runs.tolist(), np.diff(self._ends, prepend=0).tolist(), strict=True):
            episode = self._store.index.runs[run].episode
            counts[episode] += count
            there.add(episode)
        rows = [
            (one.id, one.host, one.begin_us, one.end_us, one.state, one.labels, counts[n])
            for n, one in enumerate(self._store.index.episodes)
            if n in there
        ]
        return pa.Table.from_pylist([dict(zip(_EPISODES.names, row, strict=True)) for row in rows], schema=_EPISODES)

    @property
    def refused(self) -> pa.Table:
        """A row for each episode that no window is of, with the reason; of a part, those of all. `count_holes` counts
        them."""
        return as_rows(self._store.index.refused)

    def order(self, *, seed: int = 0, shuffle: bool = True, rank: int = 0, ranks: int = 1) -> Order:
        """An order of the windows: shuffled by a seed, divided among ranks, resumable."""
        return Order(len(self), seed=seed, shuffle=shuffle, rank=rank, ranks=ranks)

    def split(self, *shares: float, by: By, seed: int = 0) -> list[Windows]:
        """`train, test = windows.split(0.8, 0.2, by="host", seed=1)`: parts that have no host, or no episode, in
        common. Episodes of one host that overlap in time go to the same part. The shares are of hosts or episodes; each
        part has one at least."""
        if by not in ("host", "episode"):
            raise InvalidArgument(f"by={by!r}: choose 'host' or 'episode'")
        if len(shares) < 2 or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
            raise InvalidArgument(f"shares {shares}: say two or more, above 0, which sum to 1")
        used = sorted({self._store.index.runs[n].episode for n in self._runs.tolist()})
        group_of = _groups(self._store.index.episodes, used, by)
        groups = sorted(set(group_of.values()))
        if len(groups) < len(shares):
            what = "hosts" if by == "host" else "episodes that do not overlap"
            raise InvalidArgument(f"{len(shares)} parts of {len(groups)} {what}: there are too few")
        mixed = np.random.default_rng(seed).permutation(len(groups))
        ends = [round(end * len(groups)) for end in np.cumsum(shares)]
        for n in range(len(ends)):  # each part has one at least, also those after it
            ends[n] = min(max(ends[n], ends[n - 1] + 1 if n else 1), len(groups) - (len(ends) - 1 - n))
        parts = []
        for n, end in enumerate(ends):
            mine = {groups[i] for i in mixed[ends[n - 1] if n else 0 : end].tolist()}
            part = self._copy()
            part._choose([r for r in self._runs.tolist() if group_of[self._store.index.runs[r].episode] in mine])
            parts.append(part)
        return parts

    def export(
        self,
        directory: str | Path,
        format: Format = "parquet",
        *,
        task: str = "",
        codec: str = DEFAULT_CODEC,
        actions: Sequence[str] | None = None,
    ) -> Exported:
        """Write the steps of these episodes to files of a new directory: "parquet" for Hugging Face's `datasets`,
        "tar" for WebDataset, "lerobot" for LeRobot, which must be installed. A step is written once, whichever windows
        have it; one with a null is not. Frames and pictures are PNG, and videos for LeRobot.

        Of LeRobot alone:
        task: what was to be done, in words; `{name}` in it is a label of the episode.
        codec: of videos, as lerobot calls it: libsvtav1, h264, hevc; or png, which loses nothing.
        actions: which topics are actions; [] if none is. None: those whose names begin with `action`.
        """
        lerobot = Recipe(self.hz, task, codec, actions)
        return export(self._store, self._runs.tolist(), Path(directory), format, lerobot)

    def _copy(self) -> Windows:
        made = object.__new__(type(self))
        made.__dict__ |= self.__dict__
        return made


def check_window(length: int, stride: int) -> None:
    for name, value in (("length", length), ("stride", stride)):
        if not isinstance(value, int) or value < 1:
            raise InvalidArgument(f"{name}={value!r}: a number of steps, 1 or more")


def chosen_features(feed: Feed, topics: Sequence[str] | None, newest: Mapping[str, int] | None, ages: bool) -> Features:
    """Raises InvalidArgument for a topic that has no cells."""
    chosen, counts = tuple(feed.topics if topics is None else topics), dict(newest or {})
    unknown = [topic for topic in (*chosen, *counts) if topic not in feed.topics]
    if unknown or not chosen:
        said = f"no topic {', '.join(unknown) or 'at all'}: the grid has {', '.join(feed.topics)}"
        raise InvalidArgument(said, topic=unknown[0] if unknown else None)
    if any(count < 1 for count in counts.values()):
        raise InvalidArgument(f"newest={counts}: 1 message or more")
    return Features(chosen, counts, ages)


def as_tensors(found: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """In place, where torch has the type."""
    import torch

    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in found.items()}


def stored(feed: Feed, features: Features, cache: Path | None, *, decode: bool) -> Store:
    """The features of all episodes, written unless they are there."""
    if cache is not None:
        wanted = [VERSION, feed.state(), features.topics, sorted(features.newest.items()), features.ages, decode]
        directory = cache / hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()[:32]
        if not (directory / "index").exists():
            _write(feed, features, directory, decode)
        return Store(directory)
    parent = Path(tempfile.mkdtemp(prefix="ringmain-windows-"))
    try:
        _write(feed, features, parent / "store", decode)
        store = Store(parent / "store")
    except BaseException:
        shutil.rmtree(parent, ignore_errors=True)
        raise
    weakref.finalize(store, _remove, parent, os.getpid())
    return store


def _remove(directory: Path, owner: int) -> None:
    if os.getpid() == owner:  # a process that was forked has the object, too
        with suppress(OSError):
            shutil.rmtree(directory)


def _write(feed: Feed, features: Features, directory: Path, decode: bool) -> None:
    """Episode by episode: memory is that of one."""
    writer = StoreWriter(directory, decode=decode)
    unused_bytes = 0
    try:
        for span in feed.spans():
            unused_bytes += _add(writer, feed, features, span)
            if unused_bytes > _UNUSED_BYTES:
                pa.default_memory_pool().release_unused()
                unused_bytes = 0
        writer.close()
    except BaseException:
        writer.abandon()
        raise


def _add(writer: StoreWriter, feed: Feed, features: Features, span: Span) -> int:
    """How many bytes the cells of an episode had, none of which is in memory any more."""
    verdict, cells = feed.load(span)
    if cells is None:
        writer.index.refused.append(verdict)
        return 0
    known = StoredEpisode(verdict.episode, verdict.host, verdict.begin, verdict.end, verdict.state, verdict.labels)
    writer.index.episodes.append(known)
    for first, end in whole_runs(cells, features.topics):
        leaves = features.of(cells.slice(first, end - first), writer.index.left_out)
        times = np.asarray(cells.column("rm_time").cast(pa.int64()))[first:end]
        writer.add(first, times, leaves)
    return int(cells.nbytes)


def _groups(episodes: Sequence[StoredEpisode], used: Sequence[int], by: By) -> dict[int, str]:
    """Of each episode the group that is not divided: its host, or the first of those that overlap it."""
    if by == "host":
        return {n: episodes[n].host for n in used}
    found: dict[int, str] = {}
    host, reach, group = "", 0, ""
    for n in sorted(used, key=lambda n: (episodes[n].host, episodes[n].begin_us, episodes[n].id)):
        one = episodes[n]
        if one.host != host or one.begin_us >= reach:
            host, reach, group = one.host, one.end_us, one.id
        reach = max(reach, one.end_us)
        found[n] = group
    return found
