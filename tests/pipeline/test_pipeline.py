"""The pipeline from recordings to gold, in one lake that grows: what each table holds, that nothing is lost or doubled,
and that readers other than Spark see the same.

Two recorders overlap on one topic, a topic's schema gains a field, some payloads are not what their schema says. The
numbers are checked with DuckDB and pyarrow, which know nothing of Spark's bookkeeping.
"""

from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

import ringmain.spark
from ringmain.errors import LakeError
from ringmain.pipeline import Align, Lake, Pipeline, aligned
from ringmain.pipeline._batch import BatchRun, Plan, Touched
from ringmain.pipeline._lake import TopicCount
from tests.spark.recordings import START_NS, Imu, Imu2, imu, imu2, record, rows, schema_of, writer


def query(lake: Path, table: str, sql: str) -> list[tuple[Any, ...]]:
    source = f"read_parquet('{lake}/{table}/**/*.parquet', union_by_name=true, hive_partitioning=true)"
    return duckdb.sql(sql.replace("TABLE", source)).fetchall()


def record_one(path: Path) -> None:
    """imu 0..99 typed, 3 lost before the first, two that do not decode; camera/left 0..9 as bytes."""
    made = writer(path)
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.declare("camera/left", epoch=1)
    made.append("imu", 1, rows(0, 100, encode=imu, lost=3), record_time_ns=START_NS + 100_000_000)
    made.append("imu", 1, rows(100, 2), record_time_ns=START_NS + 103_000_000)
    made.append("camera/left", 1, rows(0, 10, step_ns=10_000_000), record_time_ns=START_NS + 100_000_000)
    made.close()


def record_two(path: Path) -> None:
    """The same imu as another recorder saw it: 60..139, of which 60..101 were recorded before; and its next life."""
    made = writer(path)
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.declare("imu", epoch=2, schema=schema_of(Imu2))
    made.append("imu", 1, rows(60, 80, encode=imu), record_time_ns=START_NS + 140_000_000)
    made.append("imu", 2, rows(0, 5, encode=imu2, start_ns=START_NS + 10**9), record_time_ns=START_NS + 2 * 10**9)
    made.close()


