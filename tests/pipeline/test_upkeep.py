"""Upkeep leaves a lake that every reader takes and the pipeline goes on with: after old rows were deleted and small
files joined, late messages come in, and every filter works in every tool."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

import ringmain.spark
from ringmain.lake import Lake, _rewrite
from ringmain.pipeline import Pipeline
from tests.spark.recordings import rows, schema_of, writer

DAY_NS = 86_400 * 10**9


class Imu(msgspec.Struct):
    x: float
    mode: str


def imu(n: int) -> bytes:
    return b"\xc1" if n % 11 == 0 else msgspec.msgpack.encode(Imu(float(n), "ab"[n % 2]))


def record(path: Path, epoch: int, start_ns: int, count: int = 1000) -> None:
    made = writer(path)
    made.declare("imu", epoch=epoch, schema=schema_of(Imu))
    made.append("imu", epoch, rows(0, count, encode=imu, step_ns=DAY_NS // 100, start_ns=start_ns))
    made.append("raw", epoch, rows(0, count, step_ns=DAY_NS // 100, start_ns=start_ns))
    made.close()


@pytest.fixture
def kept(tmp_path: Path) -> Lake:
    """Ten days of which five are deleted, and then as many come late, into files that were written again."""
    start = time.time_ns() - 10 * DAY_NS
    lake = Lake(str(tmp_path / "lake"))
    record(tmp_path / "recs" / "one", 7, start)
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    deleted = {line.partition(":")[0]: line for line in lake.maintain(0, {"*": 5.0})}
    assert all("rows deleted" in line for name, line in deleted.items() if not name.startswith("ops/"))
    record(tmp_path / "recs" / "two", 9007, start + 1000)
    assert Pipeline().run(tmp_path / "recs", lake, engine="local").rows_in == 2000
    return lake


def test_after_retention_every_tool_filters(kept: Lake) -> None:
    polars = pytest.importorskip("polars")
    database = kept.to_duckdb()
    ((wanted,),) = database.sql("select count(*) from silver.imu where mode = 'a'").fetchall()
    found = kept.to_arrow("silver/imu")
    assert wanted == pc.sum(pc.equal(found["mode"], "a")).as_py() > 454
    assert kept.dataset("silver/imu").to_table(filter=pc.field("mode") == "a").num_rows == wanted
    assert len(kept.to_polars("silver/imu").filter(polars.col("mode") == "a").collect()) == wanted
    frame = found.to_pandas()
    assert len(frame[frame["mode"] == "a"]) == wanted
    for table in kept.tables():
        name = ".".join(f'"{part}"' for part in table.split("/"))
        for column in [f.name for f in kept.schema(table) or () if str(f.type) == "string"]:
            database.sql(f"select count(*) from {name} where \"{column}\" like '%a%'").fetchall()
    assert database.sql("select sum(messages) from gold.topic_health where epoch = 9007").fetchall() == [(2000,)]


@pytest.mark.each_run
def test_after_retention_spark_filters(spark: Any, kept: Lake) -> None:
    frame = ringmain.spark.read_lake(spark, kept, "silver/imu")
    plan = frame.where("mode = 'a'").select("x")._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet [x" in plan, "Spark reads the files itself, and only the columns that it needs"
    assert "EqualTo(mode,a)" in plan
    assert frame.where("mode = 'a'").count() == kept.dataset("silver/imu").count_rows(filter=pc.field("mode") == "a")


def test_joined_files_look_like_the_first(tmp_path: Path) -> None:
    """In types, encodings and bounds; and they take less room."""
    lake = Lake(str(tmp_path / "lake"))
    for part in range(4):
        record(tmp_path / "recs" / str(part), part + 1, time.time_ns() + part * DAY_NS, 300)
        Pipeline().run(tmp_path / "recs", lake, engine="local")
    before, rows_before = lake.files("silver/imu"), sorted(map(str, lake.to_arrow("silver/imu").to_pylist()))
    first = pq.ParquetFile(f"{lake.uri}/silver/imu/{before[0].name}")
    assert lake.compact("silver/imu", at_least=2) == 4
    (joined,) = lake.files("silver/imu")
    again = pq.ParquetFile(f"{lake.uri}/silver/imu/{joined.name}")
    assert again.schema_arrow.equals(first.schema_arrow)
    for index in range(first.metadata.num_columns):
        one, other = (file.metadata.row_group(0).column(index) for file in (first, again))
        assert (one.encodings, one.compression) == (other.encodings, other.compression)
    assert joined.size < sum(one.size for one in before)
    assert joined.least["rm_publish_time"] == min(one.least["rm_publish_time"] for one in before)
    assert joined.most["rm_publish_time"] == max(one.most["rm_publish_time"] for one in before)
    assert sorted(map(str, lake.to_arrow("silver/imu").to_pylist())) == rows_before


def test_of_two_that_rewrite_a_file_one_gives_way(tmp_path: Path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    record(tmp_path / "recs" / "one", 7, time.time_ns() - 10 * DAY_NS)
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    before = lake.to_arrow("silver/imu").num_rows
    files = lake.files("silver/imu")
    deleted = lake.retain("silver/imu", 5.0)
    made = lake.write("silver/imu", None, lake.to_arrow("silver/imu"))
    with pytest.raises(CommitFailedError):
        lake.exchange("silver/imu", "joined", [made], files, data_change=False)
    assert not (tmp_path / "lake" / "silver" / "imu" / made.name).exists()
    assert lake.to_arrow("silver/imu").num_rows == before - deleted


def test_files_of_other_writers_are_read(tmp_path: Path) -> None:
    """Delta's own writer leaves views of texts in files."""
    lake = Lake(str(tmp_path / "lake"))
    record(tmp_path / "recs" / "one", 7, time.time_ns() - 10 * DAY_NS)
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    lake.table("gold/topic_health").delete("topic = 'raw'")
    record(tmp_path / "recs" / "two", 9007, time.time_ns() - 10 * DAY_NS + 1000)
    Pipeline().run(tmp_path / "recs", lake, engine="local")
    assert _rewrite.compact(lake, "gold/topic_health", 1 << 30, 1 << 30) in (0, 2)
    found = lake.to_duckdb().sql("select topic, sum(messages) from gold.topic_health group by 1 order by 1")
    assert found.fetchall() == [("imu", 2000), ("raw", 1000)]


