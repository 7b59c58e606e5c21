"""The pipeline from recordings to gold, in one lake that grows: what each table holds, that nothing is lost or doubled,
and that one batch gives the same tables as many.

Two recorders overlap on one topic, a topic's schema gains a field, some payloads are not what their schema says. The
numbers are checked with DuckDB over the tables' snapshots.
"""

from __future__ import annotations

import shutil
import socket
import statistics
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import ringmain.spark
from ringmain.errors import LakeError, RecordingCorrupt, RecordingNotFound
from ringmain.lake import Lake
from ringmain.lake._gold import GoldTable, one_array
from ringmain.lake._gold import decode as received
from ringmain.lake._gold import encode as sent
from ringmain.lake._health import HEALTH, SENDERS, measure
from ringmain.lake._ledger import BEGUN, Batch, Ledger, TopicCount
from ringmain.lake._sketch import quantile
from ringmain.pipeline import Align, Pipeline
from ringmain.pipeline._batch import check_counts
from ringmain.pipeline._work import Report
from ringmain.recording import consumers
from ringmain.recording._format import SCHEMA
from ringmain.spark import aligned
from tests.spark.recordings import START_NS, Imu, Imu2, imu, imu2, record, rows, schema_of, writer

IN_TASKS = 1  # split_bytes: every run of rows is a task, so Spark's workers do them


def query(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    return Lake(str(lake)).to_duckdb().sql(sql).fetchall()


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
    pipeline = Pipeline(aligns=[Align("camera/left", ("imu",), tolerance_s=0.5)])

    @pipeline.on("imu", table="imu_doubled")
    def doubled(frame: Any) -> Any:
        return frame.selectExpr("rm_publish_time", "rm_seq", "x * 2 as x2").where("rm_seq < 50")

    @pipeline.step("per_kind", time="minute")
    def per_kind(messages: Any) -> Any:
        from pyspark.sql import functions as F

        return messages.groupBy(F.date_trunc("minute", "publish_time").alias("minute"), "topic").count()

    lines: list[str] = []
    options: dict[str, Any] = {"spark": spark, "split_bytes": IN_TASKS, "progress": lines.append}
    first = pipeline.run(tmp_path / "recs", lake, **options)
    assert (first.rows_in, first.rows_out, first.quarantined, first.duplicates, first.lost) == (112, 110, 2, 0, 3)
    assert lines[0].startswith("batch 0: 112 rows of 2 topics")
    assert first.engine == f"Spark {spark.version}, application {spark.sparkContext.applicationId}"
    assert first.engine in str(first)

    record_two(tmp_path / "recs" / "two")
    second = pipeline.run(tmp_path / "recs", lake, **options)
    # Of 85 rows, 42 are copies: 40 of messages that are in silver and 2 of messages that are in quarantine.
    assert (second.rows_in, second.rows_out, second.quarantined, second.duplicates) == (85, 43, 0, 42)
    assert pipeline.run(tmp_path / "recs", lake, **options).rows_in == 0

    check_silver(lake)
    check_gold(lake)
    assert query(lake, "select count(*), max(x2) from steps.imu_doubled") == [(50 + 5, 49.0)]
    assert query(lake, "select topic, sum(count) from gold.per_kind group by 1 order by 1") == [
        ("camera/left", 10), ("imu", 187),
    ]  # fmt: skip
    # The newest imu at or before each frame: frame k at 10k ms, imu n at n ms.
    pairs = query(lake, "select rm_seq, imu.t, rm_imu_age_ms from gold.aligned_camera_left order by rm_seq")
    assert pairs == [(k, 10 * k, 0.0) for k in range(10)]
    tables = Lake(str(lake))
    check_jobs(spark, tables)
    assert tables.bronze().read_all().num_rows == ringmain.spark.read_lake(spark, tables, "bronze").count() == 197
    assert ringmain.spark.read_lake(spark, str(lake), "silver/imu").count() == 143
    assert ringmain.spark.read_lake(spark, str(lake), "silver/imu", version=1).count() == 100


def check_jobs(spark: Any, lake: Lake) -> None:
    """What the ledger says, and what Spark shows: a group of jobs for each batch, each of which says what it is."""
    told = {(one.engine, one.engine_version, one.application) for one in Ledger(lake).batches()}
    assert told == {("spark", spark.version, spark.sparkContext.applicationId)}
    store = spark.sparkContext._jsc.sc().statusStore()
    for batch, about in ((0, "batch 0: 112 rows of 2 topics"), (1, "batch 1: 85 rows of 1 topics")):
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(f"ringmain batch {batch}")
        said = {store.job(number).description().get() for number in jobs}
        assert {f"batch {batch}: steps/imu_doubled", f"batch {batch}: gold/per_kind"} <= said
        assert any(text.startswith(about) for text in said)


@pytest.mark.timeout(300)
@pytest.mark.each_run
def test_the_smallest_batch_is_a_job_of_spark(spark: Any, tmp_path: Path) -> None:
    """By the session that there is, with nothing said about engines."""
    record(tmp_path / "rec", ("a", 1, rows(0, 5)))
    before = spark.sparkContext.statusTracker().getJobIdsForGroup("ringmain batch 0")
    summary = Pipeline().run(tmp_path / "rec", tmp_path / "lake")
    assert (summary.rows_out, summary.engine.split(",")[0]) == (5, f"Spark {spark.version}")
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("ringmain batch 0")) == len(before) + 1


