"""Recordings and lakes on S3, from a session that has no file system for it: pyarrow reads and writes in Spark's Python
workers. The server is a real one, which speaks S3 (moto, on loopback)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import ringmain.spark
from ringmain.errors import RecordingNotFound
from ringmain.lake import Lake
from ringmain.pipeline import Pipeline
from tests.spark.recordings import Imu, imu, rows, schema_of, writer

PARENT = "s3://lakes/robots"


@pytest.fixture(scope="module")
def options(s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two recordings below one parent, sealed in the store."""
    folder = tmp_path_factory.mktemp("robots")
    given = {**s3, "AWS_SECRET_ACCESS_KEY": "hidden"}
    for host in ("left", "right"):
        made = writer(folder / host, sealed_uri=f"{PARENT}/{host}", storage_options=given, segment_bytes=1)
        made.declare("imu", epoch=1 + (host == "right"), schema=schema_of(Imu))
        for part in range(3):
            made.append("imu", 1 + (host == "right"), rows(part * 100, 100, encode=imu))
            made.flush()
        made.close()
        assert not list((folder / host).glob("*.parquet"))
    return given


def test_recordings_in_a_store(spark: Any, options: dict[str, str]) -> None:
    assert not {*options} & {*os.environ}, "all that the workers know are the options"
    frame = ringmain.spark.read(spark, PARENT, storage_options=options)
    assert frame.groupBy("recorder").count().orderBy("recorder").collect() == [("left", 300), ("right", 300)]
    reader = spark.read.format("ringmain").options(**{f"storage.{name}": value for name, value in options.items()})
    found = reader.option("topic", "imu").option("decode", "true").option("host", "true").load(PARENT)
    assert found.selectExpr("count(t)", "count(distinct rm_host)").collect() == [(600, 1)]
    plan = found._jdf.queryExecution().toString()
    assert "hidden" not in plan
    with pytest.raises(RecordingNotFound, match="no recording at s3://lakes/none"):
        ringmain.spark.read(spark, "s3://lakes/none", storage_options=options)


def test_a_stream_from_a_store(spark: Any, options: dict[str, str], tmp_path: Path) -> None:
    reader = spark.readStream.format("ringmain").options(**{f"storage.{name}": v for name, v in options.items()})
    query = (
        reader.option("consumer", "none").load(PARENT).writeStream.format("memory").queryName("from_a_store")
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert spark.sql("select count(*), count(distinct recorder, seq) from from_a_store").collect() == [(600, 600)]


def test_a_pipeline_from_store_to_store(spark: Any, options: dict[str, str]) -> None:
    """By Spark's tasks, and with a function of a user's own, which reads the messages again."""
    pipeline = Pipeline(storage_options=options)

    @pipeline.step("per_recorder", time="publish_time")
    def per_recorder(messages: Any) -> Any:
        return (
            messages.groupBy("recorder", "host")
            .agg({"publish_time": "min"})
            .withColumnRenamed("min(publish_time)", "publish_time")
        )

    summary = pipeline.run(PARENT, "s3://lakes/of-robots", spark=spark, split_bytes=1)
    assert (summary.rows_in, summary.rows_out) == (600, 600)
    lake = Lake("s3://lakes/of-robots", options)
    assert lake.to_arrow("silver/imu").num_rows == 600
    assert lake.bronze().read_all().num_rows == 600
    assert sorted(lake.to_arrow("gold/per_recorder")["recorder"].to_pylist()) == ["left", "right"]
    frame = ringmain.spark.read_lake(spark, "s3://lakes/of-robots", "silver/imu", storage_options=options)
    assert frame.selectExpr("count(distinct rm_epoch, rm_seq)").collect() == [(600,)]
    assert pipeline.run(PARENT, lake, spark=spark).rows_in == 0