class Point(msgspec.Struct):
    x: float
    tags: list[str]


class Everything(msgspec.Struct):
    at: datetime
    count: Annotated[int, msgspec.Meta(ge=0)]
    raw: bytes
    points: list[Point]
    names: dict[str, int]
    flag: bool
    maybe: float | None


@pytest.mark.each_run
def test_spark_reads_all_types(spark: Any, tmp_path: Path) -> None:
    """As pyarrow does; also of a life that had less, and from a directory whose name Spark takes for a pattern."""
    value = Everything(datetime(2026, 1, 2, tzinfo=UTC), 7, b"\0\1", [Point(1.5, ["a"])], {"k": 1}, True, None)
    for epoch, (kind, sent) in enumerate(((Point, Point(2.5, [])), (Everything, value))):
        made = writer(tmp_path / "recs" / str(epoch))
        made.declare("t", epoch=epoch, schema=schema_of(kind))
        data = msgspec.msgpack.encode(sent)
        made.append("t", epoch, rows(0, 3, encode=lambda _, data=data: data))  # type: ignore[misc]
        made.close()
        for name in ("lake", "lake [old]"):
            Pipeline().run(tmp_path / "recs", tmp_path / name, engine="local")
    for name in ("lake", "lake [old]"):
        lake = Lake(str(tmp_path / name))
        found = ringmain.spark.read_lake(spark, lake, "silver/t").orderBy("rm_epoch", "rm_seq").toArrow()
        wanted = lake.to_arrow("silver/t").sort_by([("rm_epoch", "ascending"), ("rm_seq", "ascending")])
        assert found.to_pylist() == wanted.to_pylist()
        assert ringmain.spark.read_lake(spark, lake, "silver/t", version=1).count() == 3


@pytest.mark.spark
def test_spark_reads_tables_that_another_writer_has_partitioned(spark: Any, tmp_path: Path) -> None:
    """Their values are in names of directories, which Spark's own reader and ours take: only those asked for."""
    folder = str(tmp_path / "lake" / "user" / "t")
    there = pa.table({"kind": ["a", "b/c", "a", None], "day": [1, 1, 2, 2], "n": [1, 2, 3, 4]})
    write_deltalake(folder, there, partition_by=["kind", "day"])
    more = pa.table({"kind": ["z"], "day": [3], "n": [5], "m": [1.5]})
    write_deltalake(folder, more, partition_by=["kind", "day"], mode="append", schema_mode="merge")
    shutil.copytree(tmp_path / "lake", tmp_path / "lake [old]")
    found = []
    for name in ("lake", "lake [old]"):
        frame = ringmain.spark.read_lake(spark, str(tmp_path / name), "user/t")
        found.append(frame.orderBy("n").toArrow().select(["kind", "day", "n", "m"]).to_pylist())
        assert [row["n"] for row in frame.where("kind = 'a' and day = 2").collect()] == [3]
    wanted = Lake(str(tmp_path / "lake")).to_arrow("user/t").sort_by("n").select(["kind", "day", "n", "m"]).to_pylist()
    assert found == [wanted, wanted]
    plan = ringmain.spark.read_lake(spark, str(tmp_path / "lake"), "user/t").where("day = 2").select("n")
    assert "PartitionFilters: [isnotnull(day" in plan._jdf.queryExecution().executedPlan().toString()
