"""A sketch of a distribution: a histogram whose buckets have equal ratios, so that a quantile is off by at most 1 %,
and two sketches are merged by adding up their buckets."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ringmain.lake._gold import Groups, Values, as_numbers, flat, list_array

GAMMA = 1.02  # the ratio of a bucket's bounds
_SMALLEST = 1e-6  # of milliseconds: a nanosecond


class Sketches(NamedTuple):
    """One for each group."""

    buckets: pa.Array
    counts: pa.Array


def bucket_of(values: np.ndarray) -> np.ndarray:
    """Bucket b > 0 ends at GAMMA ** (b - 1) nanoseconds, and -b is its mirror."""
    # In place: new arrays of some megabytes cost ten times what is computed.
    steps: np.ndarray = np.abs(values)
    small = steps < _SMALLEST
    np.maximum(steps, _SMALLEST, out=steps)
    steps /= _SMALLEST
    np.log(steps, out=steps)
    steps /= math.log(GAMMA)
    steps -= 1e-9
    np.ceil(steps, out=steps)
    steps += 1
    np.copysign(steps, values, out=steps)
    if small.any():
        steps[small] = 0
    return np.asarray(steps, dtype=np.int64)


def measured(name: str) -> Callable[[Groups], Sketches]:
    """Of the values of messages."""

    def measure(messages: Groups) -> Sketches:
        return _added(messages.of_row, bucket_of(messages[name]), None, len(messages))

    return measure


def merged(buckets: str, counts: str) -> Callable[[Groups], Sketches]:
    """Of the sketches of rows."""

    def merge(rows: Groups) -> Sketches:
        found, sizes = flat(rows[buckets])
        return _added(np.repeat(rows.of_row, sizes), as_numbers(found), as_numbers(flat(rows[counts])[0]), len(rows))

    return merge


def _added(group: np.ndarray, bucket: np.ndarray, count: np.ndarray | None, groups: int) -> Sketches:
    """The buckets of each group with what they count: without a count, each 1."""
    low = int(bucket.min(initial=0))
    room = int(bucket.max(initial=0)) - low + 1
    numbered = group * room
    numbered += bucket
    numbered -= low
    if groups * room <= 8 * len(numbered):
        whole = np.bincount(numbered, count)
        pairs = np.flatnonzero(whole)
        sums = whole[pairs].astype(np.int64)
    else:
        pairs, where = np.unique(numbered, return_inverse=True)
        sums = np.bincount(where, count, minlength=len(pairs)).astype(np.int64)
    sizes = np.bincount(pairs // room, minlength=groups)
    return Sketches(list_array(pa.array(pairs % room + low, pa.int32()), sizes), list_array(pa.array(sums), sizes))


def quantile(q: float) -> Callable[[Any, float], Values]:
    """The column of a quantile, made of those of the sketch and of the least and the greatest value."""

    def derive(state: Any, window_s: float) -> Values:
        buckets, sizes = flat(state["latency_buckets"])
        counts = as_numbers(flat(state["latency_counts"])[0])
        ends = np.cumsum(sizes)
        group = np.repeat(np.arange(len(sizes)), sizes)
        so_far = np.cumsum(counts)
        before = np.append(0, so_far)[ends - sizes]
        rank = q * (as_numbers(state["messages"]) - 1)
        reached = so_far - before[group] > rank[group]
        first = np.minimum.reduceat(np.where(reached, np.arange(len(group)), len(group) - 1), ends - sizes)
        found = _middle(as_numbers(buckets)[first])
        return np.clip(found, as_numbers(state["latency_min_ms"]), as_numbers(state["latency_max_ms"]))

    return derive


def _middle(bucket: np.ndarray) -> np.ndarray:
    size = _SMALLEST * 2 * GAMMA ** (np.abs(bucket) - 1.0) / (1 + GAMMA)
    return np.where(bucket == 0, 0.0, np.copysign(size, bucket))
