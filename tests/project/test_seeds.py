"""What a random test found is found again: by the seed that a run prints, or by the example that Hypothesis does.

How: a test that fails, and notes what it was given, is run by itself as `make test` runs ours.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_S

ROOT = Path(__file__).parents[2]
FAILS = """
from pathlib import Path
from hypothesis import given, strategies as st

@given(st.integers(0, 10**9))
def test_fails(number):
    with Path(__file__).with_name("given").open("a") as given: given.write(f"{number} ")
    assert number < 1000
"""


def run(folder: Path, **environment: str) -> tuple[str, str]:
    """What it printed, and what the test was given."""
    (folder / "given").unlink(missing_ok=True)
    (folder / "test_that_fails.py").write_text(FAILS)
    ours = ("-c", "pyproject.toml", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *ours, folder / "test_that_fails.py"],
        env={**{name: os.environ[name] for name in os.environ.keys() - {"CI", "RINGMAIN_SEED"}}, **environment},
        cwd=ROOT, capture_output=True, text=True, timeout=3 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout, (folder / "given").read_text()


@pytest.mark.parametrize("ci", [{}, {"CI": "true"}], ids=["elsewhere", "in CI"])
def test_a_run_that_fails_prints_its_example_and_its_seed(ci: dict[str, str], tmp_path: Path) -> None:
    said, given = run(tmp_path, **ci)
    assert "number=1000," in said
    assert "@reproduce_failure(" in said
    first, last = (line for line in said.splitlines() if "RINGMAIN_SEED=" in line)
    assert first == last
    assert ("the same in every run" in last) == bool(ci)
    seed = last.partition("RINGMAIN_SEED=")[2].partition(";")[0]
    assert run(tmp_path, RINGMAIN_SEED=seed, **ci)[1] == given
    assert (run(tmp_path, RINGMAIN_SEED=seed + "1", **ci)[1] == given) == bool(ci)
