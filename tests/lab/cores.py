"""What only quiet cores show, in one command: at least eight that do not share an L2.

    make cores                              under nine minutes; the figures go to build/cores.json
    python tests/lab/cores.py --only fairness --anyway     a part of it, on any machine: that decides nothing

A wait that spins for ever looks like one that sleeps where two hyperthreads take turns: the scheduler ends it. So all
that waits, wakes or recovers is run here before it is called done. On a machine that is no such place it says so, and
runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from bench import runs  # noqa: E402
from bench.placement import BAR_CPUS, machine  # noqa: E402

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


PARTS = (
    Part(
        "recovery",
        "writers go on within 100 ms of a death, hear Ctrl-C within 100 ms, and cost below 1 % of a core while blocked",
        (PYTHON, "tests/lab/recovery.py", "--runs", "100"),
        85,
    ),
    Part(
        "fairness",
        "no writer and no worker gets more than twice what another gets",
        (PYTHON, "tests/lab/fairness.py"),
        15,
    ),
    Part(
        "clocks", "no wait depends on the wall clock", (PYTHON, "-m", "pytest", "-q", "tests/test_clock_steps.py"), 30
    ),
    Part(
        "lab",
        "the others go on wherever a process dies or stops, and at a sample of the pairs",
        (PYTHON, "tests/lab/run_all.py", "--seconds", "60"),
        150,
    ),
    Part(
        "soak",
        "no message is lost, torn, doubled or late for good",
        (PYTHON, "tests/lab/soak.py", "--minutes", "1"),
        65,
    ),
    Part(
        "unrung",
        "a message whose writer died before it rang is seen within 20 ms",
        (PYTHON, "-m", "tests.lab.unrung", "--rounds", "8", "--parallel", "4"),
        110,
    ),
    Part("figures", "the targets for cores that do not share an L2", (PYTHON, "-m", "bench.real_cores"), 60),
)


@dataclass
class Outcome:
    name: str
    command: str
    rc: int
    seconds: float
    last_lines: list[str]


def run(part: Part, limit_s: float) -> Outcome:
    """With the lab's module, and everything it prints shown as it comes."""
    print(f"== {part.name}: {part.promises}", flush=True)
    began_s = time.monotonic()
    lines: list[str] = []
    environment = {**os.environ, "RINGMAIN_LAB": "1", "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        part.command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                print("   " + line, end="", flush=True)
                lines.append(line.rstrip())
                if time.monotonic() - began_s > limit_s:
                    lines.append(f"cut off after {limit_s:.0f} s")
                    process.terminate()
                    break
        except KeyboardInterrupt:
            process.terminate()
            raise
        process.wait()
    return Outcome(part.name, shlex.join(part.command[1:]), process.returncode, time.monotonic() - began_s, lines[-40:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=[part.name for part in PARTS], help="only these parts")
    parser.add_argument(
        "--anyway", action="store_true", help="also where there are too few cores: that decides nothing"
    )
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
            outcomes.append(run(part, left_s if not args.only else BUDGET_S))
    except KeyboardInterrupt:
        print("interrupted: what was run so far is kept")
    RESULTS.parent.mkdir(exist_ok=True)
    found = {**about, "cpus": str(here).splitlines(), "parts": [vars(one) for one in outcomes], "not run": skipped}
    RESULTS.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    failed = [one.name for one in outcomes if one.rc]
    for one in outcomes:
        print(f"{one.name:10} {'failed' if one.rc else 'passed'}  {one.seconds:5.0f} s  {one.command}")
    if skipped:
        print(f"not run, for want of time: {', '.join(skipped)}")
    print(RESULTS.relative_to(ROOT))
    return 1 if failed or skipped else 0


if __name__ == "__main__":
    sys.exit(main())
