"""`gold/fields` and `gold/quarantine`: what messages say, and why some could not be read, window by window; and the
host that recorded each message."""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringmain.pipeline import Lake, Pipeline
from ringmain.pipeline._fields import Field, measure_fields
from ringmain.pipeline._partials import merge, parts_of, rows_of
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
    summary = Pipeline().run(record(tmp_path / "r"), tmp_path / "lake", max_bytes_per_batch=batch)
    assert (summary.rows_in, summary.quarantined) == (40, 1)
    found = fields_of(tmp_path / "lake")
    assert {name for name, _ in found} == {"value", "maybe", "at.x", "at.y", "field_host"}
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
    assert {row["stuck"] for (name, _), row in found.items() if name == "field_host"} == {True}
    assert {row["stuck"] for (name, _), row in found.items() if name == "at.x"} == {False}
    assert sum(row["count"] for (name, _), row in found.items() if name == "at.y") == 39
    reasons = Lake(str(tmp_path / "lake")).to_arrow("gold/quarantine").to_pylist()
    assert [(r["topic"], r["messages"]) for r in reasons] == [("arm/left", 1)]
    assert reasons[0]["reason"]


def test_partials_without_a_number() -> None:
    """A window with nulls alone, merged with one that has values, in both orders."""
    import pyarrow as pa

    table = {
        "epoch": pa.array([1, 1, 1]), "publish_time": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
        "x": pa.array([None, 4, 6], pa.int32()),
    }  # fmt: skip
    batch = pa.RecordBatch.from_pydict(table)
    nulls, values = (measure_fields("t", batch.slice(*part), ["x"], 10_000_000) for part in ((0, 1), (1, 2)))
    for order in ((nulls, values), (values, nulls)):
        stored = [part for several in order for part in parts_of(Field, rows_of(several, 10.0))]
        (field,) = merge(stored)
        row = field.row(10.0)
        assert (row["count"], row["nulls"], row["min"], row["max"], row["mean"]) == (2, 1, 4.0, 6.0, 5.0)
        assert row["stddev"] == pytest.approx(math.sqrt(2))
    (alone,) = nulls
    assert (alone.row(10.0)["min"], alone.row(10.0)["stddev"], alone.row(10.0)["stuck"]) == (None, None, False)


def test_the_host_is_a_column(tmp_path: Path) -> None:
    """In silver and gold: the host of the recorder that wrote the segment, also after the recording moved on to another
    host. A field that is called so is renamed."""
    import socket

    Pipeline(bronze="copy").run(record(tmp_path / "r"), tmp_path / "lake")
    database = Lake(str(tmp_path / "lake")).to_duckdb()
    here = socket.gethostname()
    for table in ('silver."arm~left"', "gold.topic_health", "gold.senders", 'quarantine."arm~left"', "bronze"):
        assert database.sql(f"select distinct host from {table}").fetchall() == [(here,)], table
    assert database.sql('select distinct field_host from silver."arm~left"').fetchall() == [(7,)]
    begun = ((0, "a"), (3, "b"), (3, "c"), (7, "d"))
    meta = Meta("", 1, "r", sessions=[Session(first, 1, host, Clocks(0, 0, "")) for first, host in begun])
    assert [host_of(meta, n) for n in (0, 2, 3, 6, 9)] == list("aaccd")
    assert host_of(None, 4) == ""
