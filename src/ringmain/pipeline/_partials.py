"""Gold's numbers as partials that merge: counts, sums, bounds and quantile sketches of a window of time.

A task makes partials of the rows it reads. The driver merges those of all tasks with what the tables have. The
invariant owned here: *how rows were cut into tasks and batches does not show*. Counts and sums are whole numbers; a
sketch is a histogram whose buckets add up. An interval between two messages that were cut apart is made up from the
edges: of every life in every recording, a partial keeps its first and its last message (`Line`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, ClassVar, Self, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

LATE_MS = 1000.0
GAMMA = 1.02  # a bucket's bounds: a quantile is off by at most 1 %
_SMALLEST_MS = 1e-6
TIME = pa.timestamp("us", "UTC")


class Line(msgspec.Struct, array_like=True):
    """The edges of one life in one recording, within a window."""

    recording: str
    epoch: int
    first_seq: int
    first_us: int
    last_seq: int
    last_us: int


_LINE = pa.struct([("recording", pa.string()), *((name, pa.int64()) for name in Line.__struct_fields__[1:])])
_WINDOW = [("window_start", TIME)]
HEALTH_SCHEMA = pa.schema(
    [
        *_WINDOW, ("window_end", TIME), ("topic", pa.string()), ("epoch", pa.int64()), ("recorder", pa.string()),
        ("host", pa.string()), ("messages", pa.int64()), ("bytes", pa.int64()),
        *((name, pa.float64()) for name in (
            "rate_hz", "bytes_per_s", "latency_p50_ms", "latency_p99_ms", "latency_p999_ms", "latency_max_ms",
            "jitter_ms")),
        *((name, pa.int64()) for name in ("lost", "gaps", "late", "out_of_order")),
        ("latency_min_ms", pa.float64()), ("latency_buckets", pa.list_(pa.int32())),
        ("latency_counts", pa.list_(pa.int64())), ("intervals", pa.list_(pa.int64())), ("lines", pa.list_(_LINE)),
    ]
)  # fmt: skip
SENDERS_SCHEMA = pa.schema(
    [
        *_WINDOW, ("topic", pa.string()), ("sender", pa.string()), ("recorder", pa.string()), ("host", pa.string()),
        ("messages", pa.int64()), ("bytes", pa.int64()), ("first_time", TIME), ("last_time", TIME),
        ("longest_silence_ms", pa.float64()),
        ("lines", pa.list_(_LINE)),
    ]
)  # fmt: skip
GAPS_SCHEMA = pa.schema(
    [("time", TIME), ("topic", pa.string()), ("reader", pa.string()), ("epoch", pa.int64()),
     ("before_seq", pa.int64()), ("lost", pa.int64()), ("host", pa.string())]
)  # fmt: skip


class Part(msgspec.Struct, array_like=True):
    """A partial: numbers of a window that are added to those with the same key, and a row of a table of gold."""

    table: ClassVar[str]
    schema: ClassVar[pa.Schema]
    keys: ClassVar[int]
    """How many of the fields, from the first on, are the key."""

    window_us: int

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__struct_fields__[: self.keys]])

    def add(self, other: Self, /) -> None:
        raise NotImplementedError

    def settle(self) -> None:
        """Called after all were added."""

    def row(self, window_s: float) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def of(cls, r: dict[str, Any], /) -> Self:
        raise NotImplementedError


class Health(Part, array_like=True):
    """What `gold/topic_health` shows of a window."""

    table: ClassVar[str] = "gold/topic_health"
    schema: ClassVar[pa.Schema] = HEALTH_SCHEMA
    keys: ClassVar[int] = 5

    topic: str
    epoch: int
    recorder: str
    host: str
    messages: int
    bytes: int
    lost: int
    gaps: int
    late: int
    least_ms: float
    most_ms: float
    sketch: dict[int, int]
    intervals: int
    interval_sum: float  # of whole numbers, which a float adds exactly up to 2**53
    interval_squares: float
    out_of_order: int
    lines: list[Line]

    def add(self, other: Self) -> None:
        for name in ("messages", "bytes", "lost", "gaps", "late", "intervals", "interval_sum", "interval_squares",
                     "out_of_order"):  # fmt: skip
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.least_ms, self.most_ms = min(self.least_ms, other.least_ms), max(self.most_ms, other.most_ms)
        for bucket, count in other.sketch.items():
            self.sketch[bucket] = self.sketch.get(bucket, 0) + count
        self.lines += other.lines

    def settle(self) -> None:
        self.lines = _joined(self.lines, self.interval)

    def interval(self, us: int) -> None:
        self.intervals += 1
        self.interval_sum += us
        self.interval_squares += us * us
        self.out_of_order += us < 0

    def quantile_ms(self, q: float) -> float:
        rank, seen = q * (self.messages - 1), 0
        for bucket in sorted(self.sketch):
            seen += self.sketch[bucket]
            if seen > rank:
                return min(max(_middle_ms(bucket), self.least_ms), self.most_ms)
        return self.most_ms

    def jitter_ms(self) -> float:
        """The standard deviation of the intervals."""
        if self.intervals < 2:
            return 0.0
        spread = self.interval_squares - self.interval_sum * self.interval_sum / self.intervals
        return math.sqrt(max(0.0, spread) / (self.intervals - 1)) / 1000

    def row(self, window_s: float) -> dict[str, Any]:
        buckets = sorted(self.sketch)
        return {
            "window_start": self.window_us, "window_end": self.window_us + int(window_s * 1e6), "topic": self.topic,
            "epoch": self.epoch, "recorder": self.recorder, "host": self.host, "messages": self.messages,
            "bytes": self.bytes,
            "rate_hz": self.messages / window_s, "bytes_per_s": self.bytes / window_s,
            "latency_p50_ms": self.quantile_ms(0.5), "latency_p99_ms": self.quantile_ms(0.99),
            "latency_p999_ms": self.quantile_ms(0.999), "latency_max_ms": self.most_ms,
            "jitter_ms": self.jitter_ms(), "lost": self.lost, "gaps": self.gaps, "late": self.late,
            "out_of_order": self.out_of_order, "latency_min_ms": self.least_ms, "latency_buckets": buckets,
            "latency_counts": [self.sketch[b] for b in buckets],
            "intervals": [self.intervals, int(self.interval_sum), int(self.interval_squares)], "lines": _edges(self),
        }  # fmt: skip

    @classmethod
    def of(cls, r: dict[str, Any]) -> Self:
        sketch = dict(zip(r["latency_buckets"], r["latency_counts"], strict=True))
        count, total, squares = r["intervals"]
        return cls(
            r["window_start"], r["topic"], r["epoch"], r["recorder"], r["host"], r["messages"], r["bytes"], r["lost"],
            r["gaps"], r["late"], r["latency_min_ms"], r["latency_max_ms"], sketch, count, float(total),
            float(squares), r["out_of_order"], [Line(**line) for line in r["lines"]],
        )  # fmt: skip


class Sender(Part, array_like=True):
    """What `gold/senders` shows of a window."""

    table: ClassVar[str] = "gold/senders"
    schema: ClassVar[pa.Schema] = SENDERS_SCHEMA
    keys: ClassVar[int] = 5

    topic: str
    sender: str
    recorder: str
    host: str
    messages: int
    bytes: int
    first_us: int
    last_us: int
    silence_us: int | None
    lines: list[Line]

    def add(self, other: Self) -> None:
        self.messages, self.bytes = self.messages + other.messages, self.bytes + other.bytes
        self.first_us, self.last_us = min(self.first_us, other.first_us), max(self.last_us, other.last_us)
        if other.silence_us is not None:
            self.interval(other.silence_us)
        self.lines += other.lines

    def settle(self) -> None:
        self.lines = _joined(self.lines, self.interval)

    def interval(self, us: int) -> None:
        self.silence_us = us if self.silence_us is None else max(self.silence_us, us)

    def row(self, window_s: float) -> dict[str, Any]:
        return {
            "window_start": self.window_us, "topic": self.topic, "sender": self.sender, "recorder": self.recorder,
            "host": self.host, "messages": self.messages, "bytes": self.bytes, "first_time": self.first_us,
            "last_time": self.last_us,
            "longest_silence_ms": None if self.silence_us is None else self.silence_us / 1000, "lines": _edges(self),
        }  # fmt: skip

    @classmethod
    def of(cls, r: dict[str, Any]) -> Self:
        silence = r["longest_silence_ms"]
        return cls(
            r["window_start"], r["topic"], r["sender"], r["recorder"], r["host"], r["messages"], r["bytes"],
            r["first_time"], r["last_time"],
            None if silence is None else round(silence * 1000), [Line(**line) for line in r["lines"]],
        )  # fmt: skip


P = TypeVar("P", bound=Part)


def merge(parts: Iterable[P]) -> list[P]:
    """One partial for each key."""
    found: dict[tuple[Any, ...], P] = {}
    for part in parts:
        known = found.setdefault(part.key, part)
        if known is not part:
            known.add(part)
    for part in found.values():
        part.settle()
    return [found[key] for key in sorted(found)]


def _joined(lines: list[Line], interval: Callable[[int], None]) -> list[Line]:
    """Lines of one life, joined in the order of their messages."""
    joined: list[Line] = []
    for line in sorted(lines, key=lambda one: (one.recording, one.epoch, one.first_seq)):
        last = joined[-1] if joined else None
        if last is None or (last.recording, last.epoch) != (line.recording, line.epoch):
            joined.append(line)
            continue
        interval(line.first_us - last.last_us)
        last.last_seq, last.last_us = line.last_seq, line.last_us
    return joined


def rows_of(parts: list[P], window_s: float) -> pa.Table:
    return pa.Table.from_pylist([part.row(window_s) for part in parts], schema=parts[0].schema)


def parts_of(kind: type[P], rows: pa.Table) -> list[P]:
    plain = rows.select(kind.schema.names)
    for index, f in enumerate(kind.schema):
        if f.type == TIME:
            plain = plain.set_column(index, f.name, pc.cast(plain.column(index), pa.int64()))
    return [kind.of(row) for row in plain.to_pylist()]


def measure(recording: str, topic: str, rows: pa.RecordBatch, window_us: int) -> tuple[list[Health], list[Sender]]:
    """The partials of rows of one topic, in the order in which one segment has them."""
    host = rows.column("host")[0].as_py()
    epoch, seq, size, lost = (numbers(rows, name) for name in ("epoch", "seq", "size", "lost"))
    at = numbers(rows, "publish_time")
    latency = ((numbers(rows, "record_time") - at) - numbers(rows, "publish_ns") / 1000) / 1000
    window = at // window_us * window_us
    recorder, recorders = _codes(rows.column("recorder"))
    sender, senders = _codes(rows.column("sender"))
    health, silences = [], []
    for index, lines in _groups(recording, at, seq, epoch, [window, epoch, recorder]):
        first, delay, gaps = index[0], latency[index], np.diff(at[index])
        squares = gaps.astype(float)
        health.append(
            Health(
                int(window[first]), topic, int(epoch[first]), recorders[recorder[first]], host,
                len(index), int(size[index].sum()), int(lost[index].sum()), int((lost[index] > 0).sum()),
                int((delay > LATE_MS).sum()), float(delay.min()), float(delay.max()), sketch(delay), len(gaps),
                float(gaps.sum()), float((squares * squares).sum()), int((gaps < 0).sum()), lines,
            )
        )  # fmt: skip
    for index, lines in _groups(recording, at, seq, epoch, [window, epoch, recorder, sender]):
        first, times = index[0], at[index]
        longest = int(np.diff(times).max()) if len(index) > 1 else None
        silences.append(
            Sender(
                int(window[first]), topic, senders[sender[first]], recorders[recorder[first]], host,
                len(index), int(size[index].sum()), int(times.min()), int(times.max()), longest, lines,
            )
        )  # fmt: skip
    return health, silences


def sketch(values: np.ndarray) -> dict[int, int]:
    """A histogram with buckets of equal ratio: bucket b > 0 ends at GAMMA ** (b - 1) nanoseconds, -b is its mirror."""
    size = np.abs(values)
    steps = np.log(np.maximum(size, _SMALLEST_MS) / _SMALLEST_MS) / math.log(GAMMA)
    buckets = np.where(size < _SMALLEST_MS, 0, np.sign(values) * (np.ceil(steps - 1e-9) + 1)).astype(np.int64)
    found, counts = np.unique(buckets, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _middle_ms(bucket: int) -> float:
    if not bucket:
        return 0.0
    return math.copysign(_SMALLEST_MS * 2 * GAMMA ** (abs(bucket) - 1) / (1 + GAMMA), bucket)


def _groups(
    recording: str, at: np.ndarray, seq: np.ndarray, epoch: np.ndarray, keys: list[np.ndarray]
) -> Iterator[tuple[np.ndarray, list[Line]]]:
    """(which rows, their edges) of the rows that have the same keys, in the order they are in."""
    order = np.lexsort(keys[::-1])  # stable
    changed = np.zeros(len(order), bool)
    changed[0] = True
    for key in keys:
        changed[1:] |= key[order][1:] != key[order][:-1]
    starts = [*np.flatnonzero(changed).tolist(), len(order)]
    for begin, end in pairwise(starts):
        index = order[begin:end]
        a, z = index[0], index[-1]
        yield index, [Line(recording, int(epoch[a]), int(seq[a]), int(at[a]), int(seq[z]), int(at[z]))]


def numbers(rows: pa.RecordBatch, name: str) -> np.ndarray:
    return np.asarray(rows.column(name).cast(pa.int64()), np.int64)


def _codes(column: pa.Array) -> tuple[np.ndarray, list[str]]:
    encoded = column.dictionary_encode()
    return encoded.indices.to_numpy(), encoded.dictionary.to_pylist()


def _edges(part: Any) -> list[dict[str, Any]]:
    return [msgspec.structs.asdict(line) for line in part.lines]
