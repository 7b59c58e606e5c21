"""Episodes as files for other programs: Parquet that Hugging Face's `datasets` loads, pictures as pictures; or tar
files with a group of files for each step, as WebDataset reads them; or a LeRobot dataset, see _lerobot.py.

    DIRECTORY/train-00000.parquet    columns: episode_index, frame_index, timestamp, episode, host, and the features
    DIRECTORY/train-00000.tar        000003_000017.json, 000003_000017.camera_front.png, ...

The invariant owned here: *all of it or none is there*. It is written under another name, and then renamed.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ringmain.datasets import _lerobot
from ringmain.datasets._pictures import png
from ringmain.errors import InvalidArgument

if TYPE_CHECKING:
    from ringmain.datasets._lerobot import Recipe
    from ringmain.datasets._store import Store

Format = Literal["parquet", "tar", "lerobot"]
FILE_BYTES = 256 << 20
"""About: an episode is never divided."""
_STEPS = 64  # of which the pixels are in memory at a time


class Exported(NamedTuple):
    """What was written."""

    episodes: int
    steps: int
    files: int


class Steps(NamedTuple):
    """Some steps of an episode."""

    episode: int
    id: str
    host: str
    first: int
    seconds: np.ndarray
    """Since the episode's begin."""
    values: dict[str, Any]
    """Arrays, and lists of pictures as PNG."""

    def meta(self) -> dict[str, Any]:
        rows = len(self.seconds)
        return {
            "episode_index": np.full(rows, self.episode), "frame_index": np.arange(self.first, self.first + rows),
            "timestamp": self.seconds, "episode": [self.id] * rows, "host": [self.host] * rows,
        }  # fmt: skip


class _Writer(Protocol):
    def write(self, steps: Steps) -> int:
        """How many bytes, about."""

    def close(self) -> None: ...


def export(store: Store, runs: list[int], directory: Path, format: Format, lerobot: Recipe) -> Exported:
    """The steps of these runs, episode by episode."""
    if format not in (*_WRITERS, "lerobot"):
        raise InvalidArgument(f"format={format!r}: choose 'parquet', 'tar' or 'lerobot'")
    if directory.exists():
        raise InvalidArgument(f"{directory} is there already: name a directory that is not")
    if not runs:
        raise InvalidArgument("there is no episode to write: `refused` of the windows says why each was refused")
    if format == "lerobot":
        return Exported(*_lerobot.export(store, runs, directory, lerobot))
    draft = directory.with_name(f".{directory.name}.{os.getpid()}")
    draft.mkdir(parents=True)
    writer: _Writer | None = None
    numbers: dict[int, int] = {}
    size = steps = files = 0
    try:
        for run in runs:
            episode = store.index.runs[run].episode
            if writer is not None and size > FILE_BYTES and episode not in numbers:
                writer.close()
                writer = None
            number = numbers.setdefault(episode, len(numbers))
            for part in _parts(store, run, number):
                if writer is None:
                    writer, size, files = _WRITERS[format](draft / f"train-{files:05d}.{format}"), 0, files + 1
                size += writer.write(part)
                steps += len(part.seconds)
        if writer is not None:
            writer.close()
        os.rename(draft, directory)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Exported(len(numbers), steps, files)


def _parts(store: Store, number: int, episode: int) -> Iterator[Steps]:
    run = store.index.runs[number]
    known = store.index.episodes[run.episode]
    for start in range(0, run.steps, _STEPS):
        count = min(_STEPS, run.steps - start)
        values = {name: _for_files(array) for name, array in store.read(number, start, count).items()}
        seconds = (store.times_us(number, start, count) - known.begin_us) / 1e6
        yield Steps(episode, known.id, known.host, run.first + start, seconds, values)


def _for_files(array: np.ndarray) -> Any:
    is_picture = array.dtype == np.uint8 and (array.ndim == 3 or (array.ndim == 4 and array.shape[3] in (3, 4)))
    return [png(one) for one in array] if is_picture else array


class _Parquet:
    """One file. What a column is for `datasets` is in the schema's metadata, or pictures would be structs of bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: pq.ParquetWriter | None = None

    def write(self, steps: Steps) -> int:
        columns: dict[str, pa.Array] = {}
        features: dict[str, Any] = {}
        for name, values in {**steps.meta(), **steps.values}.items():
            if isinstance(values, list) and isinstance(values[0], bytes):
                files = [{"bytes": one, "path": None} for one in values]
                columns[name] = pa.array(files, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
                features[name] = {"_type": "Image"}
            elif isinstance(values, list):
                columns[name], features[name] = pa.array(values, pa.string()), _value("string")
            else:
                columns[name], features[name] = _nested(values)
        table = pa.table(columns).replace_schema_metadata(
            {"huggingface": msgspec.json.encode({"info": {"features": features}})}
        )
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._path, table.schema, compression="zstd")
        self._writer.write_table(table)
        return int(table.nbytes)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _nested(values: np.ndarray) -> tuple[pa.Array, dict[str, Any]]:
    """Lists in lists, as deep as a step's value is."""
    made, kind = pa.array(np.ascontiguousarray(values).reshape(-1)), _value(values.dtype.name)
    for size in reversed(values.shape[1:]):
        offsets = pa.array(np.arange(0, len(made) + 1, max(size, 1)), pa.int32())
        made = pa.ListArray.from_arrays(offsets, made)
        kind = {"feature": kind, "_type": "Sequence"}
    return made, kind


def _value(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "_type": "Value"}


class _Tar:
    """One file: of each step a JSON with its numbers, and a PNG of each picture."""

    def __init__(self, path: Path) -> None:
        self._file = tarfile.open(path, "w", format=tarfile.PAX_FORMAT)  # noqa: SIM115

    def write(self, steps: Steps) -> int:
        size = 0
        every = {**steps.meta(), **steps.values}
        for n in range(len(steps.seconds)):
            key = f"{steps.episode:06d}_{steps.first + n:06d}"
            numbers = {name: _plain(values[n]) for name, values in every.items() if not isinstance(values[n], bytes)}
            size += self._add(f"{key}.json", msgspec.json.encode(numbers))
            for name, values in steps.values.items():
                if isinstance(values[n], bytes):
                    size += self._add(f"{key}.{name}.png", values[n])
        return size

    def _add(self, name: str, data: bytes) -> int:
        info = tarfile.TarInfo(name)
        info.size = len(data)
        self._file.addfile(info, io.BytesIO(data))
        return len(data)

    def close(self) -> None:
        self._file.close()


def _plain(value: Any) -> Any:
    """As JSON has it: NaN is null."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


_WRITERS: dict[str, type[_Parquet] | type[_Tar]] = {"parquet": _Parquet, "tar": _Tar}
