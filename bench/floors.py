"""The C++ helpers: how far apart the cores are, what the ring costs without Python, and what the machine lets any
program reach. Built on demand."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from ringmain._cli.commands import config

ROOT = Path(__file__).resolve().parent.parent
FLOOR = ROOT / "build" / "bench" / "floor"
LIMITS = ROOT / "build" / "bench" / "limits"
FACE = ROOT / "build" / "bench" / "face"
LEAST = ROOT / "build" / "bench" / "least.so"


def build_floor() -> None:
    """What is missing, or older than its sources if there is a compiler."""
    native = ROOT / "native"
    headers = [ROOT / "bench/native/processes.hpp", *native.glob("*/*.hpp")]
    core = [*native.glob("base/*.cpp"), *native.glob("topic/*.cpp")]
    _build(FLOOR, [ROOT / "bench/native/floor.cpp", *core], headers)
    build_limits()
    python = sysconfig.get_path("include")
    _build(LEAST, [ROOT / "bench/native/least.cpp"], headers, ["-shared", "-fPIC", "-fno-plt", f"-I{python}"])
    installed = config.root()
    (library,) = (installed / "lib").glob("libringmain.so.*")
    _build(
        FACE,
        [ROOT / "bench/native/face.cpp", library],
        [headers[0], *installed.glob("include/ringmain/*")],
        [f"-I{installed / 'include'}", f"-Wl,-rpath,{library.parent}"],
    )


def build_limits() -> None:
    _build(LIMITS, [ROOT / "bench/native/limits.cpp"], [ROOT / "bench/native/processes.hpp"])


def _build(program: Path, sources: Sequence[Path], headers: Sequence[Path], more: Sequence[str] = ()) -> None:
    newest = max(path.stat().st_mtime for path in [*sources, *headers])
    compiler = os.environ.get("CXX", "g++")
    if program.exists() and (program.stat().st_mtime > newest or not shutil.which(compiler)):
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    made = program.with_suffix(".new")
    options = ["-std=c++20", "-O2", "-ftree-vectorize", f"-I{ROOT / 'native'}", "-pthread", *more]
    subprocess.run([compiler, *options, "-o", made, *sources], check=True)
    made.replace(program)


def number_from(program: Path, what: str, *numbers: float, cpus: Sequence[int] = ()) -> float:
    """One number from it; its two processes on the first two of these CPUs."""
    command = [str(program), what, *map(str, numbers), *map(str, cpus[:2])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=90).stdout)


def floor(what: str, count: int = 0, cpus: Sequence[int] = ()) -> float:
    return number_from(FLOOR, what, count, cpus=cpus)
