"""Every example runs in a process of its own and exits with 0; each asserts what it shows. The index lists all of
them. Those that need Spark run with the tests that start one (`make test-spark`)."""

from __future__ import annotations

import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import contracts

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*/main.py"))
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")


def marked(script: Path):
    needs_spark = re.search(r"\b(pyspark|ringmain\.spark|ringmain\.pipeline)\b", script.read_text()) is not None
    return pytest.param(script, marks=[pytest.mark.spark] if needs_spark else [], id=script.parent.name)


@pytest.mark.parametrize("script", [marked(script) for script in SCRIPTS])
def test_example(script: Path, tmp_path: Path):
    code = script.read_text()
    for module in ("pyspark", "zmq", "numpy", "pyarrow"):
        if module in code and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    if any(script.parent.glob("*.c*")) and shutil.which("cc") is None:
        pytest.skip("there is no compiler")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=280, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.each_run
def test_a_policy_learns_from_a_grid_that_spark_makes(spark, monkeypatch, capsys):
    """In this process, so that it finds the session that the other tests have."""
    monkeypatch.setattr(sys, "argv", ["main.py", "--spark"])
    runpy.run_path(str(EXAMPLES / "learn_from_recordings" / "main.py"), run_name="__main__")
    said = capsys.readouterr().out
    assert re.search(r"10 episodes made.* by Spark", said)
    assert re.search(r"from the middle at the end: \S+ untrained, \S+ trained", said)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.parent.name)
def test_an_example_is_a_page(script: Path):
    """Short enough to read on one page, and opening with what it shows."""
    lines = script.read_text().splitlines()
    assert lines[0].startswith('"""')
    assert len(lines) <= 160


def test_the_index_names_every_example_once():
    rows = re.findall(r"^\| \[`(\w+)`\]\((\w+)/\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert all(name == link for name, link in rows)
    assert sorted(name for name, _ in rows) == FOLDERS
    assert [path.name for path in EXAMPLES.glob("*.py")] == [], "one folder a pattern"


def test_the_tour_shows_every_contract():
    tour = runpy.run_path(str(EXAMPLES / "tour" / "main.py"))["TOUR"]
    assert [show.__name__ for show in tour] == contracts.ALL