@pytest.mark.timeout(900)
@pytest.mark.each_run
def test_from_recordings_to_gold(spark: Any, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    record_one(tmp_path / "recs" / "one")
    pipeline = Pipeline(aligns=[Align("camera/left", ("imu",), tolerance_s=0.5)], format="delta")

    @pipeline.on("imu", table="imu_doubled")
    def doubled(frame: Any) -> Any:
        return frame.selectExpr("publish_time", "seq", "x * 2 as x2").where("seq < 50")

    lines: list[str] = []
    first = pipeline.run(tmp_path / "recs", lake, spark=spark, progress=lines.append)
    assert (first.rows_in, first.rows_out, first.quarantined, first.duplicates, first.lost) == (112, 110, 2, 0, 3)
    assert lines[0].startswith("batch 0: 112 rows of 2 topics")

    record_two(tmp_path / "recs" / "two")
    second = pipeline.run(tmp_path / "recs", lake, spark=spark)
    # Of 85 rows, 42 are copies: 40 of messages that are in silver and 2 of messages that are in quarantine.
    assert (second.rows_in, second.rows_out, second.quarantined, second.duplicates) == (85, 43, 0, 42)
    third = pipeline.run(tmp_path / "recs", lake, spark=spark)
    assert third.rows_in == 0

    assert query(lake, "bronze", "select topic, count(*) from TABLE group by 1 order by 1") == [
        ("camera/left", 10),
        ("imu", 187),
    ]
    silver = query(
        lake,
        "silver/imu",
        "select epoch, count(*), count(distinct seq), min(t), max(t) from TABLE group by 1 order by 1",
    )
    assert silver == [(1, 138, 138, 0, 139), (2, 5, 5, 0, 4)]
    assert query(lake, "silver/imu", "select note from TABLE where epoch = 2 order by seq limit 2") == [
        ("n0",),
        ("n1",),
    ]
    assert query(lake, "silver/camera~left", "select count(payload) from TABLE") == [(10,)]
    assert query(lake, "quarantine", "select seq, reason from TABLE order by seq") == [
        (100, "Expected `object`, got `int`"), (101, "Expected `object`, got `int`"),
    ]  # fmt: skip
    assert query(lake, "steps/imu_doubled", "select count(*), max(x2) from TABLE") == [(50 + 5, 49.0)]
    check_gold(lake)
    check_delta(lake)


def check_gold(lake: Path) -> None:
    health = query(
        lake,
        "gold/topic_health",
        """select topic, recorder, sum(messages), sum(lost), sum(gaps),
        max(latency_max_ms), max(jitter_ms), sum(out_of_order) from TABLE group by 1, 2 order by 1, 2""",
    )
    assert [row[:5] for row in health] == [
        ("camera/left", "one", 10, 0, 0), ("imu", "one", 102, 3, 1), ("imu", "two", 85, 0, 0),
    ]  # fmt: skip
    assert [round(row[5], 3) for row in health] == [100.0, 100.0, 1000.0]
    assert all(row[6] == 0 and row[7] == 0 for row in health)
    assert query(lake, "gold/gaps", "select topic, reader, before_seq, lost from TABLE") == [("imu", "one", 0, 3)]
    assert query(lake, "gold/senders", "select sum(messages) from TABLE where topic = 'imu' and recorder = 'one'") == [
        (102,)
    ]
    # The newest imu at or before each frame: frame k at 10k ms, imu n at n ms.
    pairs = query(lake, "gold/aligned_camera_left", "select seq, imu.t, imu_age_ms from TABLE order by seq")
    assert pairs == [(k, 10 * k, 0.0) for k in range(10)]


def check_delta(lake: Path) -> None:
    from deltalake import DeltaTable

    for table, expected in {"bronze": 197, "silver/imu": 143, "silver/camera~left": 10, "quarantine/imu": 2}.items():
        assert DeltaTable((lake / table).as_uri()).to_pyarrow_dataset().count_rows() == expected, table


@pytest.mark.timeout(900)
def test_a_batch_that_is_tried_again_replaces_itself(spark: Any, tmp_path: Path) -> None:
    """A batch dies after bronze and half of silver are in place; tried again, every row is there once. A batch that was
    complete is left alone when Spark, which died before noting it, sends it again."""
    record_one(tmp_path / "rec")
    lake = Lake(tmp_path / "lake")
    messages = spark.read.format("ringmain").option("positions", "true").load(str(tmp_path / "rec"))

    class Died(Exception):
        pass

    def die(frame: Any) -> Any:
        raise Died

    from ringmain.spark._locations import find_recordings

    stores = lambda: list(find_recordings(str(tmp_path / "rec")).values())  # noqa: E731
    with pytest.raises(Died):
        BatchRun(spark, lake, Plan(tables={"broken": (die, "publish_time")}), stores).process(messages, 0)
    assert query(lake.root, "bronze", "select count(*) from TABLE") == [(112,)]
    run = BatchRun(spark, lake, Plan(), stores)
    commit = run.process(messages, 0)
    assert commit is not None
    assert query(lake.root, "bronze", "select count(*), count(distinct (topic, seq)) from TABLE") == [(112, 112)]
    assert query(lake.root, "silver/imu", "select count(*) from TABLE") == [(100,)]
    assert run.process(messages, 0) is None
    with pytest.raises(LakeError, match=r"its checkpoint .* is gone"):
        Lake(tmp_path / "lake")


def test_books_that_do_not_balance_are_refused(tmp_path: Path) -> None:
    run = BatchRun(None, Lake(tmp_path / "lake"), Plan(), list)  # type: ignore[arg-type]
    with pytest.raises(LakeError, match="10 rows in, but 8 out \\+ 1 quarantined \\+ 0 duplicates = 9"):
        run._check(0, [TopicCount("a", 10, 8, 1, 0)], 10)


def test_settings_of_a_lake_do_not_change(tmp_path: Path) -> None:
    Lake(tmp_path / "lake")
    from ringmain.pipeline._lake import Settings

    with pytest.raises(LakeError, match="was built with"):
        Lake(tmp_path / "lake", Settings(window_s=5.0))
    with pytest.raises(ValueError, match="must divide 60"):
        Pipeline(window_s=7)


def test_aligned_takes_the_newest_within_the_tolerance(spark: Any) -> None:
    """Slow values across the edges of time slices, none at all, and one at the very same moment."""
    lead = spark.sql("""select timestamp_millis(ms) as publish_time, 1L as epoch, ms as seq, ms
        from values (0L), (999L), (1000L), (1400L), (2600L), (9000L) as t(ms)""")
    other = spark.sql("""select timestamp_millis(ms) as publish_time, 1L as epoch, ms as seq, ms as v, 'x' as topic
        from values (900L), (1000L), (2400L) as t(ms)""")
    found = aligned(lead, {"b/c": other}, tolerance_s=0.5).orderBy("ms").collect()
    assert [(r.ms, r.b_c.v if r.b_c else None, r.b_c_age_ms) for r in found] == [
        (0, None, None), (999, 900, 99.0), (1000, 1000, 0.0), (1400, 1000, 400.0), (2600, 2400, 200.0),
        (9000, None, None),
    ]  # fmt: skip


def test_touched_minutes_are_read_in_runs() -> None:
    from ringmain.pipeline._batch import _runs

    assert _runs([1, 2, 3, 7, 9, 10]) == [(1, 3), (7, 7), (9, 10)]
    day = 24 * 60
    assert [str(d) for d in Touched([0, day - 1, day]).dates(60)] == ["1970-01-01", "1970-01-02"]
    assert [str(d) for d in Touched([day]).dates(60, before_s=1.0)] == ["1970-01-01", "1970-01-02"]


@pytest.mark.timeout(900)
def test_follows_a_recording(spark: Any, tmp_path: Path) -> None:
    """With follow, rows recorded while it runs arrive in the lake, batch after batch, each once."""
    made = writer(tmp_path / "rec")
    made.declare("a", epoch=1)
    made.append("a", 1, rows(0, 20))
    made.flush()

    def until(summary: Any) -> bool:
        if summary.rows_in == 20 and made.rows == 20:
            made.append("a", 1, rows(20, 15))
            made.close()
        return bool(summary.rows_in >= 35)

    pipeline = Pipeline()
    pipeline.plan.tables.clear()
    summary = pipeline.run(tmp_path / "rec", tmp_path / "lake", spark=spark, follow=True, interval_s=0.1, until=until)
    assert (summary.rows_in, summary.rows_out, summary.batches) == (35, 35, 2)
    assert query(tmp_path / "lake", "silver/a", "select count(*), count(distinct seq) from TABLE") == [(35, 35)]
    shutil.rmtree(tmp_path / "lake")


def test_payloads_of_the_test_are_what_they_say() -> None:
    assert msgspec.msgpack.decode(imu(4), type=Imu) == Imu(4, 2.0)


@pytest.mark.timeout(900)
def test_many_batches_give_the_same_as_one(spark: Any, tmp_path: Path) -> None:
    """The same recording, taken at once and in small batches that cut minutes in two: the same rows in every table, no
    more files, and no state that Spark would have to keep."""
    made = writer(tmp_path / "rec")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.declare("raw", epoch=1)
    for part in range(4):
        made.append("imu", 1, rows(part * 50, 50, encode=imu, step_ns=10**9, lost=part))
        made.append("raw", 1, rows(part * 50, 50, step_ns=10**9))
    made.close()
    for name, limit in (("one", "1GiB"), ("many", "10KiB")):
        summary = Pipeline().run(tmp_path / "rec", tmp_path / name, spark=spark, max_bytes_per_batch=limit)
        assert (summary.rows_in, summary.rows_out, summary.lost) == (400, 400, 6)
        assert (summary.batches == 1) == (name == "one")
    for table in ("bronze", "silver/imu", "silver/raw", "gold/topic_health", "gold/gaps", "gold/senders"):
        both = [sorted(query(tmp_path / name, table, "select * from TABLE"), key=str) for name in ("one", "many")]
        assert both[0] == both[1], table
        files = [len(list((tmp_path / name / table).rglob("*.parquet"))) for name in ("one", "many")]
        assert files[0] == files[1], table
    assert not list((tmp_path / "many" / "_ringmain" / "checkpoint").glob("state/*"))


@pytest.mark.timeout(900)
def test_empty_and_damaged_recordings(spark: Any, tmp_path: Path) -> None:
    """An empty recording makes an empty lake. Of a damaged one nothing is processed, or all that can be read."""
    writer(tmp_path / "empty").close()
    assert Pipeline().run(tmp_path / "empty", tmp_path / "lake0", spark=spark).rows_in == 0
    path = record(tmp_path / "r", ("a", 1, rows(0, 40)), ("a", 1, rows(40, 60)), seal=False)
    data = bytearray((path / "000000001.arrows").read_bytes())
    data[data.index(b"message 77")] ^= 1
    (path / "000000001.arrows").write_bytes(data)
    with pytest.raises(LakeError, match="failOnDataLoss=false") as said:
        Pipeline().run(path, tmp_path / "lake1", spark=spark)
    assert "\n" not in str(said.value)  # a sentence, and not Spark's pages around it
    summary = Pipeline().run(path, tmp_path / "lake2", spark=spark, fail_on_data_loss=False)
    assert (summary.rows_in, summary.rows_out) == (40, 40)
    assert [gap["rows"] for gap in ringmain.spark.gaps(str(path))][:1] == [60]


def test_health_counts_what_went_wrong(spark: Any) -> None:
    """Ten messages 10 ms apart, of which one was published before its predecessor, one was recorded 2 s late, and five
    were lost before another: each number is what one gets by hand."""
    from ringmain.pipeline import gaps, senders, topic_health

    start_us = START_NS // 1000
    values = []
    for n in range(10):
        at = start_us + n * 10_000 - (25_000 if n == 5 else 0)
        recorded = at + (2_000_000 if n == 8 else 1_000)
        values.append(f"({n}L, timestamp_micros({at}), timestamp_micros({recorded}), {5 if n == 3 else 0}L)")
    messages = spark.sql(f"""select 'host' as recorder, 'a' as topic, 1L as epoch, seq, 100 as size, lost,
        'cam' as sender,
        publish_time, cast(0 as smallint) as publish_ns, record_time
        from values {", ".join(values)} as t(seq, publish_time, record_time, lost)""")
    (health,) = topic_health(messages, window_s=10.0).collect()
    assert (health.messages, health.bytes, health.rate_hz, health.bytes_per_s) == (10, 1000, 1.0, 100.0)
    assert (health.lost, health.gaps, health.late, health.out_of_order) == (5, 1, 1, 1)
    assert (health.latency_p50_ms, health.latency_p99_ms, health.latency_max_ms) == (1.0, 2000.0, 2000.0)
    intervals = [10, 10, 10, 10, -15, 35, 10, 10, 10]
    assert health.jitter_ms == pytest.approx(statistics.stdev(intervals))
    (gap,) = gaps(messages).collect()
    assert (gap.topic, gap.reader, gap.before_seq, gap.lost) == ("a", "host", 3, 5)
    (sender,) = senders(messages).collect()
    assert (sender.sender, sender.messages, sender.longest_silence_ms) == ("cam", 10, 35.0)
