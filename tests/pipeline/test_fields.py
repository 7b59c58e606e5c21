"""`gold/fields` and `gold/quarantine`: what messages say, and why some could not be read, window by window; and the
host that recorded each message."""

from __future__ import annotations

import datetime
import math
import statistics
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringmain.lake import Lake
from ringmain.lake._fields import FIELDS, field_names, measure_fields
from ringmain.pipeline import Pipeline
from ringmain.recording._meta import Clocks, Meta, Session, host_of
from tests.spark.recordings import START_NS, rows, schema_of, writer


class Point(msgspec.Struct):
    x: float
    y: int


class Reading(msgspec.Struct):
    value: float
    maybe: float | None
    at: Point
    label: str = ""
    host: int = 7
    on: bool = True
    many: list[float] = []


ODD = {3: math.nan, 5: math.inf, 6: -math.inf}


def value_of(n: int) -> float:
    return ODD.get(n, 1e9 + n / 7)


def reading(n: int) -> bytes:
    if n == 13:
        return b"\xc1"
    return msgspec.msgpack.encode(Reading(value_of(n), None if n % 3 else n / 2, Point(-n, n), many=[1.0]))


def record(path: Path, count: int = 40) -> Path:
    made = writer(path)
    made.declare("arm/left", epoch=1, schema=schema_of(Reading))
    made.append("arm/left", 1, rows(0, count, encode=reading, step_ns=500_000_000))
    made.close()
    return path


def fields_of(lake: Path) -> dict[tuple[str, int], dict[str, Any]]:
    found = Lake(str(lake)).to_arrow("gold/fields").to_pylist()
    first = min(row["window_start"] for row in found)
    return {(row["field"], round((row["window_start"] - first).total_seconds())): row for row in found}


