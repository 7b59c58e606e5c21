"""Preloads: C files beside this one that stand between a test's children and the C library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def build(name: str, directory: Path) -> Path:
    """The library, for `LD_PRELOAD`. Skips the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = directory / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
