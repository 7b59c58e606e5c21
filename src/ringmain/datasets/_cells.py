"""Cells: messages and ticks become Arrow columns, and the numbers in columns become numpy arrays.

The invariant owned here: *a cell is null, or is of messages that its age is about*. Nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.datasets._align import Alignment, align
from ringmain.datasets._grid import Grid, Method, age_label, label_of, methods_of
from ringmain.errors import InvalidArgument

TIME = pa.timestamp("us", "UTC")
KEYS = pa.schema([("rm_host", pa.string()), ("rm_time", TIME)])


class Messages(NamedTuple):
    """The messages of a topic of one host, in the order of their times."""

    times_ns: np.ndarray
    values: pa.StructArray
    """Their fields; of a topic that is not typed `rm_payload`."""
    lost: int = 0
    """How many were lost among them, or before the first."""
    quarantined: int = 0
    """How many more there are that do not decode."""


def columns(grid: Grid, messages: Mapping[str, Messages], ticks_us: np.ndarray) -> pa.Table:
    """The cells of one host, of all ticks: of each topic its values and their age."""
    ticks_ns, tolerance_ns = ticks_us * 1000, round(grid.tolerance_s * 1e9)
    made: dict[str, pa.Array] = {}
    for topic, method in methods_of(grid).items():
        of_topic = messages[topic]
        found = align(of_topic.times_ns, ticks_ns, method, tolerance_ns)
        made[label_of(topic)] = _values(topic, of_topic.values, found, method)
        made[age_label(topic)] = pa.array(found.age_ns / 1e6, pa.float64(), mask=~found.there)
    return pa.table(made)


def cell_type(values: pa.DataType, method: Method) -> pa.DataType:
    """The type of a column of cells."""
    if method.kind == "window":
        return pa.list_(values)
    return _floats(values) if method.kind == "linear" else values


def _floats(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([pa.field(f.name, _floats(f.type)) for f in type_])
    if pa.types.is_list(type_) and _is_number(type_.value_type):
        return pa.list_(pa.float64())
    return pa.float64() if _is_number(type_) else type_


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _values(topic: str, values: pa.StructArray, found: Alignment, method: Method) -> pa.Array:
    there = found.there
    if method.kind == "window":
        sizes = found.end - found.first
        total = int(sizes.sum())
        starts = np.cumsum(sizes) - sizes
        rows = np.repeat(found.first - starts, sizes) + np.arange(total)
        offsets = pa.array(np.append(starts, total), pa.int32(), mask=np.append(~there, False))
        return pa.ListArray.from_arrays(offsets, values.take(pa.array(rows, pa.int64())))
    before = values.take(pa.array(found.first, pa.int64(), mask=~there))
    if method.kind != "linear":
        return before
    after = values.take(pa.array(found.after, pa.int64(), mask=~there))
    return between(topic, before, after, found.share)


def between(name: str, before: pa.Array, after: pa.Array, share: np.ndarray) -> pa.Array:
    """Numbers between those of two messages; all else is of the one before."""
    type_ = before.type
    if pa.types.is_struct(type_):
        children = [
            between(f"{name}.{f.name}", pc.struct_field(before, [n]), pc.struct_field(after, [n]), share)
            for n, f in enumerate(type_)
        ]
        fields = [pa.field(f.name, _floats(f.type)) for f in type_]
        return pa.StructArray.from_arrays(children, fields=fields, mask=before.is_null())
    if pa.types.is_list(type_) and _is_number(type_.value_type):
        sizes = pc.list_value_length(before)
        if not pc.all(pc.equal(sizes, pc.list_value_length(after)), min_count=0).as_py():
            raise InvalidArgument(
                f"{name} is a list whose length changes, so there is nothing between two: use 'newest'"
            )
        counts = np.asarray(pc.fill_null(sizes, 0))
        flat = between(name, before.flatten(), after.flatten(), np.repeat(share, counts))
        offsets = pa.array(np.append(0, np.cumsum(counts)), pa.int32(), mask=np.append(before.is_null(), False))
        return pa.ListArray.from_arrays(offsets, flat)
    if not _is_number(type_):
        return before
    one, other = before.cast(pa.float64(), safe=False), after.cast(pa.float64(), safe=False)
    return pc.add(one, pc.multiply(pc.subtract(other, one), pa.array(share)))


def arrays(name: str, values: pa.Array) -> Iterator[tuple[str, np.ndarray | pa.Array]]:
    """The leaves of a column without nulls, each as a numpy array whose first dimension are the rows; what has no fixed
    shape or is no number, as it is. A tuple of numbers, a list whose length is always the same, and an array whose
    shape is, are one leaf."""
    type_ = values.type
    names = [f.name for f in type_] if pa.types.is_struct(type_) else []
    if names == ["dtype", "shape", "values"]:  # an array, as typed topics have it
        shapes = pc.struct_field(values, "shape").to_pylist()
        flat = _rectangle(pc.struct_field(values, "values"))
        same = flat is not None and all(shape == shapes[0] for shape in shapes)
        yield name, flat.reshape(len(values), *shapes[0]) if flat is not None and same and shapes else values
    elif names == ["dtype", "shape", "data"]:  # one whose dtype may change: its bytes
        yield name, values
    elif names and names == [f"_{n}" for n in range(1, len(names) + 1)] and all(_is_number(f.type) for f in type_):
        yield name, np.stack([_numbers(pc.struct_field(values, [n])) for n in range(len(names))], axis=1)
    elif names:
        for n, child in enumerate(names):
            yield from arrays(f"{name}.{child}", pc.struct_field(values, [n]))
    elif pa.types.is_list(type_):
        found = _rectangle(values)
        yield name, values if found is None else found
    elif _is_number(type_) or pa.types.is_boolean(type_):
        yield name, _numbers(values)
    else:
        yield name, values


def _rectangle(lists: pa.Array) -> np.ndarray | None:
    """Lists of numbers that are all as long, as an array."""
    if not (_is_number(lists.type.value_type) or pa.types.is_boolean(lists.type.value_type)):
        return None
    sizes = np.asarray(pc.fill_null(pc.list_value_length(lists), -1))
    if not len(sizes) or (sizes != sizes[0]).any() or sizes[0] < 0:
        return None
    return _numbers(lists.flatten()).reshape(len(lists), sizes[0])


def _numbers(values: pa.Array) -> np.ndarray:
    """A number that a life of the topic did not have is NaN."""
    if values.null_count:
        values = pc.fill_null(values.cast(pa.float64(), safe=False), np.nan)
    return np.asarray(values.to_numpy(zero_copy_only=False))
