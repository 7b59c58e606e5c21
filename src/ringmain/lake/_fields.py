"""The tables of gold about what messages say: `fields`, statistics of their numbers, and `quarantine`, why messages did
not decode. They are measured of rows that are in silver or quarantine, so every message counts once. Counts and bounds
do not show how rows were cut; mean and standard deviation do not within 1 in 10**9."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.lake._gold import (
    TIME,
    Column,
    GoldTable,
    Groups,
    Of,
    Values,
    as_floats,
    as_numbers,
    grouped,
    key_of,
    least,
    most,
    one_array,
    sums,
)
from ringmain.recording._format import decoded_name

EPOCH, SEQ, PUBLISH_TIME, HOST = map(decoded_name, ("epoch", "seq", "publish_time", "host"))  # of silver, quarantine
_LONGEST_REASON = 200
ELEMENTS = 3  # of a short list that are measured: x, y, z
_SHORT_LIST = 16
_NUMBER, _FLOAT, _TEXT = pa.int64(), pa.float64(), pa.string()


def _count(mask: str) -> Of:
    """How many are so. Which are finite is None where all are, and the others where none is."""
    return lambda m: np.zeros(len(m), np.int64) if m[mask] is None else m.count(m[mask])


def _finite(values: Groups) -> np.ndarray:
    return values.sizes if values["finite"] is None else values.count(values["finite"])


def _finite_or(values: Groups, none: float) -> np.ndarray:
    """The values, with this in place of those that are not finite."""
    found = values["value"]
    return np.asarray(found if values["finite"] is None else np.where(values["finite"], found, none))


def _mean(values: Groups) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        total = values.sum(_finite_or(values, 0.0))
    return np.asarray(total / np.maximum(values.once(_finite), 1))


def _squares(values: Groups) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        apart = values["value"] - np.repeat(values.once(_mean), values.sizes)
        apart *= apart
        return values.sum(apart if values["finite"] is None else np.where(values["finite"], apart, 0.0))


def _extreme(reduce: str, none: float) -> Of:
    def measure(values: Groups) -> Values:
        found = getattr(values, reduce)(_finite_or(values, none))
        return pa.array(found, mask=values.once(_finite) == 0)

    return measure


def _measured_mean(values: Groups) -> Values:
    return pa.array(values.once(_mean), mask=values.once(_finite) == 0)


def _all_mean(rows: Groups) -> np.ndarray:
    count = as_numbers(rows["count"])
    return np.asarray(rows.sum(as_floats(rows["mean"], 0.0) * count) / np.maximum(rows.sum(count), 1))


def _merged_mean(rows: Groups) -> Values:
    return pa.array(rows.once(_all_mean), mask=rows.sum(as_numbers(rows["count"])) == 0)


def _all_squares(rows: Groups) -> Values:
    """Each row's are about its own mean."""
    count = as_numbers(rows["count"])
    with np.errstate(over="ignore", invalid="ignore"):
        apart = np.where(count > 0, as_floats(rows["mean"], 0.0) - rows.once(_all_mean)[rows.of_row], 0.0)
        return rows.sum(as_numbers(rows["squares"]) + count * apart * apart)


def _stddev(state: Any, window_s: float) -> Values:
    count = as_numbers(state["count"])
    return pa.array(np.sqrt(as_numbers(state["squares"]) / np.maximum(count - 1, 1)), mask=count < 2)


def _stuck(state: Any, window_s: float) -> Values:
    odd = as_numbers(state["nans"]) + as_numbers(state["infinite"])
    return (as_numbers(state["count"]) > 1) & (as_floats(state["min"]) == as_floats(state["max"])) & (odd == 0)


FIELDS = GoldTable(
    "gold/fields",
    (
        Column("window_start", TIME),
        Column("topic", _TEXT),
        Column("epoch", _NUMBER),
        Column("host", _TEXT),
        Column("field", _TEXT),
        Column("count", _NUMBER, lambda m: m.once(_finite), sums("count")),  # finite numbers; the rest is of these
        Column("nulls", _NUMBER, _count("null"), sums("nulls")),
        Column("nans", _NUMBER, _count("nan"), sums("nans")),
        Column("infinite", _NUMBER, _count("infinite"), sums("infinite")),
        Column("min", _FLOAT, _extreme("least", np.inf), least("min"), total="min"),
        Column("max", _FLOAT, _extreme("most", -np.inf), most("max"), total="max"),
        Column("mean", _FLOAT, _measured_mean, _merged_mean, total="mean"),
        Column("stddev", _FLOAT, derive=_stddev),
        Column("stuck", pa.bool_(), derive=_stuck),
        Column("squares", _FLOAT, _squares, _all_squares),  # the sum of squared differences from the mean
    ),
)
QUARANTINE = GoldTable(
    "gold/quarantine",
    (
        Column("window_start", TIME),
        Column("topic", _TEXT),
        Column("epoch", _NUMBER),
        Column("host", _TEXT),
        Column("reason", _TEXT),
        Column("messages", _NUMBER, lambda m: m.sizes, sums("messages")),
    ),
)


