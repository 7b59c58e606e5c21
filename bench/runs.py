"""The files of a run: one JSON file with the figures and where and when they were measured, and tables of it.

A run of some cells can be put into the file of another (`--into`): its cells replace those of the same name, and each
cell says by which command, when, and at which commit it was measured.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.floors import ROOT
from bench.harness import Result, Sample, spread

DIRECTORY = ROOT / "bench" / "results"
PACKAGES = (
    "ringmain",
    "msgspec",
    "numpy",
    "pyzmq",
    "iceoryx2",
    "faster-fifo",
    "kickmsg",
    "horus-robotics",
    "eclipse-zenoh",
    "msgq-ipc",
)


def circumstances(command: str) -> dict[str, Any]:
    """Where and when the figures were measured, and of which versions."""
    versions = {}
    for package in PACKAGES:
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
    if not shutil.which("git"):
        return ""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def newest() -> Path | None:
    """The names are times, so the last is the newest."""
    return max(DIRECTORY.glob("*.json"), default=None)


def load(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def merged(before: Mapping[str, Any], results: Sequence[Result], about: Mapping[str, Any]) -> list[Result]:
    """The cells of an older run, with these in the place of those of the same name. Refused on another machine."""
    for what in ("machine", "cores", "kernel", "python"):
        if before[what] != about[what]:
            raise SystemExit(f"{what} differs ({before[what]}, now {about[what]}): not the same run; leave out --into")
    there = {result.name: result for result in results}
    old = [_result(cell) for cell in before["cells"]]
    kept = [there.pop(result.name, result) for result in old]
    return [*kept, *there.values()]


def _result(cell: Mapping[str, Any]) -> Result:
    samples = [Sample(**{"discarded": "", **sample}) for sample in cell["samples"]]
    result = Result(cell["name"], cell["unit"], cell["two_processes"], cell["lower_is_better"], samples)
    result.settle()
    return result


def write(
    path: Path,
    about: Mapping[str, Any],
    results: Sequence[Result],
    bars: Sequence[object],
    absent: Mapping[str, str],
    before: Mapping[str, Any] | None = None,
) -> None:
    """Whole or not at all. Of a cell that was there before and not measured now, what was said of it stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    by = {key: about[key] for key in ("command", "date", "commit", "load")}
    older = {cell["name"]: cell for cell in (before or {}).get("cells", [])}
    cells = []
    for result in results:
        made = {
            **asdict(result),
            "median": result.median,
            "placement": result.placement,
            "spread": spread(result.counted()),
        }
        same = older.get(result.name)
        unchanged = same is not None and [s["value"] for s in same["samples"]] == [s.value for s in result.samples]
        cells.append({**made, "by": same.get("by", by) if same and unchanged else by})
    text = json.dumps({**about, "absent": absent, "bars": bars, "cells": cells}, indent=1)
    path.with_suffix(".tmp").write_text(text + "\n")
    path.with_suffix(".tmp").replace(path)


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
            lines.append(f"{result.name:{width}}{'failed':>10}  {result.error}")
            continue
        low, high = spread(result.counted())
        around = f"{amount(low)} … {amount(high)}"
        line = f"{result.name:{width}}{amount(result.median):>10}  {around:^17} {result.unit:12} {result.placement}"
        lines.append(line.rstrip())
    return "\n".join(lines)