def test_the_engine_is_chosen_by_name(tmp_path: Path) -> None:
    record(tmp_path / "rec", ("a", 1, rows(0, 5)))
    summary = Pipeline().run(tmp_path / "rec", tmp_path / "lake", engine="local")
    assert "by the local engine of ringmain" in str(summary)
    (batch,) = Ledger(Lake(str(tmp_path / "lake"))).batches()
    assert (batch.engine, batch.engine_version, batch.application) == ("local", ringmain.__version__, "")
    for options, said in (
        ({"engine": "local", "master": "local[2]"}, "takes no session and no master"),
        ({"engine": "dask"}, "choose one of 'spark', 'local'"),
    ):
        with pytest.raises(ValueError, match=said):
            Pipeline().run(tmp_path / "rec", tmp_path / "lake", **options)
    with pytest.raises(ValueError, match="aligned tables are made by Spark"):
        Pipeline(aligns=[Align("a", ("b",))]).run(tmp_path / "rec", tmp_path / "lake", engine="local")


def check_silver(lake: Path) -> None:
    silver = query(
        lake, "select rm_epoch, count(*), count(distinct rm_seq), min(t), max(t) from silver.imu group by 1 order by 1"
    )
    assert silver == [(1, 138, 138, 0, 139), (2, 5, 5, 0, 4)]
    notes = query(lake, "select note from silver.imu where rm_epoch = 2 order by rm_seq limit 2")
    assert notes == [("n0",), ("n1",)]
    assert query(lake, 'select count(rm_payload) from silver."camera~left"') == [(10,)]
    assert query(lake, "select rm_seq, rm_reason from quarantine.imu order by rm_seq") == [
        (100, "Expected `object`, got `int`"), (101, "Expected `object`, got `int`"),
    ]  # fmt: skip


def check_gold(lake: Path) -> None:
    health = query(
        lake,
        """select topic, recorder, sum(messages), sum(lost), sum(gaps),
        max(latency_max_ms), max(jitter_ms), sum(out_of_order) from gold.topic_health group by 1, 2 order by 1, 2""",
    )
    assert [row[:5] for row in health] == [
        ("camera/left", "one", 10, 0, 0), ("imu", "one", 102, 3, 1), ("imu", "two", 85, 0, 0),
    ]  # fmt: skip
    assert [round(row[5], 3) for row in health] == [100.0, 100.0, 1000.0]
    assert all(row[6] == 0 and row[7] == 0 for row in health)
    assert query(lake, "select topic, reader, before_seq, lost from gold.gaps") == [("imu", "one", 0, 3)]
    assert query(lake, "select sum(messages) from gold.senders where topic = 'imu' and recorder = 'one'") == [(102,)]


def test_the_local_engine_makes_the_same_lake(tmp_path: Path) -> None:
    record_one(tmp_path / "recs" / "one")
    Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    record_two(tmp_path / "recs" / "two")
    summary = Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    assert (summary.rows_in, summary.rows_out, summary.duplicates) == (85, 43, 42)
    check_silver(tmp_path / "lake")
    check_gold(tmp_path / "lake")


