"""Preloads: files in C or C++ beside this one that stand between a test's children and the C library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def build(name: str, directory: Path) -> Path:
    """The library, for `LD_PRELOAD`. Skips the test where there is no compiler."""
    source = Path(__file__).with_name(f"{name}.c")
    if not source.exists():
        source = source.with_suffix(".cpp")
    compiler = shutil.which("cc" if source.suffix == ".c" else "c++")
    if compiler is None:
        pytest.skip("there is no compiler")
    library = directory / f"{name}.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
