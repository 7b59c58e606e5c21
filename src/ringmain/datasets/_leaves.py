"""Cells become features: of every number, array and picture that a topic has, a numpy array of one row for each step.

The invariant owned here: *what is not given is named*. A field that has no fixed shape, or is no number and no picture,
is left out, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.datasets._cells import arrays
from ringmain.datasets._grid import age_label, label_of
from ringmain.datasets._pictures import is_picture, shape_of
from ringmain.errors import Corrupt
from ringmain.recording._decode import PAYLOAD
from ringmain.recording._frames import MARK, RecordedFrame


@dataclass(frozen=True)
class Repeated:
    """Values that several steps may share, as pictures do of a camera that is slower than the grid."""

    of_step: np.ndarray
    values: np.ndarray | list[bytes]
    """Arrays of one shape; or pictures as files, which are decoded when they are asked for."""


Leaf: TypeAlias = "np.ndarray | Repeated"


@dataclass(frozen=True)
class Features:
    """Which topics, and how. Of a topic that is a window of messages the newest so many."""

    topics: tuple[str, ...]
    newest: Mapping[str, int] = field(default_factory=dict)
    ages: bool = False

    def of(self, cells: pa.Table, left_out: dict[str, str]) -> dict[str, Leaf]:
        """Of cells of which none is null. Names what is left out, and why."""
        found: dict[str, Leaf] = {}
        for topic in self.topics:
            label = label_of(topic)
            column = _one(cells.column(label))
            if pa.types.is_list(column.type):
                found |= _newest(label, topic, column, self.newest.get(topic), left_out)
            else:
                found |= _named(label, column, left_out)
            if self.ages:
                found[age_label(topic)] = np.asarray(_one(cells.column(age_label(topic))))
        return found


def whole_runs(cells: pa.Table, topics: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The stretches [first, end) of rows in which all of these topics have a value."""
    there = np.ones(len(cells), bool)
    for topic in topics:
        there &= np.asarray(cells.column(age_label(topic)).is_valid())
    edges = np.flatnonzero(np.diff(np.concatenate([[False], there, [False]]).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _named(label: str, column: pa.Array, left_out: dict[str, str]) -> dict[str, Leaf]:
    found: dict[str, Leaf] = {}
    for name, leaf in arrays(label, column):
        short = name.removesuffix(f".{PAYLOAD.name}")
        made = leaf if isinstance(leaf, np.ndarray) else _special(leaf)
        if isinstance(made, str):
            left_out[short] = made
        else:
            found[short] = made
    return found


def _newest(
    label: str, topic: str, column: pa.ListArray, count: int | None, left_out: dict[str, str]
) -> dict[str, np.ndarray]:
    """Of each list the last so many, as floats; NaN in front where a list has fewer."""
    if count is None:
        left_out[label] = f"a window of messages has no fixed number of them: say newest={{{topic!r}: 10}}"
        return {}
    ends, sizes = np.asarray(column.offsets)[1:], np.asarray(pc.list_value_length(column))
    back = np.arange(count)[None, :] - count
    rows = ends[:, None] + back
    missing = -back > sizes[:, None]
    found = {}
    for name, leaf in _named(label, column.values, left_out).items():
        if isinstance(leaf, Repeated):
            left_out[name] = "pictures in a window of messages: use 'newest' or 'nearest'"
            continue
        taken = leaf[np.where(missing, 0, rows)].astype(leaf.dtype if leaf.dtype.kind == "f" else np.float64)
        taken[missing] = np.nan
        found[name] = taken
    return found


def _special(values: pa.Array) -> Leaf | str:
    """Frames, pictures and arrays; or why it is none of these."""
    type_ = values.type
    if pa.types.is_struct(type_) and [f.name for f in type_] == ["dtype", "shape", "data"]:
        return _of_data(values)
    if not (pa.types.is_binary(type_) or pa.types.is_large_binary(type_)):
        what = "text" if pa.types.is_string(type_) else f"no number: {type_}"
        return "its length changes" if pa.types.is_list(type_) or pa.types.is_struct(type_) else what
    if values.null_count:
        return "it is not in all messages"
    unique, of_step = _without_repeats(values)
    if not unique:
        return "bytes that are no frame and no picture"
    if unique[0].endswith(MARK):
        return _frames(unique, of_step)
    if all(map(is_picture, unique)):
        return _files(unique, of_step)
    return "bytes that are no frame and no picture"


def _without_repeats(values: pa.Array) -> tuple[list[bytes], np.ndarray]:
    """(each value once, as long as it stays the same, which of these each row has)."""
    found: list[Any] = []
    of_step = np.zeros(len(values), np.int64)
    for n, value in enumerate(values):
        data = value.as_buffer()
        if not found or not data.equals(found[-1]):
            found.append(data)
        of_step[n] = len(found) - 1
    return [data.to_pybytes() for data in found], of_step


def _frames(payloads: list[bytes], of_step: np.ndarray) -> Leaf | str:
    try:
        frames = [RecordedFrame(one).array for one in payloads]
    except Corrupt as error:
        return str(error)
    if any(one.shape != frames[0].shape or one.dtype != frames[0].dtype for one in frames):
        return "its shape changes"
    return Repeated(of_step, np.stack(frames))


def _files(pictures: list[bytes], of_step: np.ndarray) -> Leaf | str:
    try:
        shapes = set(map(shape_of, pictures))
    except OSError as error:
        return f"a picture that cannot be read: {error}"
    return Repeated(of_step, pictures) if len(shapes) == 1 else "its shape changes"


def _of_data(values: pa.Array) -> Leaf | str:
    """Arrays as their bytes."""
    kinds = {(row["dtype"], tuple(row["shape"] or ())) for row in values.take(_first_of_each(values)).to_pylist()}
    if values.null_count or len(kinds) != 1 or None in next(iter(kinds)):
        return "its shape changes"
    dtype, shape = next(iter(kinds))
    unique, of_step = _without_repeats(pc.struct_field(values, "data"))
    return Repeated(of_step, np.stack([np.frombuffer(one, dtype).reshape(shape) for one in unique]))


def _first_of_each(values: pa.Array) -> pa.Array:
    """Where in the column each dtype and shape is first."""
    shapes = [tuple(shape or ()) for shape in pc.struct_field(values, "shape").to_pylist()]
    seen = dict(
        zip(zip(pc.struct_field(values, "dtype").to_pylist(), shapes, strict=True), range(len(values)), strict=True)
    )
    return pa.array(sorted(seen.values()), pa.int64())


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