def test_both_recordings_at_once_give_the_same_silver(tmp_path: Path) -> None:
    record_one(tmp_path / "recs" / "one")
    record_two(tmp_path / "recs" / "two")
    summary = Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    assert (summary.rows_in, summary.rows_out, summary.quarantined, summary.duplicates) == (197, 153, 2, 42)
    check_silver(tmp_path / "lake")
    check_gold(tmp_path / "lake")
    # The copy that was recorded first stays.
    assert query(tmp_path / "lake", "select distinct rm_recorder from silver.imu where rm_seq between 60 and 99") == [
        ("one",)
    ]


def test_row_counts_that_do_not_match_are_refused() -> None:
    report = Report({"r": 10}, {"a": TopicCount("a", 10, 8, 1, 0)})
    with pytest.raises(LakeError, match="10 rows in, but 8 out \\+ 1 quarantined \\+ 0 duplicates = 9"):
        check_counts(Batch(0, BEGUN, 10.0, "c"), [report])
    short = Report({"r": 11}, {"a": TopicCount("a", 10, 10)})
    with pytest.raises(LakeError, match="11 rows in, and the topics have another sum"):
        check_counts(Batch(0, BEGUN, 10.0, "c"), [short])


def test_settings_of_a_lake_do_not_change(tmp_path: Path) -> None:
    record(tmp_path / "rec", ("a", 1, rows(0, 5)))
    Pipeline().run(tmp_path / "rec", tmp_path / "lake", engine="local")
    with pytest.raises(LakeError, match=r"was built with window_s=10\.0, not with 5\.0"):
        Pipeline(window_s=5.0).run(tmp_path / "rec", tmp_path / "lake", engine="local")
    with pytest.raises(ValueError, match="must divide 60"):
        Pipeline(window_s=7)


def test_no_recording_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(RecordingNotFound, match="no recording at"):
        Pipeline().run(tmp_path / "nothing", tmp_path / "lake", engine="local")


def test_recordings_are_known_again(tmp_path: Path) -> None:
    """Named another way, moved, or recorded anew in the same directory: no row is skipped, none is read twice."""
    record(tmp_path / "recs" / "one", ("a", 1, rows(0, 5)))
    lake = tmp_path / "lake"
    assert Pipeline().run(tmp_path / "recs", lake, engine="local").rows_in == 5
    assert Pipeline().run(tmp_path / "recs" / "one", lake, engine="local").rows_in == 0
    record(tmp_path / "other", ("a", 2, rows(0, 7)))
    assert Pipeline().run(tmp_path / "other", lake, engine="local").rows_in == 7
    (tmp_path / "recs" / "one").rename(tmp_path / "recs" / "moved")
    assert Pipeline().run(tmp_path / "recs", lake, engine="local").rows_in == 0
    shutil.rmtree(tmp_path / "other")
    record(tmp_path / "other", ("a", 3, rows(0, 2)))
    assert Pipeline().run(tmp_path / "other", lake, engine="local").rows_in == 2
    assert query(lake, "select rm_epoch, count(*) from silver.a group by 1 order by 1") == [(1, 5), (2, 7), (3, 2)]


def test_bronze_as_a_table(tmp_path: Path) -> None:
    """Then recordings may be deleted; retention knows how far the lake has read them."""
    record(tmp_path / "rec", ("a", 1, rows(0, 5)), ("a", 1, rows(5, 5)))
    Pipeline(bronze="copy").run(tmp_path / "rec", tmp_path / "lake", engine="local")
    (position,) = consumers(tmp_path / "rec").values()
    assert str(position) == "000000001:5"
    shutil.rmtree(tmp_path / "rec")
    assert query(tmp_path / "lake", "select count(*), max(segment), max(row) from bronze") == [(10, 1, 4)]
    assert bronze_hosts(tmp_path / "lake") == {socket.gethostname(): 10}


def test_bronze_of_recordings(tmp_path: Path) -> None:
    """As recorded, with the host of the recorder."""
    record(tmp_path / "rec", ("a", 1, rows(0, 5)))
    Pipeline().run(tmp_path / "rec", tmp_path / "lake", engine="local")
    assert bronze_hosts(tmp_path / "lake") == {socket.gethostname(): 5}


def bronze_hosts(lake: Path) -> dict[str, int]:
    return dict(Counter(Lake(str(lake)).bronze().read_all()["host"].to_pylist()))


