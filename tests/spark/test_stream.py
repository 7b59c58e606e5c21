"""Streaming over recordings: exactly once, through restarts, sealing, retention and a recorder that dies.

Sinks append what each batch holds to a list or to files named by batch, as a user's foreachBatch would, and the test
compares the union with what was recorded. Nothing sleeps: queries run with AvailableNow and end by themselves, or are
waited for with a bound.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import ringmain.spark
from ringmain.recording import Position, consumers
from ringmain.recording._segment.store import Store
from ringmain.recording._upkeep.retention import retire
from tests.spark.recordings import Imu, Imu2, imu, imu2, record, rows, schema_of, writer


class Sink:
    """Keeps (seq, topic, recorder) of every row, by batch: a batch that comes again replaces itself."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[str, str, int]]] = {}

    def __call__(self, frame: Any, batch: int) -> None:
        self.batches[batch] = [tuple(r) for r in frame.select("recorder", "topic", "seq").collect()]

    @property
    def all(self) -> list[tuple[str, str, int]]:
        return sorted(row for batch in self.batches.values() for row in batch)


def run_now(spark: Any, path: Path, checkpoint: Path, sink: Any, **options: Any) -> None:
    reader = spark.readStream.format("ringmain")
    for key, value in options.items():
        reader = reader.option(key, value)
    for tries_left in (2, 1, 0):
        query = (
            reader.load(str(path))
            .writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(240), "the query did not end"
            return
        except StreamingQueryException as error:
            # Spark gives a Python process 10 s to start, whatever else the machine does.
            if "failed to connect back" not in str(error) or not tries_left:
                raise
        finally:
            query.stop()


def seqs(recorder: str, topic: str, count: int) -> list[tuple[str, str, int]]:
    return [(recorder, topic, n) for n in range(count)]


@pytest.mark.each_run
@pytest.mark.timeout(600)
def test_goes_on_where_it_stopped_while_segments_are_sealed(spark: Any, tmp_path: Path) -> None:
    """First over a growing segment, cut into batches by rows; then, the segment sealed and others added meanwhile, from
    the checkpoint: every row once, no batch beyond the limit, and a second recorder that appeared is found."""
    made = writer(tmp_path / "recs" / "one")
    made.append("a", 1, rows(0, 50))
    made.flush()
    sink = Sink()
    run_now(spark, tmp_path / "recs", tmp_path / "check", sink, maxRowsPerTrigger=30)
    assert sorted(map(len, sink.batches.values())) == [20, 30]
    made.append("a", 1, rows(50, 10))
    made.rotate()
    made.append("a", 1, rows(60, 5))
    made.close()
    record(tmp_path / "recs" / "two", ("b", 1, rows(0, 7)))
    run_now(spark, tmp_path / "recs", tmp_path / "check", sink)
    assert sink.all == seqs("one", "a", 65) + seqs("two", "b", 7)
    positions = consumers(tmp_path / "recs" / "one")
    assert len(positions) == 1  # the same consumer before and after
    assert next(iter(positions)).startswith("spark-")


def test_retention_waits_for_the_stream(spark: Any, tmp_path: Path) -> None:
    path = record(tmp_path / "r", *[("a", 1, rows(n * 10, 10)) for n in range(4)])
    sink = Sink()
    run_now(spark, path, tmp_path / "check", sink, maxRowsPerTrigger=10, consumer="lake")
    # Spark tells the source of a batch when it plans the next, so the last one is not told yet.
    assert consumers(path)["lake"] >= Position(2, 0)
    kept_from = consumers(path)["lake"].segment
    gone = retire(Store.of(path), keep_bytes=0)
    assert gone == list(range(kept_from))
    assert sink.all == seqs("r", "a", 40)


def test_rows_deleted_before_they_were_read(spark: Any, tmp_path: Path) -> None:
    path = record(tmp_path / "r", *[("a", 1, rows(n * 10, 10)) for n in range(4)])
    sink = Sink()
    run_now(
        spark, path, tmp_path / "check", sink, maxRowsPerTrigger=10, startingPosition="000000003:0", consumer="late"
    )
    assert sink.all == [("r", "a", n) for n in range(30, 40)]
    retire(Store.of(path), keep_bytes=0, force=True)
    with pytest.raises(Exception, match="retention has deleted 30 rows"):
        run_now(spark, path, tmp_path / "check2", Sink(), startingPosition="000000000:0")
    lenient = Sink()
    run_now(
        spark, path, tmp_path / "check3", lenient, startingPosition="000000000:0", failOnDataLoss="false", consumer="me"
    )
    assert lenient.all == [("r", "a", n) for n in range(30, 40)]
    assert ringmain.spark.gaps(str(path), "me")[0]["rows"] == 30


def test_a_killed_recorder_loses_nothing_that_was_flushed(spark: Any, tmp_path: Path) -> None:
    """The recorder dies by SIGKILL between two flushes; another goes on in the same directory; the stream reads on."""
    program = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.spark.recordings import rows, writer
made = writer(Path({str(tmp_path / "r")!r}))
made.append("a", 1, rows(0, 20)); made.flush()
made.append("a", 1, rows(20, 20))
os.kill(os.getpid(), signal.SIGKILL)
"""
    died = subprocess.run([sys.executable, "-c", program], timeout=120, check=False)
    assert died.returncode == -signal.SIGKILL
    sink = Sink()
    run_now(spark, tmp_path / "r", tmp_path / "check", sink)
    assert sink.all == seqs("r", "a", 20)
    made = writer(tmp_path / "r")
    made.append("a", 1, rows(20, 5))
    made.close()
    run_now(spark, tmp_path / "r", tmp_path / "check", sink)
    assert sink.all == seqs("r", "a", 25)


def test_a_topic_that_gains_a_field_needs_a_restart(spark: Any, tmp_path: Path) -> None:
    made = writer(tmp_path / "r")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.append("imu", 1, rows(0, 3, encode=imu))
    made.flush()
    batches: list[Any] = []

    def keep(frame: Any, batch: int) -> None:
        batches.append(frame.toPandas())
        if batch == 0:  # while the query runs, the topic is recreated with one field more
            made.declare("imu", epoch=2, schema=schema_of(Imu2))
            made.append("imu", 2, rows(0, 3, encode=imu2))
            made.close()

    options = {"topic": "imu", "decode": "true"}
    query = (
        spark.readStream.format("ringmain")
        .options(**options)
        .load(str(tmp_path / "r"))
        .writeStream.foreachBatch(keep)
        .option("checkpointLocation", str(tmp_path / "check"))
        .start()
    )
    with pytest.raises(Exception, match="restart the query"):
        query.awaitTermination(240)
    run_now(spark, tmp_path / "r", tmp_path / "check", keep, **options)
    assert list(batches[0].columns)[-1] == "rm_decode_error"
    assert "note" not in batches[0].columns
    assert list(batches[-1]["note"]) == ["n0", "n1", "n2"]


DRIVER = """
import sys
sys.path.insert(0, {root!r})
import ringmain.spark
spark = ringmain.spark.session(master="local[2]")

def keep(frame, batch):
    frame.select("seq").toPandas().to_csv(f"{out}/{{batch:04d}}.csv", index=False)
    print("batch", batch, flush=True)

query = (spark.readStream.format("ringmain").option("maxRowsPerTrigger", 40).load({path!r})
    .writeStream.foreachBatch(keep).option("checkpointLocation", {check!r}).trigger(availableNow=True).start())
query.awaitTermination(300)
spark.stop()
"""


@pytest.mark.timeout(600)
@pytest.mark.spark
def test_exactly_once_through_a_killed_driver(tmp_path: Path) -> None:
    """The driver, JVM and all, is killed by SIGKILL in the middle of the third batch, and started again."""
    path = record(tmp_path / "r", *[("a", 1, rows(n * 100, 100)) for n in range(3)], seal=False)
    (tmp_path / "out").mkdir()
    program = DRIVER.format(
        root=str(Path(__file__).parents[2]), out=tmp_path / "out", path=str(path), check=str(tmp_path / "check")
    )
    first = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert first.stdout is not None
    for line in first.stdout:
        if line.startswith("batch 2"):
            break
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(60)
    first.stdout.close()
    again = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=400, check=True)
    assert "batch 2" in again.stdout or "batch 3" in again.stdout
    assert "batch 0" not in again.stdout
    found = sorted(int(n) for file in (tmp_path / "out").iterdir() for n in file.read_text().split()[1:])
    assert found == list(range(300))


def test_seen_while_it_is_recorded(spark: Any, tmp_path: Path) -> None:
    """A query that is running sees what is flushed after it started, without being told."""
    made = writer(tmp_path / "r")
    made.append("a", 1, rows(0, 5))
    made.flush()
    sink = Sink()
    query = (
        spark.readStream.format("ringmain")
        .load(str(tmp_path / "r"))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "check"))
        .start()
    )
    try:
        for total in (5, 12, 30):
            have = made.position.row
            if total > have:
                made.append("a", 1, rows(have, total - have))
                made.flush()
            give_up = time.monotonic() + 200
            while len(sink.all) < total and time.monotonic() < give_up:
                assert query.exception() is None
                query.awaitTermination(1)
            assert sink.all == seqs("r", "a", total)
    finally:
        query.stop()
        made.close()


def test_sealing_and_retention_while_it_streams(spark: Any, tmp_path: Path) -> None:
    """A query runs; the recorder seals a segment after each flush, and what the query has read is deleted behind it."""
    made = writer(tmp_path / "r")
    made.append("a", 1, rows(0, 10))
    made.flush()
    sink, deleted = Sink(), []
    query = (
        spark.readStream.format("ringmain")
        .option("consumer", "lake")
        .load(str(tmp_path / "r"))
        .writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path / "check"))
        .start()
    )
    try:
        for total in range(20, 90, 10):
            give_up = time.monotonic() + 200
            while len(sink.all) < total - 10 and time.monotonic() < give_up:
                assert query.exception() is None
                query.awaitTermination(1)
            made.rotate()
            made.append("a", 1, rows(total - 10, 10))
            made.flush()
            deleted += retire(Store.of(tmp_path / "r"), keep_bytes=0)
        give_up = time.monotonic() + 200
        while len(sink.all) < 80 and time.monotonic() < give_up:
            assert query.exception() is None
            query.awaitTermination(1)
    finally:
        query.stop()
        made.close()
    assert sink.all == seqs("r", "a", 80)
    assert len(deleted) >= 3
    assert deleted == list(range(len(deleted)))


@pytest.mark.parametrize("lenient", [False, True])
def test_a_segment_that_somebody_deleted(spark: Any, tmp_path: Path, lenient: bool) -> None:
    """By hand, not by retention: the query stops there, or passes over it and counts the rows that are gone."""
    path = record(tmp_path / "r", *[("a", 1, rows(n * 10, 10)) for n in range(3)])
    sink = Sink()

    def keep(frame: Any, batch: int) -> None:
        sink(frame, batch)
        (path / "000000001.parquet").unlink(missing_ok=True)

    options = {"maxRowsPerTrigger": 10, "consumer": "me", "failOnDataLoss": str(not lenient).lower()}
    if lenient:
        run_now(spark, path, tmp_path / "check", keep, **options)
        assert sink.all == [("r", "a", n) for n in [*range(10), *range(20, 30)]]
        assert {gap["segment"] for gap in ringmain.spark.gaps(str(path), "me")} == {1}
    else:
        with pytest.raises(Exception, match="failOnDataLoss=false turns such losses into counted gaps"):
            run_now(spark, path, tmp_path / "check", keep, **options)
        assert sink.all == seqs("r", "a", 10)


def test_windows_with_a_watermark_keep_little_state(spark: Any, tmp_path: Path) -> None:
    """40 minutes in batches of a few: what is counted by the minute is right, and what Spark keeps does not grow."""
    path = record(tmp_path / "r", *[("a", 1, rows(n * 600, 600, step_ns=10**9)) for n in range(4)])
    from pyspark.sql import functions as F

    counts = (
        spark.readStream.format("ringmain").option("maxRowsPerTrigger", 400).option("columns", "topic,publish_time")
        .load(str(path)).withWatermark("publish_time", "1 minute")
        .groupBy(F.window("publish_time", "1 minute"), "topic").count()
    )  # fmt: skip
    found: list[Any] = []
    query = (
        counts.writeStream.outputMode("append")
        .foreachBatch(lambda frame, batch: found.extend(frame.collect()))
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(240)
    kept = [p["stateOperators"][0]["numRowsTotal"] for p in query.recentProgress if p["stateOperators"]]
    assert len(kept) >= 6
    assert max(kept) <= 12  # the minutes of one batch, those of the watermark, and the one that is cut in two
    assert len(found) >= 36
    assert {r["count"] for r in found[1:]} == {60}
