"""Recordings for the Spark tests, made with the real RecordingWriter from batches like those that a ring gives, so
tests decide every sequence number and time stamp.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ringmain import typed
from ringmain.recording import RecordingWriter
from ringmain.recording._format import RING_SCHEMA

START_NS = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20 UTC


class Imu(msgspec.Struct):
    t: int
    x: float


class Imu2(msgspec.Struct):
    """The same topic a release later: one field more."""

    t: int
    x: float
    note: str = ""


class Pose(msgspec.Struct):
    size: int  # the name of an envelope's column, on purpose
    point: tuple[float, float]


def rows(
    first: int,
    count: int,
    *,
    encode: Callable[[int], bytes] | None = None,
    step_ns: int = 1_000_000,
    start_ns: int = START_NS,
    lost: int = 0,
    sender: str = "s",
) -> pa.RecordBatch:
    """Messages `first` to `first + count`, one a millisecond; `lost` were missed before the first of them."""
    numbers = range(first, first + count)
    data = [encode(n) if encode is not None else b"message %d" % n for n in numbers]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers, pa.uint64()),
            pa.array([start_ns + n * step_ns for n in numbers], pa.int64()),
            pa.array([sender] * count, pa.string()),
            pa.array(["k"] * count, pa.string()),
            pa.array([lost] + [0] * (count - 1), pa.uint64()),
            pa.array([b""] * count, pa.binary()),
            pa.array(data, pa.binary()),
        ],
        schema=RING_SCHEMA,
    )


def imu(n: int) -> bytes:
    return msgspec.msgpack.encode(Imu(n, n / 2))


def imu2(n: int) -> bytes:
    return msgspec.msgpack.encode(Imu2(n, n / 2, f"n{n}"))


def schema_of(kind: Any) -> bytes:
    return typed.codec_for(kind).schema.to_bytes()


def writer(path: Path, **options: Any) -> RecordingWriter:
    settings: dict[str, Any] = {"recorder": path.name, "fsync": "never", "flush_interval_s": 1000.0}
    return RecordingWriter(path, **{**settings, **options})


def record(path: Path, *parts: tuple[str, int, pa.RecordBatch], seal: bool = True, **options: Any) -> Path:
    """A recording with one segment for each part; the last one is left growing unless `seal`."""
    made = writer(path, **options)
    for index, (topic, epoch, batch) in enumerate(parts):
        record_ns = batch.column("time_ns")[-1].as_py() + 2_000_000
        made.append(topic, epoch, batch, record_time_ns=record_ns)
        made.flush()
        if seal or index < len(parts) - 1:
            made.rotate()
    if seal:
        made.close()
    else:
        while made.segments_waiting:
            os.sched_yield()
        made.abandon()
    return path
