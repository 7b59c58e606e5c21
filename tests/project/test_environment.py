"""Tests and their children have an environment of their own: the machine's decides nothing.

How: the first test looks at what it and a child got; the second runs the first from an environment full of variables
that change what Python and ringmain do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests import environment
from tests.conftest import PATIENCE_S, Child
from tests.environment import KEPT

ROOT = Path(__file__).parents[2]
BY_PYTEST_AND_PYTHON = {"PYTEST_CURRENT_TEST", "PYTEST_VERSION", "RINGMAIN_DIR", "LC_CTYPE"}
ODD = {
    "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore", "PYTHONHASHSEED": "0",
    "NO_COLOR": "1", "COLUMNS": "20", "TERM": "dumb", "TZ": "Asia/Tokyo", "LC_ALL": "C", "RINGMAIN_BACKEND": "zmq",
    "RINGMAIN_DIR": "/nowhere", "RINGMAIN_CRASH": "publish: claimed, not written", "SPARK_HOME": "/nowhere",
}  # fmt: skip


def test_a_child_gets_what_is_named_and_nothing_else(child: Callable[..., Child]) -> None:
    names = child("say(*sorted(os.environ))").line().split()
    by_xdist = {name for name in names if name.startswith("PYTEST_XDIST_")}
    assert environment.at_start <= KEPT | BY_PYTEST_AND_PYTHON | by_xdist
    assert set(os.environ) - {"PYTEST_CURRENT_TEST"} == set(names) - {"PYTEST_CURRENT_TEST", "LC_CTYPE"}


def test_what_the_caller_sets_does_not_get_there() -> None:
    test = f"{__file__}::{test_a_child_gets_what_is_named_and_nothing_else.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test],
        env={**os.environ, **ODD}, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
