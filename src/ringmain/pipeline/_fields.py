"""Gold's numbers about what messages say: statistics of numeric fields, and why messages did not decode. They are made
of rows that are in silver or quarantine, so every message counts once, and are partials that merge like those of
_partials.py. Counts and bounds do not show how rows were cut; mean and standard deviation do not within 1 in 10**9."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import msgspec
import numpy as np
import pyarrow as pa

from ringmain.pipeline._partials import TIME, Part, numbers

_LONGEST_REASON = 200
_STATE = ("field", "count", "nulls", "nans", "infinite", "min", "max", "mean", "squares")


class Field(Part, array_like=True):
    """What `gold/fields` shows of a window: `count` values are finite numbers, and the rest is about these."""

    table: ClassVar[str] = "gold/fields"
    schema: ClassVar[pa.Schema] = pa.schema(
        [("window_start", TIME), ("topic", pa.string()), ("epoch", pa.int64()), ("field", pa.string())]
        + [(name, pa.int64()) for name in ("count", "nulls", "nans", "infinite")]
        + [(name, pa.float64()) for name in ("min", "max", "mean", "stddev")]
        + [("stuck", pa.bool_()), ("squares", pa.float64())]
    )
    keys: ClassVar[int] = 4

    topic: str
    epoch: int
    field: str
    count: int
    nulls: int
    nans: int
    infinite: int
    min: float | None
    max: float | None
    mean: float | None
    squares: float  # the sum of squared differences from the mean

    def add(self, other: Self) -> None:
        self.nulls, self.nans = self.nulls + other.nulls, self.nans + other.nans
        self.infinite += other.infinite
        if not other.count:
            return
        assert other.min is not None
        assert other.max is not None
        assert other.mean is not None
        if self.min is None or self.max is None or self.mean is None:
            self.min, self.max, self.mean, self.squares = other.min, other.max, other.mean, other.squares
            self.count = other.count
            return
        self.min, self.max = min(self.min, other.min), max(self.max, other.max)
        apart, together = other.mean - self.mean, self.count + other.count
        self.squares += other.squares + apart * apart * self.count * other.count / together
        self.mean += apart * other.count / together
        self.count = together

    def row(self, window_s: float) -> dict[str, Any]:
        spread = math.sqrt(self.squares / (self.count - 1)) if self.count > 1 else None
        stuck = self.count > 1 and self.min == self.max and not self.nans + self.infinite
        return {
            "window_start": self.window_us, "topic": self.topic, "epoch": self.epoch, "stddev": spread, "stuck": stuck,
            **{name: getattr(self, name) for name in _STATE},
        }  # fmt: skip

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        return cls(row["window_start"], row["topic"], row["epoch"], *(row[name] for name in _STATE))


class Reason(Part, array_like=True):
    """What `gold/quarantine` shows of a window."""

    table: ClassVar[str] = "gold/quarantine"
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("window_start", TIME), ("topic", pa.string()), ("epoch", pa.int64()), ("reason", pa.string()),
            ("messages", pa.int64()),
        ]
    )  # fmt: skip
    keys: ClassVar[int] = 4

    topic: str
    epoch: int
    reason: str
    messages: int

    def add(self, other: Self) -> None:
        self.messages += other.messages

    def row(self, window_s: float) -> dict[str, Any]:
        found = msgspec.structs.asdict(self)
        return {"window_start": found.pop("window_us"), **found}

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        return cls(row["window_start"], row["topic"], row["epoch"], row["reason"], row["messages"])


def measure_fields(topic: str, rows: pa.RecordBatch, fields: list[str], window_us: int) -> list[Field]:
    """The partials of decoded rows of one topic, for the numbers in these columns. A field within a field has a name
    with a dot; of lists nothing is measured."""
    found = [leaf for name in fields for leaf in _leaves(name, rows.column(name))]
    if not found or not len(rows):
        return []
    window = numbers(rows, "publish_time") // window_us * window_us
    epoch = numbers(rows, "epoch")
    order = np.lexsort([epoch, window])
    window, epoch = window[order], epoch[order]
    changed = (window[1:] != window[:-1]) | (epoch[1:] != epoch[:-1])
    starts = np.concatenate([[0], np.flatnonzero(changed) + 1])
    sizes = np.diff(np.concatenate([starts, [len(rows)]]))
    in_order = bool((np.diff(order) > 0).all())
    made = []
    for name, array in found:
        columns = _statistics(array if in_order else array.take(pa.array(order)), starts, sizes)
        for at, start in enumerate(starts.tolist()):
            count, nulls, nans, infinite, *rest = (column[at].item() for column in columns)
            values = rest if count else [None, None, None, 0.0]
            made.append(
                Field(int(window[start]), topic, int(epoch[start]), name, count, nulls, nans, infinite, *values)
            )
    return made


def _statistics(array: pa.Array, starts: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Count, nulls, NaN, infinite, least, most, mean and squares of each stretch."""
    values = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    finite = np.isfinite(values)
    if finite.all():
        nothing = np.zeros(len(starts), np.int64)
        count, nulls, nans, infinite = sizes, nothing, nothing, nothing
        low = high = summed = values
    else:
        missing = np.asarray(array.is_null())
        count, nulls, nans, infinite = (
            np.add.reduceat(mask.astype(np.int64), starts)
            for mask in (finite, missing, np.isnan(values) & ~missing, np.isinf(values))
        )
        low, high = np.where(finite, values, np.inf), np.where(finite, values, -np.inf)
        summed = np.where(finite, values, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.add.reduceat(summed, starts) / np.maximum(count, 1)
        apart = summed - np.repeat(mean, sizes)
        apart *= apart
        if low is not high:
            apart[~finite] = 0.0
        squares = np.add.reduceat(apart, starts)
    return [count, nulls, nans, infinite, np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts), mean,
            squares]  # fmt: skip


def measure_reasons(topic: str, rows: pa.RecordBatch, window_us: int) -> list[Reason]:
    """The partials of quarantined rows of one topic."""
    window = numbers(rows, "publish_time") // window_us * window_us
    short = pa.compute.utf8_slice_codeunits(rows.column("reason"), 0, _LONGEST_REASON)
    table = pa.table({"window": window, "epoch": numbers(rows, "epoch"), "reason": short})
    counts = table.group_by(["window", "epoch", "reason"]).aggregate([([], "count_all")]).to_pylist()
    return [Reason(r["window"], topic, r["epoch"], r["reason"], r["count_all"]) for r in counts]


def _leaves(name: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    type_ = array.type
    if pa.types.is_struct(type_):
        for f, child in zip(type_, array.flatten(), strict=True):
            yield from _leaves(f"{name}.{f.name}", child)
    elif pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_):
        yield name, array
