"""What only quiet cores show, in one command: at least eight that do not share an L2.

    make cores                              under nine minutes; what was found goes to build/cores.json
    python tests/lab/cores.py --only fairness --anyway     a part of it, on any machine: that decides nothing
    python tests/lab/cores.py --anyway --short             all of it, a minute or two, to see whether it runs

A wait that spins for ever looks like one that sleeps where two hyperthreads take turns: the scheduler ends it. So all
that waits, wakes or recovers is run here before it is called done. On a machine that is no such place it says so, and
runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import runs  # noqa: E402
from bench.placement import BAR_CPUS, machine  # noqa: E402
from bench.runs import amount  # noqa: E402

RESULTS = ROOT / "build" / "cores.json"
BUDGET_S = 540.0
PYTHON = sys.executable


@dataclass(frozen=True)
class Part:
    name: str
    promises: str
    """What it fails for."""
    command: tuple[str, ...]
    seconds: float
    """About how long it takes on sixteen cores."""
    has_bars: bool = True
    """It takes --json, for bench/bars.py has its bars; another says by its exit code whether it failed."""
    short: tuple[str, ...] = ()
    """What makes it short, on any machine."""
    lab: bool = False
    """Runs with the crash points compiled in."""


# What matters most comes first: what no time is left for is what is missing at the end.
PARTS = (
    Part(
        "recovery",
        "writers go on within 100 ms of a death, hear Ctrl-C within 100 ms, and cost below 1 % of a core while blocked",
        (PYTHON, "tests/lab/recovery.py", "--runs", "100"),
        85,
        short=("--runs", "1", "--contract", "bus", "--way", "send"),
    ),
    Part(
        "unrung",
        "a message whose writer died before it rang is seen within 20 ms",
        (PYTHON, "-m", "tests.lab.unrung", "--rounds", "8", "--parallel", "8"),
        75,
        short=("--rounds", "1", "--way", "recv", "--parallel", "1"),
    ),
    Part(
        "wakeups",
        "of millions of wake-ups none is lost, and none later than 5 ms",
        (PYTHON, "tests/lab/wakeups.py"),
        20,
        short=("--seconds", "0.5", "--pairs", "1"),
    ),
    Part(
        "hunts",
        "no wake-up is lost where a message meets a process that falls asleep, with membarrier and without",
        (PYTHON, "tests/lab/wakeups.py", "--hunt"),
        20,
        short=("--seconds", "0.5", "--pairs", "2"),
    ),
    Part(
        "survivors",
        "however a process waits, and for whatever, it goes on within 20 ms of a death",
        (PYTHON, "tests/lab/survivors.py", "--quiet", "--runs", "2"),
        20,
        short=("--runs", "1", "--sample", "1"),
        lab=True,
    ),
    Part(
        "lab",
        "the others go on wherever a process dies or stops, and at a sample of the pairs",
        (PYTHON, "tests/lab/run_all.py", "--sample", "--seconds", "20"),
        120,
    ),
    Part(
        "fairness",
        "no writer and no worker gets more than twice what another gets",
        (PYTHON, "tests/lab/fairness.py"),
        15,
        short=("--seconds", "0.1"),
    ),
    Part(
        "rates",
        "at a fixed rate, and with 200 topics, p99.9 from the intended time is ahead of iceoryx2 and kickmsg, or near "
        "what the machine lets Python reach",
        (PYTHON, "-m", "bench.rates"),
        80,
        short=("--any", "--short"),
    ),
    Part(
        "figures",
        "the targets for cores that do not share an L2",
        (PYTHON, "-m", "bench.real_cores", "--rounds", "4"),
        35,
        short=("--any", "--rounds", "1", "--seconds", "0.05"),
    ),
    Part(
        "clocks",
        "no wait depends on the wall clock",
        (PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_clock_steps.py"),
        30,
        has_bars=False,
    ),
    Part(
        "soak",
        "no message is lost, torn, doubled or late for good",
        (PYTHON, "tests/lab/soak.py", "--minutes", "0.5"),
        35,
        has_bars=False,
        short=("--minutes", "0.05"),
        lab=True,
    ),
)


@dataclass
class Outcome:
    name: str
    command: str
    rc: int
    seconds: float
    last_lines: list[str]
    bars: list[dict[str, Any]]
    not_run: list[str]


def end(process: subprocess.Popen[str]) -> None:
    """With its children."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
            return


