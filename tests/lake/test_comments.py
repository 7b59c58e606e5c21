"""What a table says of itself and of its columns."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from ringmain import typed
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


class Arm(msgspec.Struct):
    """The arm's sensor.

    It is new."""

    ax: Annotated[float, msgspec.Meta(description="acceleration  forward", extra={"unit": "m/s²"})]
    t: Annotated[int, msgspec.Meta(extra={"unit": "ns"})]
    maybe: Annotated[float, msgspec.Meta(description="if it knows")] | None = None
    note: str = ""


@dataclasses.dataclass
class Later:
    ax: float
    way: float = dataclasses.field(default=0.0, metadata={"description": "since the start", "unit": "m"})


@pytest.fixture
def described(tmp_path: Path) -> Lake:
    """A topic in two lives, the second with another type."""
    made = writer(tmp_path / "arms")
    for epoch, kind, value in ((1, Arm, Arm(1.0, 2)), (2, Later, Later(1.0))):
        made.declare("arm", epoch=epoch, schema=schema_of(kind))
        made.append("arm", epoch, rows(0, 5, encode=lambda _, value=value: msgspec.msgpack.encode(value)))
    made.close()
    lake = Lake(str(tmp_path / "of-arms"))
    Pipeline().run(tmp_path / "arms", lake, engine="local")
    return lake


SAID = {"ax": "acceleration forward, in m/s²", "t": "in ns", "maybe": "if it knows", "way": "since the start, in m"}


def test_fields_say_what_their_types_say(described: Lake) -> None:
    found = described.comments("silver/arm")
    assert {name: about for name, about in found.items() if not name.startswith("rm_")} == SAID
    assert described.table("silver/arm").metadata().description == (
        "messages of one topic, decoded, each once; The arm's sensor."
    )


def test_what_is_said_of_types_is_not_compared() -> None:
    class Imu(msgspec.Struct):
        """Another one."""

        by_name: Annotated[dict, msgspec.Meta(description="anything")]

    other = msgspec.defstruct("Imu", [("by_name", dict)])
    one, two = typed.codec_for(Imu).schema, typed.codec_for(other).schema
    assert one != two
    typed.compatible(one, two)
    typed.compatible(two, one)


@pytest.mark.timeout(300)
def test_spark_describes_them(spark: Any, lake: Lake, described: Lake) -> None:
    from ringmain.spark import read_lake

    read_lake(spark, lake, "gold/topic_health").createOrReplaceTempView("health")
    shown = {row["col_name"]: row["comment"] for row in spark.sql("describe health").collect()}
    assert shown["jitter_ms"] == "standard deviation of the intervals, in ms"
    read_lake(spark, described, "silver/arm").createOrReplaceTempView("arm")
    shown = {row["col_name"]: row["comment"] for row in spark.sql("describe arm").collect()}
    assert {name: about for name, about in shown.items() if name in SAID} == SAID