class Text(msgspec.Struct):
    t: str
    x: float


class Whole(msgspec.Struct):
    t: int
    x: int


class Long(msgspec.Struct):
    t: int
    x: float
    for_s: timedelta = timedelta(0)


def test_a_field_that_changes_its_type_gets_a_column(tmp_path: Path) -> None:
    encoders: list[Any] = [imu, lambda n: msgspec.msgpack.encode(Text("x", 1.0)), imu,
                           lambda n: msgspec.msgpack.encode(Long(n, 1.0, timedelta(seconds=2)))]  # fmt: skip
    for epoch, (kind, encode) in enumerate(zip([Imu, Text, Imu, Long], encoders, strict=True)):
        made = writer(tmp_path / "recs" / str(epoch))
        made.declare("a", epoch=epoch, schema=schema_of(kind))
        made.append("a", epoch, rows(0, 2, encode=encode, start_ns=START_NS + epoch * 10**9))
        made.close()
        Pipeline().run(tmp_path / "recs", tmp_path / "lake", engine="local")
    found = query(tmp_path / "lake", "select rm_epoch, t, t_v2, for_s from silver.a where rm_seq = 1 order by 1")
    assert found == [(0, 1, None, None), (1, None, "x", None), (2, 1, None, None), (3, 1, None, 2_000_000)]


@pytest.mark.parametrize("names", ["abcd", "dcba"])
def test_batches_do_not_show_in_the_schema(tmp_path: Path, names: str) -> None:
    """A field becomes a text and then a number again, another a whole number: columns follow the epochs, in one batch
    or in one for each recording, in whatever order the recordings come."""
    for epoch, value in enumerate((Imu(1, 1.5), Text("x", 2.5), Imu(3, 3.5), Whole(4, 5))):
        made = writer(tmp_path / "recs" / names[epoch])
        made.declare("a", epoch=epoch, schema=schema_of(type(value)))
        data = msgspec.msgpack.encode(value)
        made.append("a", epoch, rows(0, 3, encode=lambda _, data=data: data, start_ns=START_NS + epoch * 10**9))  # type: ignore[misc]
        made.close()
    for lake, limit in (("one", "1GiB"), ("many", "1")):
        summary = Pipeline().run(tmp_path / "recs", tmp_path / lake, max_bytes_per_batch=limit, engine="local")
        assert (summary.batches == 1) == (lake == "one")
        assert query(tmp_path / lake, "select t, t_v2, x from silver.a where rm_seq = 1 order by rm_epoch") == [
            (1, None, 1.5), (None, "x", 2.5), (3, None, 3.5), (4, None, 5.0),
        ]  # fmt: skip
    both = [Lake(str(tmp_path / lake)) for lake in ("one", "many")]
    assert both[0].schema("silver/a") == both[1].schema("silver/a")
    fields = [sorted(map(str, lake.to_arrow("gold/fields").to_pylist())) for lake in both]
    assert fields[0] == fields[1]


def test_aligned_takes_the_newest_within_the_tolerance(spark: Any) -> None:
    """Slow values across the edges of time slices, none at all, and one at the very same moment."""
    lead = spark.sql("""select timestamp_millis(ms) as rm_publish_time, 1L as rm_epoch, ms as rm_seq, 'h' as rm_host,
        ms from values (0L), (999L), (1000L), (1400L), (2600L), (9000L) as t(ms)""")
    other = spark.sql("""select timestamp_millis(ms) as rm_publish_time, 1L as rm_epoch, ms as rm_seq, 'h' as rm_host,
        ms as v, 'x' as rm_topic from values (900L), (1000L), (2400L) as t(ms)""")
    found = aligned(lead, {"b/c": other}, tolerance_s=0.5).orderBy("ms").collect()
    assert [(r.ms, r.b_c.v if r.b_c else None, r.rm_b_c_age_ms) for r in found] == [
        (0, None, None), (999, 900, 99.0), (1000, 1000, 0.0), (1400, 1000, 400.0), (2600, 2400, 200.0),
        (9000, None, None),
    ]  # fmt: skip
    assert found[1].b_c.asDict() == {"v": 900}, "the columns of ours are not among the other topic's fields"
    with pytest.raises(ValueError, match="the column MS, of topic MS, would have the name of a field of the leading"):
        aligned(lead, {"MS": other})
    with pytest.raises(ValueError, match="the frame of b has no column rm_host"):
        aligned(lead, {"b": other.drop("rm_host")})


