"""The stream's offsets without Spark around them: its reader is called as Spark calls it, so that every case is quick.

What is shown: a batch that is planned again is the same rows, limits are kept, and rows that are gone are an error or a
counted gap, whoever deleted them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import ringmain.spark
from ringmain.errors import RecordingNotFound
from ringmain.recording._segment.store import Store
from ringmain.recording._upkeep.retention import retire
from ringmain.spark._source import RingmainSource
from tests.spark.recordings import record, rows, writer


def open_stream(path: Path, **options: str) -> Any:
    source = RingmainSource({"path": str(path), "consumer": "me", **options})
    return source.streamReader(source.schema())


def read(stream: Any, start: Any, end: Any) -> list[int]:
    parts = stream.partitions(start, end)
    return [seq for part in parts for batch in stream.read(part) for seq in batch.column("seq").to_pylist()]


def three_segments(path: Path, **options: Any) -> Path:
    return record(path, *[("a", 1, rows(n * 10, 10)) for n in range(3)], **options)


def test_a_batch_that_is_planned_again_is_the_same(tmp_path: Path) -> None:
    """By another reader, after the segment was sealed and more was recorded."""
    made = writer(tmp_path / "r")
    made.append("a", 1, rows(0, 10))
    made.flush()
    stream = open_stream(tmp_path / "r", maxRowsPerTrigger="7")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ReadMaxRows(7))
    assert read(stream, start, end) == list(range(7))
    made.append("a", 1, rows(10, 10))
    made.close()
    again = open_stream(tmp_path / "r", maxRowsPerTrigger="7")
    assert read(again, start, end) == list(range(7))
    then = again.latestOffset(end, ReadMaxRows(7))
    assert read(again, end, then) == list(range(7, 14))


@pytest.mark.parametrize("known", [False, True])
def test_a_segment_that_somebody_deleted_is_noticed(tmp_path: Path, known: bool) -> None:
    """Whether the reader had seen it before or, restarted, knows it from the offsets alone."""
    path = three_segments(tmp_path / "r")
    planner = open_stream(path)
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadAllAvailable())
    (path / "000000001.parquet").unlink()
    strict = planner if known else open_stream(path)
    with pytest.raises(RecordingNotFound, match=r"segment 000000001 .* failOnDataLoss=false"):
        strict.partitions(start, end)
    lenient = open_stream(path, failOnDataLoss="false")
    assert read(lenient, start, end) == [*range(10), *range(20, 30)]
    (gap,) = ringmain.spark.gaps(str(path), "me")
    assert (gap["segment"], gap["row"]) == (1, 0)


def test_one_that_was_read_to_its_end_may_go(tmp_path: Path) -> None:
    path = three_segments(tmp_path / "r")
    stream = open_stream(path, maxRowsPerTrigger="10")
    first = stream.latestOffset(stream.initialOffset(), ReadMaxRows(10))
    (path / "000000000.parquet").unlink()
    second = stream.latestOffset(first, ReadMaxRows(10))
    assert read(stream, first, second) == list(range(10, 20))


def test_what_retention_deleted_is_counted(tmp_path: Path) -> None:
    path = three_segments(tmp_path / "r")
    planner = open_stream(path)
    start = planner.initialOffset()
    end = planner.latestOffset(start, ReadAllAvailable())
    assert retire(Store.of(path), keep_bytes=0, force=True) == [0, 1]
    with pytest.raises(RecordingNotFound, match="retention has deleted 20 rows"):
        open_stream(path).partitions(start, end)
    assert read(open_stream(path, failOnDataLoss="false"), start, end) == list(range(20, 30))
    assert [gap["rows"] for gap in ringmain.spark.gaps(str(path), "me")] == [20]


def test_some_segments_of_a_recording_can_be_streamed(tmp_path: Path) -> None:
    """Copied from elsewhere, without the first ones: a new query begins with what is there."""
    path = three_segments(tmp_path / "r")
    (path / "000000000.parquet").unlink()
    stream = open_stream(path)
    start = stream.initialOffset()
    assert read(stream, start, stream.latestOffset(start, ReadAllAvailable())) == list(range(10, 30))
