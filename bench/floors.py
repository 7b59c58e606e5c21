"""The C++ helper: how far apart the cores are, and what the ring costs without Python. Built on demand."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FLOOR = ROOT / "build" / "bench" / "floor"


def build_floor() -> None:
    """If it is missing, or older than its sources and there is a compiler."""
    native = ROOT / "native"
    sources = [ROOT / "bench/native/floor.cpp", *native.glob("base/*.cpp"), *native.glob("topic/*.cpp")]
    newest = max(path.stat().st_mtime for path in [*sources, *native.glob("*/*.hpp")])
    compiler = os.environ.get("CXX", "g++")
    if FLOOR.exists() and (FLOOR.stat().st_mtime > newest or not shutil.which(compiler)):
        return
    FLOOR.parent.mkdir(parents=True, exist_ok=True)
    made = FLOOR.with_suffix(".new")
    subprocess.run([compiler, "-std=c++20", "-O2", f"-I{native}", "-o", made, *sources, "-pthread"], check=True)
    made.replace(FLOOR)


def floor(what: str, count: int = 0, cpus: Sequence[int] = ()) -> float:
    """One number from it; its two processes on the first two of these CPUs."""
    command = [str(FLOOR), what, str(count), *map(str, cpus[:2])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=90).stdout)