@pytest.mark.parametrize("batch", ["1GiB", "200B"])
def test_numeric_fields_are_measured(tmp_path: Path, batch: str) -> None:
    """However the messages are cut into batches; 20 of them are in a window of 10 s."""
    summary = Pipeline().run(record(tmp_path / "r"), tmp_path / "lake", max_bytes_per_batch=batch, engine="local")
    assert (summary.rows_in, summary.quarantined) == (40, 1)
    found = fields_of(tmp_path / "lake")
    assert {name for name, _ in found} == {"value", "maybe", "at.x", "at.y", "host", "on", "many[0]"}
    start = START_NS // 10**9 % 10  # seconds of the first window that are over
    first = [n for n in range(40) if n != 13 and (start + n / 2) // 10 == 0]
    row = found["value", 0]
    finite = [value_of(n) for n in first if math.isfinite(value_of(n))]
    assert (row["count"], row["nulls"], row["nans"], row["infinite"]) == (len(finite), 0, 1, 2)
    assert (row["min"], row["max"]) == (min(finite), max(finite))
    assert row["mean"] == pytest.approx(statistics.fmean(finite), rel=1e-12)
    assert row["stddev"] == pytest.approx(statistics.stdev(finite), rel=1e-6)
    some = [n / 2 for n in first if n % 3 == 0]
    row = found["maybe", 0]
    assert (row["count"], row["nulls"], row["max"]) == (len(some), len(first) - len(some), max(some))
    assert {row["stuck"] for (name, _), row in found.items() if name == "host"} == {True}
    assert {row["stuck"] for (name, _), row in found.items() if name == "at.x"} == {False}
    assert sum(row["count"] for (name, _), row in found.items() if name == "at.y") == 39
    reasons = Lake(str(tmp_path / "lake")).to_arrow("gold/quarantine").to_pylist()
    assert [(r["topic"], r["messages"]) for r in reasons] == [("arm/left", 1)]
    assert reasons[0]["reason"]


class Worded(msgspec.Struct):
    value: str


def test_a_life_without_numbers(tmp_path: Path) -> None:
    """After one that had them: the table of fields is there, and gets nothing."""
    record(tmp_path / "r" / "one")
    Pipeline().run(tmp_path / "r", tmp_path / "lake", engine="local")
    before = fields_of(tmp_path / "lake")
    made = writer(tmp_path / "r" / "two")
    made.declare("arm/left", epoch=2, schema=schema_of(Worded))
    made.append("arm/left", 2, rows(0, 10, encode=lambda n: msgspec.msgpack.encode(Worded(str(n)))))
    made.close()
    assert Pipeline().run(tmp_path / "r", tmp_path / "lake", engine="local").rows_out == 10
    assert fields_of(tmp_path / "lake") == before


class Clashing(msgspec.Struct):
    time: float
    epoch: str
    seq: float
    batch: datetime.datetime
    window_start: int | None = None


def test_fields_with_the_names_of_columns_that_have_bounds(tmp_path: Path) -> None:
    """Readers skip files by bounds that the table's log promises: it promises none for columns that have none, and
    rows are retained by our times, not by theirs."""
    old = datetime.datetime(1980, 1, 1, tzinfo=datetime.UTC)
    made = writer(tmp_path / "r")
    made.declare("t", epoch=1, schema=schema_of(Clashing))
    encode = lambda n: msgspec.msgpack.encode(Clashing(n / 2, f"e{n}", -1.0, old))  # noqa: E731
    made.append("t", 1, rows(0, 4, encode=encode, start_ns=time.time_ns()))
    made.close()
    Pipeline().run(tmp_path / "r", tmp_path / "lake", engine="local")
    lake = Lake(str(tmp_path / "lake"))
    sql = "select count(*) from silver.t where time > 0.7 and epoch > 'e' and seq < 0 and window_start is null"
    assert lake.to_duckdb().sql(sql).fetchall() == [(2,)]
    bounded = lake.table("silver/t").metadata().configuration["delta.dataSkippingStatsColumns"]
    assert bounded == "rm_epoch,rm_seq,rm_publish_time,rm_host"
    assert lake.retain("silver/t", 1) == 0
    assert lake.to_arrow("silver/t").num_rows == 4


def test_partials_without_a_number() -> None:
    """A window with nulls alone, merged with one that has values, in both orders."""
    import pyarrow as pa

    table = {
        "rm_epoch": pa.array([1, 1, 1]), "rm_host": pa.array(["h"] * 3),
        "rm_publish_time": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "x": pa.array([None, 4, 6], pa.int32()),
    }  # fmt: skip
    batch = pa.RecordBatch.from_pydict(table)
    nulls, values = (measure_fields("t", batch.slice(*part), ["x"], 10_000_000) for part in ((0, 1), (1, 2)))
    for order in ((nulls, values), (values, nulls)):
        (row,) = FIELDS.merged(order, 10.0).to_pylist()
        assert (row["count"], row["nulls"], row["min"], row["max"], row["mean"]) == (2, 1, 4.0, 6.0, 5.0)
        assert row["stddev"] == pytest.approx(math.sqrt(2))
    (alone,) = FIELDS.merged([nulls], 10.0).to_pylist()
    assert (alone["min"], alone["stddev"], alone["stuck"]) == (None, None, False)


def test_the_first_elements_of_short_lists_are_measured() -> None:
    """A list counts by its own length, whatever others there are: how rows are cut does not show."""
    import pyarrow as pa

    lists = [[1.0, 2.0], None, [3.0], [], [9.0] * 17, [5.0, 6.0, 7.0, 8.0]]
    table = {
        "rm_epoch": pa.array([1] * 6), "rm_host": pa.array(["h"] * 6),
        "rm_publish_time": pa.array(range(6), pa.timestamp("us", "UTC")), "x": pa.array(lists, pa.list_(pa.float64())),
    }  # fmt: skip
    batch = pa.RecordBatch.from_pydict(table)
    whole = FIELDS.merged([measure_fields("t", batch, ["x"], 10_000_000)], 10.0)
    counts = {row["field"]: (row["count"], row["nulls"], row["mean"]) for row in whole.to_pylist()}
    assert counts == {"x[0]": (3, 0, 3.0), "x[1]": (2, 0, 4.0), "x[2]": (1, 0, 7.0)}
    cut = FIELDS.merged([measure_fields("t", batch.slice(n, 1), ["x"], 10_000_000) for n in range(6)], 10.0)
    assert cut.equals(whole)
    assert field_names(batch.select(["x"]).schema) == ["x[0]", "x[1]", "x[2]"]


def test_the_host_is_a_column(tmp_path: Path) -> None:
    """In silver and gold: the host of the recorder that wrote the segment, also after the recording moved on to another
    host. A field may be called so, too."""
    import socket

    Pipeline(bronze="copy").run(record(tmp_path / "r"), tmp_path / "lake", engine="local")
    database = Lake(str(tmp_path / "lake")).to_duckdb()
    here = socket.gethostname()
    for table in ("gold.topic_health", "gold.senders", "bronze"):
        assert database.sql(f"select distinct host from {table}").fetchall() == [(here,)], table
    for table in ('silver."arm~left"', 'quarantine."arm~left"'):
        assert database.sql(f"select distinct rm_host from {table}").fetchall() == [(here,)], table
    assert database.sql('select distinct host from silver."arm~left"').fetchall() == [(7,)]
    begun = ((0, "a"), (3, "b"), (3, "c"), (7, "d"))
    meta = Meta("", 1, "r", sessions=[Session(first, 1, host, Clocks(0, 0, "")) for first, host in begun])
    assert [host_of(meta, n) for n in (0, 2, 3, 6, 9)] == list("aaccd")
    assert host_of(None, 4) == ""
