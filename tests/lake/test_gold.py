"""Tables of gold are tables of columns: what is said of a column there is what the rules and the page say."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ringmain.lake import Rule
from ringmain.lake._gold import Column, GoldTable, Groups, grouped, key_of, least, most, sums, totals
from ringmain.lake._health import GOLD, HEALTH


@pytest.mark.parametrize("table", GOLD, ids=lambda table: table.name)
def test_every_column_that_is_measured_is_merged(table: GoldTable) -> None:
    for column in table.columns:
        assert (column.measure is None) == (column.merge is None), column.name
        assert column.derive is None or column.measure is None, column.name
        assert column.total in ("sum", "max", "min", "mean"), column.name
    assert len(set(table.schema.names)) == len(table.columns)


def test_the_limits_of_columns_are_fields_of_rules() -> None:
    limits = {column.limit: column for column in HEALTH.columns if column.limit}
    assert limits.keys() <= {field.name for field in msgspec.structs.fields(Rule)}
    assert limits.keys() == {"max_late", "max_latency_p99_ms"}
    assert all("{value" in column.text for column in limits.values())


def test_rows_of_a_key_come_to_one() -> None:
    table = GoldTable(
        "gold/t",
        (
            Column("window_start", pa.int64()), Column("topic", pa.string()),
            Column("n", pa.int64(), lambda m: m.sizes, sums("n")),
            Column("low", pa.float64(), lambda m: m.least(m["x"]), least("low")),
            Column("high", pa.float64(), lambda m: m.most(m["x"]), most("high")),
            Column("rate", pa.float64(), derive=lambda r, s: r["n"].to_numpy() / s),
        ),
    )  # fmt: skip
    assert table.keys == ["window_start", "topic"]
    rows = [
        {"window_start": 0, "topic": "b", "n": 2, "low": 1.0, "high": None},
        {"window_start": 0, "topic": "a", "n": 3, "low": None, "high": None},
        {"window_start": 0, "topic": "b", "n": 5, "low": -1.0, "high": 7.0},
    ]
    parts = [pa.Table.from_pylist([row], table.schema) for row in rows]
    merged = table.merged(parts, 2.0).to_pylist()
    assert merged == [
        {"window_start": 0, "topic": "a", "n": 3, "low": None, "high": None, "rate": 1.5},
        {"window_start": 0, "topic": "b", "n": 7, "low": -1.0, "high": 7.0, "rate": 3.5},
    ]
    assert table.merged([]).num_rows == 0
    older = pa.Table.from_pylist([{"window_start": 0, "topic": "a"}])
    assert table.of(older).to_pylist()[0]["n"] is None


def test_keys_with_many_values() -> None:
    """More combinations than one number has room for."""
    random = np.random.default_rng(1)
    keys = [random.integers(0, 1 << 40, 3000) for _ in range(7)]
    keys = [np.concatenate([key, key]) for key in keys]
    order, starts = grouped([key_of(key) for key in keys])
    assert len(starts) == 3000
    assert (np.diff(keys[0][order]) >= 0).all()
    assert (order[starts + 1] - order[starts] == 3000).all(), "rows of one key stay in their order"
    groups = Groups({"x": keys[0][order]}, starts, 6000)
    assert (groups.sizes == 2).all()
    assert (groups.sum(groups["x"]) == 2 * keys[0][order][starts]).all()


def test_recorders_of_one_life_are_not_added_up() -> None:
    rows = [("w", "t", epoch, recorder, 10, 2.0, low) for epoch in (1, 2) for recorder, low in (("a", 5.0), ("b", 3.0))]
    names = ["window_start", "topic", "epoch", "recorder", "messages", "latency_p50_ms", "latency_min_ms"]
    (row,) = totals(HEALTH, pd.DataFrame(rows, columns=names), ["topic"]).to_dict("records")
    assert row == {"messages": 20, "latency_p50_ms": 2.0, "latency_min_ms": 3.0}
