"""What a table says of itself and of its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringmain.lake import Lake
from ringmain.lake._comments import commented, comments_of
from ringmain.lake._health import GOLD
from ringmain.pipeline import Pipeline
from ringmain.pipeline._work import BRONZE_SCHEMA, QUARANTINE_SCHEMA
from tests.spark.recordings import Imu, imu, record, rows, schema_of, writer


def test_every_column_of_ours_has_one() -> None:
    for table in GOLD:
        assert comments_of(commented(table.name, table.schema)).keys() == {*table.schema.names}, table.name
    assert comments_of(commented("bronze", BRONZE_SCHEMA)).keys() == {*BRONZE_SCHEMA.names}
    assert comments_of(commented("quarantine/a", QUARANTINE_SCHEMA)).keys() == {*QUARANTINE_SCHEMA.names}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = writer(tmp_path / "r")
    made.declare("imu", epoch=1, schema=schema_of(Imu))
    made.append("imu", 1, rows(0, 10, encode=imu))
    made.close()
    record(tmp_path / "r2", ("a", 1, rows(0, 5)))
    lake = Lake(str(tmp_path / "lake"))
    Pipeline().run([tmp_path / "r", tmp_path / "r2"], lake, engine="local")
    return lake


def test_a_table_says_what_its_columns_are_about(lake: Lake) -> None:
    found = lake.comments("gold/topic_health")
    assert found["jitter_ms"] == "standard deviation of the intervals, in ms"
    silver = lake.comments("silver/imu")
    assert silver["rm_size"] == "of the payload, in bytes"
    assert "x" not in silver, "a field of a message"
    assert lake.table("silver/imu").metadata().description == "messages of one topic, decoded, each once"


@pytest.mark.timeout(300)
def test_spark_describes_them(spark: Any, lake: Lake) -> None:
    from ringmain.spark import read_lake

    read_lake(spark, lake, "gold/topic_health").createOrReplaceTempView("health")
    described = {row["col_name"]: row["comment"] for row in spark.sql("describe health").collect()}
    assert described["jitter_ms"] == "standard deviation of the intervals, in ms"