def measure_fields(topic: str, rows: pa.RecordBatch, fields: list[str], window_us: int) -> pa.Table:
    """The rows of `gold/fields` of decoded messages of one topic, for the numbers in these columns. A field within a
    field has a name with a dot; of lists that are short the first elements are measured, by their numbers."""
    leaves = [leaf for name in fields for leaf in _leaves(name, rows.column(name))]
    if not leaves or not len(rows):
        return FIELDS.schema.empty_table()
    keys = _keys(topic, rows, window_us)
    order, starts = grouped([key_of(values) for name, values in keys.items() if name != "topic"])
    in_order = bool((np.diff(order) > 0).all())
    # One field after the other in long columns: for a few thousand rows, a call costs more than what it computes.
    columns = _columns(leaves, len(rows), None if in_order else order)
    offsets = np.arange(len(leaves)) * len(rows)
    messages = Groups(columns, np.add.outer(offsets, starts).ravel(), len(leaves) * len(rows))
    firsts = pa.array(np.tile(order[starts], len(leaves)))
    names = pa.array([name for name, _, _ in leaves]).take(pa.array(np.repeat(np.arange(len(leaves)), len(starts))))
    made = FIELDS.measured({**{name: values.take(firsts) for name, values in keys.items()}, "field": names}, messages)
    there = sum(as_numbers(one_array(made[name])) for name in ("count", "nulls", "nans", "infinite"))
    return made.filter(pa.array(there > 0))


def _columns(
    leaves: list[tuple[str, pa.Array, np.ndarray | None]], rows: int, order: np.ndarray | None
) -> dict[str, Any]:
    """The values of each field, in this order, and which are what."""

    def together(parts: Iterable[np.ndarray]) -> np.ndarray:
        return np.concatenate([*parts] if order is None else [part[order] for part in parts])

    value = together(as_floats(array) for _, array, _ in leaves)
    finite = np.isfinite(value)
    if finite.all() and all(there is None for _, _, there in leaves):
        return {"value": value, "finite": None, "null": None, "nan": None, "infinite": None}
    null = together(np.asarray(array.is_null()) for _, array, _ in leaves)
    there = together(np.ones(rows, bool) if one is None else one for _, _, one in leaves)
    return {
        "value": value, "finite": finite & there, "null": null & there,
        "nan": np.isnan(value) & ~null & there, "infinite": np.isinf(value) & there,
    }  # fmt: skip


def measure_reasons(topic: str, rows: pa.RecordBatch, reason: str, window_us: int) -> pa.Table:
    """The rows of `gold/quarantine` of messages of one topic."""
    short = pc.utf8_slice_codeunits(rows.column(reason), 0, _LONGEST_REASON)
    keys = {**_keys(topic, rows, window_us), "reason": short}
    order, starts = grouped([key_of(values) for values in keys.values()])
    firsts = {name: values.take(pa.array(order[starts])) for name, values in keys.items()}
    return QUARANTINE.measured(firsts, Groups({}, starts, len(rows)))


def _keys(topic: str, rows: pa.RecordBatch, window_us: int) -> dict[str, pa.Array]:
    window = as_numbers(rows.column(PUBLISH_TIME)) // window_us * window_us
    topics = pa.repeat(pa.scalar(topic), len(rows))
    return {"window_start": pa.array(window), "topic": topics, "epoch": rows.column(EPOCH), "host": rows.column(HOST)}


def _leaves(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array, np.ndarray | None]]:
    """(name, numbers, which messages have it: None for all of them)."""
    type_ = array.type
    if pa.types.is_struct(type_):
        for f, child in zip(type_, array.flatten(), strict=True):
            yield from _leaves(f"{name}.{f.name}", child)
    elif pa.types.is_list(type_) and is_number(type_.value_type):
        sizes = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        for at in range(ELEMENTS):
            there = (sizes > at) & (sizes <= _SHORT_LIST)
            if there.any():
                elements = pc.list_element(array.filter(pa.array(there)), at)
                nothing = pa.nulls(len(array), elements.type)
                yield f"{name}[{at}]", _number(pc.replace_with_mask(nothing, pa.array(there), elements)), there
    elif is_number(type_):
        yield name, _number(array), None


def is_number(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(is_kind(type_) for is_kind in kinds)


def _number(values: pa.Array) -> pa.Array:
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def field_names(schema: pa.Schema) -> list[str]:
    """The names that fields of a table have in `gold/fields`, in the order of the columns, also those of lists that may
    be too long."""

    def names(name: str, type_: pa.DataType) -> Iterator[str]:
        if pa.types.is_struct(type_):
            for f in type_:
                yield from names(f"{name}.{f.name}", f.type)
        elif pa.types.is_list(type_) and is_number(type_.value_type):
            yield from (f"{name}[{at}]" for at in range(ELEMENTS))
        elif is_number(type_):
            yield name

    return [one for f in schema for one in names(f.name, f.type)]
