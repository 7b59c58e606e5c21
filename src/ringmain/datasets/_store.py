"""A directory of features, mapped: written once, and then read in place by any number of processes.

    DIRECTORY/
      data      the values of all features, run by run, each at a multiple of 64 bytes
      index     where they are: MessagePack, written last

A *run* is a stretch of steps of one episode without a null; windows are within runs.

The invariant owned here: *a store is whole or not there*. It is written under another name, and then renamed.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from ringmain.datasets._holes import Verdict
from ringmain.datasets._leaves import Leaf
from ringmain.datasets._pictures import decoded, shape_of
from ringmain.errors import LakeError

VERSION = 3  # 1 had no times, 2 no refused episodes
_ALIGN = 64
_REPEATS = 1.5
"""A camera that is about as fast as the grid has a frame twice now and then: written twice, each window is in place."""
_RUNS = 4096  # whose arrays are kept: making one costs as much as all else of a window


class Part(msgspec.Struct, array_like=True):
    """A feature of a run."""

    dtype: str
    shape: tuple[int, ...]
    """Of one step."""
    at: int
    """Of the values."""
    steps_at: int = -1
    """Which value each step has; -1: each its own."""
    ends_at: int = -1
    """Of pictures as files: where each ends, from `at` on; -1: arrays."""
    values: int = 0


class Run(msgspec.Struct, array_like=True):
    """[first, first + steps) of the steps of an episode."""

    episode: int
    first: int
    steps: int
    parts: dict[str, Part]
    times_at: int
    """Of the ticks, in microseconds since 1970."""


class StoredEpisode(msgspec.Struct, array_like=True):
    """What is known of an episode here."""

    id: str
    host: str
    begin_us: int
    end_us: int
    state: str
    labels: str


class Index(msgspec.Struct):
    """The file `index`."""

    version: int
    episodes: list[StoredEpisode]
    runs: list[Run]
    features: dict[str, tuple[str, tuple[int, ...]]]
    """Those that all runs have, with the same shape: dtype and shape of one step."""
    left_out: dict[str, str]
    refused: list[Verdict]


class StoreWriter:
    """Writes a store. `close` puts it in place."""

    def __init__(self, directory: Path, *, decode: bool = False) -> None:
        self._directory, self._decode = directory, decode
        self._draft = directory.with_name(f".{directory.name}.{os.getpid()}.{os.urandom(4).hex()}")
        self._draft.mkdir(parents=True)
        self._file: IO[bytes] = open(self._draft / "data", "wb")  # noqa: SIM115
        self._at = 0
        self.index = Index(VERSION, [], [], {}, {}, [])

    def add(self, first: int, times_us: np.ndarray, leaves: Mapping[str, Leaf]) -> None:
        """A run of the episode that was added last."""
        parts = {name: self._part(leaf) for name, leaf in leaves.items()}
        times_at = self._put(times_us.astype(np.int64))
        self.index.runs.append(Run(len(self.index.episodes) - 1, first, len(times_us), parts, times_at))

    def _part(self, leaf: Leaf) -> Part:
        if isinstance(leaf, np.ndarray):
            return Part(leaf.dtype.str, leaf.shape[1:], self._put(leaf))
        if isinstance(leaf.values, list) and not self._decode:
            steps_at = self._put(leaf.of_step.astype(np.int64))
            ends_at = self._put(np.cumsum([len(one) for one in leaf.values]))
            at = self._put(np.frombuffer(b"".join(leaf.values), np.uint8))
            return Part("|u1", shape_of(leaf.values[0]), at, steps_at, ends_at, len(leaf.values))
        return self._arrays(leaf.values, leaf.of_step)

    def _arrays(self, values: np.ndarray | list[bytes], of_step: np.ndarray) -> Part:
        """One by one: decoded, they may be more than there is memory."""
        is_slow = len(of_step) > _REPEATS * len(values)
        steps_at = self._put(of_step.astype(np.int64)) if is_slow else -1
        at, last, one = -1, -1, np.empty(0)
        for n in range(len(values)) if is_slow else of_step.tolist():
            if n != last:
                one, last = values[n] if isinstance(values, np.ndarray) else decoded(values[n]), n
            start = self._put(one, packed=at >= 0)
            at = start if at < 0 else at
        return Part(one.dtype.str, one.shape, at, steps_at, values=len(values) if is_slow else 0)

    def _put(self, values: np.ndarray, *, packed: bool = False) -> int:
        """Where it is; `packed`: right behind what was put before."""
        at = self._at if packed else -(-self._at // _ALIGN) * _ALIGN
        self._file.write(bytes(at - self._at))
        self._file.write(np.ascontiguousarray(values).data)
        self._at = at + values.nbytes
        return at

    def close(self) -> None:
        """Of several processes that write the same store, the first counts."""
        self.index.features = self._common()
        self._file.write(bytes(_ALIGN))  # what is empty cannot be mapped
        self._file.close()
        (self._draft / "index").write_bytes(msgspec.msgpack.encode(self.index))
        try:
            os.rename(self._draft, self._directory)
        except OSError:
            if not (self._directory / "index").exists():
                raise
            shutil.rmtree(self._draft)

    def abandon(self) -> None:
        self._file.close()
        shutil.rmtree(self._draft, ignore_errors=True)

    def _common(self) -> dict[str, tuple[str, tuple[int, ...]]]:
        found: dict[str, tuple[str, tuple[int, ...]]] = {}
        runs = self.index.runs
        for name in dict.fromkeys(name for run in runs for name in run.parts):
            parts = [run.parts[name] for run in runs if name in run.parts]
            if len(parts) < len(runs):
                self.index.left_out.setdefault(name, "not in all episodes")
            elif any(part.shape != parts[0].shape for part in parts):
                self.index.left_out.setdefault(name, "its shape changes")
            else:
                found[name] = (np.result_type(*{part.dtype for part in parts}).str, parts[0].shape)
        return {name: kind for name, kind in found.items() if name not in self.index.left_out}


class Store:
    """Reads a store. Picklable: another process maps the same file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.index = msgspec.msgpack.decode((directory / "index").read_bytes(), type=Index)
        if self.index.version != VERSION:
            raise LakeError(f"{directory} was written by another version of ringmain: delete it")
        self._map: mmap.mmap | None = None
        self._whole: dict[int, dict[str, np.ndarray | None]] = {}
        self._recent: dict[tuple[int, str, int], np.ndarray] = {}
        self._recent_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_map": None, "_whole": {}, "_recent": {}, "_recent_bytes": 0}

    def read(self, run: int, start: int, length: int) -> dict[str, np.ndarray]:
        """Of `length` steps from the `start`-th of a run on. Arrays in place; writing to one changes the process's own
        copy of that page, and nothing else."""
        whole = self._whole.get(run) or self._look_at(run)
        end = start + length
        return {
            name: self._values(run, name, start, length) if values is None else values[start:end]
            for name, values in whole.items()
        }

    def _look_at(self, run: int) -> dict[str, np.ndarray | None]:
        """The features of a whole run, in place: a window is a slice of each. None: what has to be put together."""
        if len(self._whole) >= _RUNS:
            self._whole.clear()
        known, kinds = self.index.runs[run], self.index.features
        self._whole[run] = {
            name: self._array(part.dtype, part.shape, part.at, 0, known.steps)
            if part.steps_at < 0 and part.dtype == kinds[name][0] else None
            for name, part in ((name, known.parts[name]) for name in kinds)
        }  # fmt: skip
        return self._whole[run]

    def times_us(self, run: int, start: int, length: int) -> np.ndarray:
        """The ticks of these steps, since 1970."""
        return self._array("<i8", (), self.index.runs[run].times_at, start, length)

    def _values(self, run: int, name: str, start: int, length: int) -> np.ndarray:
        part = self.index.runs[run].parts[name]
        if part.steps_at < 0:
            return self._array(part.dtype, part.shape, part.at, start, length).astype(self.index.features[name][0])
        of_step = self._array("<i8", (), part.steps_at, start, length)
        if part.ends_at >= 0:
            return np.stack([self._picture(run, name, part, n) for n in of_step.tolist()])
        first, last = int(of_step[0]), int(of_step[-1])
        if last - first == length - 1:  # they never go back, so each step has the one after
            return self._array(part.dtype, part.shape, part.at, first, length)
        return np.take(self._array(part.dtype, part.shape, part.at, first, last - first + 1), of_step - first, 0)

    def _picture(self, run: int, name: str, part: Part, number: int) -> np.ndarray:
        """A picture that is stored as a file, decoded. The last ones are kept: windows overlap."""
        known = self._recent.pop((run, name, number), None)
        if known is None:
            ends = self._array("<i8", (), part.ends_at, 0, part.values)
            begin, end = int(ends[number - 1]) if number else 0, int(ends[number])
            known = decoded(self._array("|u1", (), part.at, begin, end - begin).tobytes())
            if known.shape != part.shape:
                raise LakeError(f"a picture of {name} has the shape {known.shape}, and others have {part.shape}")
            self._recent_bytes += known.nbytes
        self._recent[run, name, number] = known
        while self._recent_bytes > RECENT_BYTES and len(self._recent) > 1:
            self._recent_bytes -= self._recent.pop(next(iter(self._recent))).nbytes
        return known

    def _array(self, dtype: str, shape: tuple[int, ...], at: int, start: int, length: int) -> np.ndarray:
        if self._map is None:
            with open(self.directory / "data", "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        kind = np.dtype(dtype)
        size = int(np.prod(shape, dtype=np.int64))
        flat = np.frombuffer(self._map, kind, length * size, at + start * size * kind.itemsize)
        return flat.reshape(length, *shape) if shape else flat


RECENT_BYTES = 64 << 20
