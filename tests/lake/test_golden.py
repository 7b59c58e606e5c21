"""A lake of each version that ringmain has written is read for good, in every tool; a pipeline adds to its own only."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

from ringmain.errors import LakeError
from ringmain.lake import Lake, Rule, Rules, check, report
from ringmain.lake._ledger import LAKE_VERSION, OLDEST_VERSION, Ledger
from ringmain.lake._positions import sources_of
from ringmain.pipeline import Pipeline
from tests.lake.golden import GOLDEN
from tests.spark.recordings import record, rows

VERSIONS = sorted(int(path.name[1:]) for path in GOLDEN.iterdir())
VOLTS = [n / 2 for n in range(20) if n != 3]


@pytest.fixture(params=VERSIONS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    shutil.copytree(GOLDEN / f"v{request.param}", tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


def test_there_is_one_of_this_version() -> None:
    assert VERSIONS[-1] == LAKE_VERSION


def test_it_reads_as_it_always_did(lake: Lake, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    names = {"silver/battery", "silver/raw", "quarantine/battery", "gold/topic_health", "gold/fields", "ops/batches"}
    assert names <= {*lake.tables()}
    found = lake.to_arrow("silver/battery").sort_by([("rm_epoch", "ascending"), ("rm_seq", "ascending")])
    assert found["volt"].to_pylist() == [*VOLTS, *[None] * 20]
    assert found["volt_v2"].to_pylist() == [*[None] * 19, *(f"{n} V" for n in range(20))]
    assert found["rm_host"].to_pylist() == ["left"] * 19 + ["right"] * 20
    database = lake.to_duckdb()
    ((wanted,),) = database.sql("select count(*) from silver.battery where mode = 'a'").fetchall()
    assert wanted == pc.sum(pc.equal(found["mode"], "a")).as_py() == 20
    assert len(lake.to_polars("silver/battery").filter(polars.col("mode") == "a").collect()) == wanted
    assert database.sql("select count(*) from quarantine.battery where rm_seq = 3").fetchall() == [(1,)]
    sql = "select topic, sum(messages), sum(lost) from gold.topic_health group by 1 order by 1"
    assert database.sql(sql).fetchall() == [("battery", 40, 4), ("raw", 10, 0)]
    assert [batch.batch for batch in Ledger(lake).batches()] == [0, 1]
    report(lake, tmp_path / "page.html")
    (problem,) = check(lake, Rules([Rule(topic="battery", host="left", max_quarantined=0)]))
    assert problem.value == 1


def test_a_pipeline_adds_to_its_own(lake: Lake, tmp_path: Path) -> None:
    """After upkeep too. That the first recordings are gone is nothing to it: all of them was read."""
    record(tmp_path / "recordings" / "more", ("raw", 9, rows(0, 7)))
    last = Ledger(lake).last()
    assert last is not None
    if last.lake_version < OLDEST_VERSION:
        with pytest.raises(LakeError, match=f"a lake of version {last.lake_version}"):
            Pipeline().run(tmp_path / "recordings", lake, engine="local")
        return
    assert len(list(lake.maintain())) == len(lake.tables())
    assert Pipeline().run(tmp_path / "recordings", lake, engine="local").rows_out == 7
    assert Pipeline().run(tmp_path / "recordings", Lake(lake.uri), engine="local").rows_out == 0
    assert lake.to_arrow("silver/raw").num_rows == 17
    assert {one.recording for one in sources_of(lake)} == {"left", "right", "more"}
    (newest,) = (one for one in Ledger(lake).batches() if one.batch == 2)
    assert [one.recording for one in newest.recordings] == ["more"]
    assert newest.lake_version == LAKE_VERSION