def test_follows_a_recording(tmp_path: Path) -> None:
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

    summary = Pipeline().run(
        tmp_path / "rec", tmp_path / "lake", follow=True, interval_s=0.1, until=until, engine="local"
    )
    assert (summary.rows_in, summary.rows_out, summary.batches) == (35, 35, 2)
    assert query(tmp_path / "lake", "select count(*), count(distinct rm_seq) from silver.a") == [(35, 35)]


def test_payloads_of_the_test_are_what_they_say() -> None:
    assert msgspec.msgpack.decode(imu(4), type=Imu) == Imu(4, 2.0)


def test_many_batches_give_the_same_as_one(tmp_path: Path) -> None:
    """The same two recordings, taken at once and in small batches that cut windows in two: the same rows in every
    table, and not many more files."""
    for name in ("r1", "r2"):
        made = writer(tmp_path / "recs" / name)
        made.declare("imu", epoch=1, schema=schema_of(Imu))
        made.declare(f"raw/{name}", epoch=1)
        for part in range(20):
            sent = rows(part * 50, 50, encode=imu, step_ns=70_000_001, lost=part)
            made.append("imu", 1, sent, record_time_ns=START_NS + part * 4 * 10**9)
            made.append(f"raw/{name}", 1, rows(part * 50, 50, step_ns=10**8, sender=f"s{part % 2}"))
        made.close()
    for name, limit in (("one", "1GiB"), ("many", "6KiB")):
        summary = Pipeline().run(tmp_path / "recs", tmp_path / name, max_bytes_per_batch=limit, engine="local")
        assert (summary.rows_in, summary.rows_out, summary.duplicates) == (4000, 3000, 1000)
        assert (summary.batches == 1) == (name == "one")
    assert summary.batches >= 30
    assert Lake(str(tmp_path / "one")).tables() == Lake(str(tmp_path / "many")).tables()
    tables = ("silver.imu", 'silver."raw~r1"', *map("gold.{}".format, ("topic_health", "gaps", "senders", "fields")))
    for table in tables:
        both = [sorted(query(tmp_path / name, f"from {table}"), key=str) for name in ("one", "many")]
        if table == "silver.imu":  # which of two copies that were recorded at the same time stays is not told
            both = [[row[1:6] for row in one] for one in both]
        if table == "gold.fields":  # sums of floats depend on their order, a little
            both = [[tuple(_rounded(value) for value in row) for row in one] for one in both]
        assert both[0] == both[1], table
        name = table.replace(".", "/").replace('"', "")
        assert len(Lake(str(tmp_path / "many")).files(name)) <= 40, table


def _rounded(value: Any) -> Any:
    return float(f"{value:.9g}") if isinstance(value, float) else value


def test_empty_and_damaged_recordings(tmp_path: Path) -> None:
    """An empty recording makes an empty lake. Of a damaged one nothing is processed, or all that can be read."""
    writer(tmp_path / "empty").close()
    assert Pipeline().run(tmp_path / "empty", tmp_path / "lake0", engine="local").rows_in == 0
    path = record(tmp_path / "r", ("a", 1, rows(0, 40)), ("a", 1, rows(40, 60)), seal=False)
    data = bytearray((path / "000000001.arrows").read_bytes())
    data[data.index(b"message 77")] ^= 1
    (path / "000000001.arrows").write_bytes(data)
    with pytest.raises(RecordingCorrupt, match=f"recording {path}: .*--skip-damage") as said:
        Pipeline().run(path, tmp_path / "lake1", engine="local")
    assert "\n" not in str(said.value)  # a sentence
    summary = Pipeline().run(path, tmp_path / "lake2", fail_on_data_loss=False, engine="local")
    assert (summary.rows_in, summary.rows_out, summary.damaged) == (40, 40, 60)
    assert "60 damaged, skipped" in str(summary)
    (batch,) = Ledger(Lake(str(tmp_path / "lake2"))).batches()
    assert [one.damaged for one in batch.recordings] == [60]
    assert [gap["rows"] for gap in ringmain.spark.gaps(str(path))][:1] == [60]


