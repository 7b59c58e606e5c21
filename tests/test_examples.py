"""Every example runs, as it is, in a process of its own, and says nothing on stderr. Each asserts what it shows."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = [EXAMPLES / "tour.py", *sorted(EXAMPLES.glob("*/main.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(EXAMPLES)))
def test_example(script: Path, tmp_path: Path):
    code = script.read_text()
    for module in ("pyspark", "zmq", "numpy", "pyarrow"):
        if module in code and importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=280, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: str(script.relative_to(EXAMPLES)))
def test_an_example_is_a_page(script: Path):
    """Long enough to show something, short enough to be read at once."""
    lines = script.read_text().splitlines()
    assert lines[0].startswith('"""')
    assert len(lines) <= 160