def run(part: Part, limit_s: float, short: bool = False) -> Outcome:
    """Everything it prints is shown as it comes; one that takes too long is ended."""
    print(f"== {part.name}: {part.promises}", flush=True)
    began_s = time.monotonic()
    found = RESULTS.parent / "cores" / f"{part.name}.json"
    found.unlink(missing_ok=True)
    command = [*part.command, *(part.short if short else ()), *(("--json", str(found)) if part.has_bars else ())]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **({"RINGMAIN_LAB": "1"} if part.lab else {})}
    lines: deque[str] = deque(maxlen=100)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        too_long = threading.Timer(limit_s, end, [process])
        too_long.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                print("   " + line, end="", flush=True)
                lines.append(line.rstrip())
        finally:
            too_long.cancel()
            end(process)
    took_s = time.monotonic() - began_s
    if took_s > limit_s:
        lines.append(f"ended after {limit_s:g} s")
    measured = json.loads(found.read_text()) if found.exists() else {"bars": [], "not run": []}
    shown = shlex.join(command[1:])
    return Outcome(part.name, shown, process.returncode, took_s, [*lines], measured["bars"], measured["not run"])


def worst_rows(outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """Of each bar how many rows there are, and the row that is nearest to it or misses it most."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for outcome in outcomes:
        for row in outcome.bars:
            kinds.setdefault(row["what"].partition(" (")[0], []).append(row)
    found = []
    for what, rows in kinds.items():
        worst = max(rows, key=lambda row: row["found"] * (1 if row["at_most"] else -1))
        case, missed = worst["what"].partition(" (")[2][:-1], sum(not row["met"] for row in rows)
        found.append({**worst, "what": what, "case": case, "rows": len(rows), "missed": missed})
    return found


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for row in rows:
        aim = f"{'≤' if row['at_most'] else '≥'} {amount(row['limit'])}"
        said = f"NOT MET in {row['missed']} of {row['rows']}: {row['case']}" if row["missed"] else "met"
        lines.append(f"{row['what']:86}{amount(row['found']):>8}  {aim:9} {said}".rstrip(" :"))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[part.name for part in PARTS], help="only these parts")
    parser.add_argument(
        "--anyway", action="store_true", help="also where there are too few cores: that decides nothing"
    )
    parser.add_argument("--short", action="store_true", help="each as short as it can be, to see whether it runs")
    args = parser.parse_args()
    here = machine()
    print(here)
    if here.far_cpus < BAR_CPUS and not args.anyway:
        print(f"not run: this needs {BAR_CPUS} CPUs with an L2 each, and this machine has {here.far_cpus}")
        return 0
    began_s = time.monotonic()
    about = runs.circumstances("make cores")
    outcomes: list[Outcome] = []
    skipped: list[str] = []
    try:
        for part in PARTS:
            if args.only and part.name not in args.only:
                continue
            left_s = BUDGET_S - (time.monotonic() - began_s)
            if left_s < 10 and not args.only:
                skipped.append(part.name)
                continue
            outcomes.append(run(part, BUDGET_S if args.only else min(left_s, 2 * part.seconds), args.short))
    except KeyboardInterrupt:
        print("interrupted: what was run so far is kept")
    RESULTS.parent.mkdir(exist_ok=True)
    bars, parts = worst_rows(outcomes), [vars(one) for one in outcomes]
    found = {**about, "placements": str(here).splitlines(), "bars": bars, "parts": parts, "not run": skipped}
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    failed = [one.name for one in outcomes if one.rc]
    print(table(bars))
    for one in outcomes:
        print(f"{one.name:10} {'failed' if one.rc else 'passed'}  {one.seconds:5.0f} s  {one.command}")
        for sentence in one.not_run:
            print(f"{one.name:10} not run: {sentence}")
    if skipped:
        print(f"not run, for want of time: {', '.join(skipped)}")
    shown = RESULTS.relative_to(ROOT)
    print(f"{shown}  (into the docs: python tools/readme_numbers.py {shown})")
    return 1 if failed or skipped else 0


if __name__ == "__main__":
    sys.exit(main())