def messages(values: list[tuple[int, int, int, int]]) -> pa.RecordBatch:
    """(seq, publish us, record us, lost) as a recording has them."""
    seq, at, recorded, lost = zip(*values, strict=True)
    count = len(values)
    columns: dict[str, Any] = {
        "recorder": ["host"] * count, "topic": ["a"] * count, "epoch": [1] * count, "seq": seq, "publish_time": at,
        "publish_ns": [0] * count, "record_time": recorded, "sender": ["cam"] * count, "kind": [""] * count,
        "lost": lost, "size": [100] * count, "payload": [b""] * count,
    }  # fmt: skip
    made = pa.RecordBatch.from_arrays([pa.array(columns[f.name], f.type) for f in SCHEMA], schema=SCHEMA)
    return made.append_column("host", pa.array(["h"] * count))


@pytest.mark.parametrize("cut", [10, 1, 4, 6])
def test_health_counts_what_went_wrong(cut: int) -> None:
    """Ten messages 10 ms apart, of which one was published before its predecessor, one was recorded 2 s late, and five
    were lost before another: each number is what one gets by hand, however the rows are cut."""
    values = []
    for n in range(10):
        at = START_NS // 1000 + n * 10_000 - (25_000 if n == 5 else 0)
        values.append((n, at, at + (2_000_000 if n == 8 else 1_000), 5 if n == 3 else 0))
    parts = [measure([("r", messages(values[at : at + cut]))], 10_000_000) for at in range(0, 10, cut)]
    row = one_row(HEALTH, [part[HEALTH.name] for part in reversed(parts)])
    assert (row["messages"], row["bytes"], row["rate_hz"], row["bytes_per_s"]) == (10, 1000, 1.0, 100.0)
    assert (row["lost"], row["gaps"], row["late"], row["out_of_order"]) == (5, 1, 1, 1)
    latencies = (row["latency_p50_ms"], row["latency_p99_ms"], row["latency_max_ms"])
    assert latencies == pytest.approx((1.0, 1.0, 2000.0), rel=0.01)
    intervals = [10, 10, 10, 10, -15, 35, 10, 10, 10]
    assert row["jitter_ms"] == pytest.approx(statistics.stdev(intervals))
    sender = one_row(SENDERS, [part[SENDERS.name] for part in parts])
    assert (sender["sender"], sender["messages"], sender["longest_silence_ms"]) == ("cam", 10, 35.0)
    (edges,) = row["lines"]
    assert (edges["first_seq"], edges["last_seq"]) == (0, 9)


def one_row(table: GoldTable, parts: list[pa.Table]) -> dict[str, Any]:
    """Merged one after the other, as the driver does with what the table has, and sent as a task sends it."""
    merged = parts[0]
    for part in parts[1:]:
        merged = table.merged([received(sent(table.merged([merged, part], 10.0)))])
    (row,) = table.merged([merged], 10.0).to_pylist()
    return dict(row)


def test_messages_are_measured_apart_by_each_key() -> None:
    """Two recordings and two windows in one go are what they are one by one."""
    first = messages([(n, n * 4_000_000, n * 4_000_000 + 1000, 0) for n in range(5)])
    second = messages([(n, n * 4_000_000, n * 4_000_000 + 5000, n) for n in range(5)])
    together = measure([("a", first), ("b", second)], 10_000_000)
    apart = [measure([("a", first)], 10_000_000), measure([("b", second)], 10_000_000)]
    for table in (HEALTH, SENDERS):
        merged = table.merged([together[table.name]], 10.0)
        assert merged.num_rows == 2
        assert merged.equals(table.merged([one[table.name] for one in reversed(apart)], 10.0))


def test_quantiles_are_within_a_hundredth() -> None:
    recorded = [(n, START_NS // 1000, START_NS // 1000 + (n + 1) ** 2 - 50, 0) for n in range(1000)]
    found = measure([("r", messages(recorded))], 10_000_000)[HEALTH.name]
    exact = sorted(((n + 1) ** 2 - 50) / 1000 for n in range(1000))
    state = {name: one_array(found.column(name)) for name in found.schema.names}
    for q in (0.0, 0.001, 0.5, 0.99, 1.0):
        assert quantile(q)(state, 10.0)[0] == pytest.approx(exact[int(q * 999)], rel=0.01), q
