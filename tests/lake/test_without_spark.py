"""The lake, and the pipeline's local engine, in a process where importing pyspark raises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.recordings import record, rows

PROGRAM = """
import sys

sys.modules["pyspark"] = sys.modules["py4j"] = None  # importing them raises
"""
USE = """
from ringmain.lake import Lake, Rule, Rules, check, report
from ringmain.pipeline import run

recordings, lake, page = sys.argv[1:]
summary = run(recordings, lake, engine="local", progress=lambda line: None)
assert summary.rows_in == summary.rows_out == 200, summary
tables = Lake(lake)
assert tables.to_arrow("silver/imu").num_rows == tables.bronze().read_all().num_rows == 200
assert tables.to_duckdb().execute("select count(*) from silver.imu").fetchall() == [(200,)]
assert len(list(tables.maintain())) == len(tables.tables())
report(lake, page)
(problem,) = check(lake, Rules([Rule(topic="imu", min_rate_hz=1e9)]))
assert problem.check == "min_rate_hz"
"""
CLI = """
from ringmain._cli import main

sys.exit(main(sys.argv[1:]))
"""


def in_a_process(program: str, *args: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + program, *map(str, args)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A recording, and the lake that the local engine makes of it."""
    pytest.importorskip("deltalake", reason="the extra lake is not installed")
    base = tmp_path_factory.mktemp("without-spark")
    record(base / "recording", ("imu", 1, rows(0, 200)))
    in_a_process(USE, base / "recording", base / "lake", base / "page.html")
    return base / "recording", base / "lake"


def test_the_lake_and_the_local_engine(made: tuple[Path, Path]) -> None:
    assert (made[1].parent / "page.html").stat().st_size > 10_000


def test_the_commands(made: tuple[Path, Path], tmp_path: Path) -> None:
    recording, lake = made
    again = json.loads(in_a_process(CLI, "pipeline", "run", recording, "--lake", lake, "--engine", "local", "--json"))
    assert again["rows_in"] == 0, "all of it was read before"
    found = in_a_process(CLI, "query", lake, "select count(*) as n from silver.imu", "--format", "json")
    assert json.loads(found) == [{"n": 200}]
    in_a_process(CLI, "report", lake, "-o", tmp_path / "page.html")
    rules = tmp_path / "rules.toml"
    rules.write_text("[[rule]]\nmax_loss = 0.5\n")
    assert json.loads(in_a_process(CLI, "report", lake, "--check", rules))["ok"]
    assert 'ringmain_pipeline_rows_in_total{lake="' in in_a_process(CLI, "metrics", "--lake", lake, "--once")
    assert "silver/imu" in in_a_process(CLI, "pipeline", "maintain", lake)


def test_spark_is_asked_for_by_name(made: tuple[Path, Path], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + CLI, "pipeline", "run", str(made[0]), "--lake", str(tmp_path / "other")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "ringmain[spark]" in done.stderr, "no other engine is chosen in its place"
    assert len(done.stderr.splitlines()) == 1
