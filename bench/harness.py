"""How a figure is taken: cells run in turn, round after round, and what is reported is the median and its spread.

Two things are noted beside every figure, since both move it more than any change of the code does: how far apart the
two cores are at that moment (the round trip of a cache line, probed before and after each two-process sample; *near*,
*far*, or *crowded* if the two did not even run at the same time), and how loaded the machine is. Where there are near
samples, the median is theirs alone.

Invariant: nothing is dropped in silence. A sample that failed stays in the results with the reason.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
FLOOR = ROOT / "build" / "bench" / "floor"
NEAR_NS = 200.0
"""Cores that share a cache answer within about a hundred nanoseconds; across dies it is several hundred."""
CROWDED_NS = 10_000.0
"""No cores are this far apart: the two processes did not run at the same time."""
PLACEMENTS = ("near", "far", "crowded")


@dataclass
class Cell:
    """One figure. `run` is given the seconds it may take, and returns one sample."""

    name: str
    unit: str
    run: Callable[[float], float]
    two_processes: bool = False
    lower_is_better: bool = True


@dataclass
class Sample:
    value: float | None
    before_ns: float | None = None
    after_ns: float | None = None
    load: float = 0.0
    error: str = ""

    @property
    def placement(self) -> str:
        worst_ns = max(self.before_ns or 0.0, self.after_ns or 0.0)
        return "near" if worst_ns < NEAR_NS else "far" if worst_ns < CROWDED_NS else "crowded"


@dataclass
class Result:
    name: str
    unit: str
    two_processes: bool
    lower_is_better: bool
    samples: list[Sample] = field(default_factory=list)

    def counted(self) -> list[float]:
        """The near samples if there are any, else the far ones, else those of a crowded machine."""
        found: dict[str, list[float]] = {}
        for sample in self.samples:
            if sample.value is not None:
                found.setdefault(sample.placement, []).append(sample.value)
        return next((found[place] for place in PLACEMENTS if place in found), [])

    @property
    def median(self) -> float | None:
        values = self.counted()
        return statistics.median(values) if values else None

    @property
    def placement(self) -> str:
        if not self.two_processes:
            return ""
        places = [sample.placement for sample in self.samples if sample.value is not None]
        best = next((place for place in PLACEMENTS if place in places), "")
        count = places.count(best)
        return best if count == len(places) else f"{best} {count}/{len(places)}"


def build_floor() -> None:
    """The C++ helper, when it is missing or older than what it is made of."""
    native = ROOT / "native"
    sources = [
        ROOT / "bench/native/floor.cpp",
        *(native / f"{n}.cpp" for n in ("segment", "roster", "endpoint", "lab")),
    ]
    newest = max(path.stat().st_mtime for path in [*sources, *native.glob("*.hpp")])
    if FLOOR.exists() and FLOOR.stat().st_mtime > newest:
        return
    FLOOR.parent.mkdir(parents=True, exist_ok=True)
    made = FLOOR.with_suffix(".new")
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-std=c++20", "-O2", f"-I{native}", "-o", made, *sources, "-pthread"], check=True)
    made.replace(FLOOR)


def floor(*arguments: object) -> float:
    """One number from the C++ helper."""
    command = [str(FLOOR), *map(str, arguments)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True, timeout=90).stdout)


def measure(
    cells: Sequence[Cell], rounds: int, budget_s: float, say: Callable[[str], None] = lambda text: None
) -> list[Result]:
    """Every cell once a round, so that what the machine does meanwhile falls on all of them alike."""
    results = [Result(cell.name, cell.unit, cell.two_processes, cell.lower_is_better) for cell in cells]
    try:
        for number in range(rounds):
            for cell, result in zip(cells, results, strict=True):
                sample = take(cell, budget_s)
                result.samples.append(sample)
                shown = sample.error or f"{sample.value:,.4g} {cell.unit}"
                say(f"[{number + 1}/{rounds}] {cell.name}: {shown}")
    except KeyboardInterrupt:
        say("interrupted: what was measured so far is kept")
    return [result for result in results if result.samples]


def take(cell: Cell, budget_s: float) -> Sample:
    sample = Sample(None, load=os.getloadavg()[0])
    try:
        if cell.two_processes:
            sample.before_ns = floor("cacheline")
        sample.value = cell.run(budget_s)
        if cell.two_processes:
            sample.after_ns = floor("cacheline")
    except Exception as error:  # one cell that fails must not cost the others; it is reported
        sample.error = f"{type(error).__name__}: {error}"
    return sample


def burst_ns(run: Callable[[], object], messages: int, budget_s: float) -> float:
    """Nanoseconds a message in this process: of many short bursts, what the fastest tenth stays under. What others do
    on the machine only adds, and on a shared one it adds to most bursts."""
    bursts: list[float] = []
    deadline = time.perf_counter() + budget_s
    while len(bursts) < 25 or time.perf_counter() < deadline:
        start = time.perf_counter_ns()
        run()
        bursts.append((time.perf_counter_ns() - start) / messages)
    return statistics.quantiles(bursts, n=10)[0]


def circumstances(command: str) -> dict[str, object]:
    """Where, when, and of what the figures are."""
    versions = {}
    for package in ("ringmain", "msgspec", "pyzmq", "iceoryx2", "faster-fifo", "kickmsg", "horus-robotics", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "absent"
    return {
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+changes" if _git("status", "--porcelain", "-uno") else ""),
        "machine": _processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "versions": versions,
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def write(about: dict[str, object], results: Sequence[Result], bars: Sequence[object], absent: dict[str, str]) -> Path:
    """One JSON file a run, named by its time; whole or not at all."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    stamp = str(about["date"]).replace(":", "").replace("-", "")[:15]
    cells = [
        {**asdict(result), "median": result.median, "placement": result.placement, "spread": spread(result.counted())}
        for result in results
    ]
    path = RESULTS / f"{stamp}.json"
    text = json.dumps({**about, "absent": absent, "bars": bars, "cells": cells}, indent=1)
    path.with_suffix(".tmp").write_text(text + "\n")
    path.with_suffix(".tmp").replace(path)
    return path


def spread(values: Sequence[float]) -> list[float]:
    """The middle half of the samples; with few of them, the least and the greatest."""
    if not values:
        return []
    if len(values) < 4:
        return [min(values), max(values)]
    quarters = statistics.quantiles(values, n=4)
    return [quarters[0], quarters[2]]


def amount(value: float) -> str:
    """Four digits at most, so that a table can be read."""
    for limit, letter in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e6 if letter == 'M' else 1e3):.3g}{letter}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(results: Sequence[Result]) -> str:
    """For the terminal."""
    width = max((len(result.name) for result in results), default=10) + 2
    lines = [f"{'cell':{width}}{'median':>10}  {'spread':^17} {'unit':12} placement"]
    for result in results:
        if result.median is None:
            lines.append(f"{result.name:{width}}{'failed':>10}  {result.samples[-1].error}")
            continue
        low, high = spread(result.counted())
        around = f"{amount(low)} … {amount(high)}"
        line = f"{result.name:{width}}{amount(result.median):>10}  {around:^17} {result.unit:12} {result.placement}"
        lines.append(line.rstrip())
    return "\n".join(lines)
