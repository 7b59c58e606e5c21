"""What the Spark tests share: one session for all of them (starting one takes seconds), and recordings to read.

Recordings are made with the real RecordingWriter from batches like those that a ring gives, so tests decide every
sequence number and time stamp.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

pytest.importorskip("pyspark")


from ringmain import typed
from ringmain.recording import RecordingWriter
from ringmain.recording.format import RING_SCHEMA

START_NS = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20 UTC


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What starts Spark is for `make test-spark`, but for a few tests that show the whole way and are in every run."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and item.get_closest_marker("each_run") is None:
            item.add_marker(pytest.mark.spark)


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
    place: tuple[float, float]


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


@pytest.fixture(scope="session")
def runtime_dir_of_session() -> Iterator[Path]:
    """Spark's workers inherit the environment of the JVM, so topics of all Spark tests live in one place."""
    path = Path(tempfile.mkdtemp(prefix="ringmain-spark-", dir="/dev/shm"))
    before = os.environ.get("RINGMAIN_DIR")
    os.environ["RINGMAIN_DIR"] = str(path)
    yield path
    if before is None:
        del os.environ["RINGMAIN_DIR"]
    else:
        os.environ["RINGMAIN_DIR"] = before
    shutil.rmtree(path)


@pytest.fixture(autouse=True)
def runtime_dir(runtime_dir_of_session: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """In place of a directory for each test: the workers of a running JVM would not know of it."""
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir_of_session))
    yield runtime_dir_of_session
    left = sorted(file.name for file in runtime_dir_of_session.glob("*.ring"))
    assert not left, f"topics left over: {left}"


@pytest.fixture(scope="session")
def spark(runtime_dir_of_session: Path) -> Iterator[Any]:
    import ringmain.spark

    made = ringmain.spark.session(master="local[2]", brief=True, **{"spark.driver.memory": "3g"})
    yield made
    made.stop()
