"""Runs everything that takes long, one target after another, and ends with a table: what, how long, what came of it.

    make long                     goes on where it was stopped; results are kept in build/long.json
    python tools/long.py --again  begins anew
    python tools/long.py --only explore --only soak

A result counts for the commit that it was run on: on another commit a target is run again. Ctrl-C keeps what has
finished.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "long.json"
LOGS = ROOT / "build" / "long"
TARGETS = {
    "test": "what CI runs",
    "test-privileged": "what needs root",
    "test-pythons": "every CPython that is found",
    "test-spark": "every test with a real Spark",
    "test-many": "seeds and cases of which `make test` runs some",
    "test-view": "what the viewer's page shows, in a real browser",
    "test-torch": "windows of recordings in torch's own DataLoader",
    "test-lerobot": "data sets that lerobot itself writes and reads",
    "test-originals": "msgq's and pysyncq's own tests",
    "cores": "what only quiet cores show, where there are any",
    "lab": "every crash point, every pair, every stop",
    "failing-calls": "every allocation and every system call fails once",
    "explore": "every interleaving of the larger cases",
    "sanitize": "ASan, UBSan, TSan",
    "fuzz": "half an hour of hostile files",
    "soak": "half an hour of deaths",
    "soak-mixed": "the same, Python and C++ mixed",
    "aarch64": "the native tests for aarch64, under qemu",
    "wheels": "wheels and the sdist",
    "wheels-test": "the tests on the installed wheels",
    "test-versions": "wheels of older states beside this one",
}


def commit() -> str:
    done = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def kept() -> dict[str, dict[str, Any]]:
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def run(target: str) -> dict[str, Any]:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{target}.log"
    print(f"== make {target}: {TARGETS[target]} (output: {log.relative_to(ROOT)})", flush=True)
    began_s = time.monotonic()
    with log.open("w") as out:
        rc = subprocess.run(["make", target], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT).returncode
    last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
    return {"rc": rc, "seconds": round(time.monotonic() - began_s), "last": last[0][:100] if last else ""}


def table(found: dict[str, dict[str, Any]]) -> str:
    rows = []
    for target, what in TARGETS.items():
        one = found.get(target)
        outcome = "not run" if one is None or one["last"].startswith("not run:") else "passed"
        if one is not None and one["rc"]:
            outcome = f"failed ({one['rc']})"
        tail = "" if one is None else f"{one['seconds']:6} s  {one['last']}"
        rows.append(f"{target:16} {outcome:12} {what:46} {tail}".rstrip())
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", action="store_true", help="also what has passed on this commit")
    parser.add_argument("--only", action="append", choices=list(TARGETS), help="only these targets")
    args = parser.parse_args()
    here, every = commit(), kept()
    found = {} if args.again else every.get(here, {})
    RESULTS.parent.mkdir(exist_ok=True)
    try:
        for target in args.only or TARGETS:
            if found.get(target, {}).get("rc") != 0:
                found[target] = run(target)
                RESULTS.write_text(json.dumps({**every, here: found}, indent=1) + "\n")
    except KeyboardInterrupt:
        print("interrupted: `make long` goes on from here")
    print(f"\ncommit {here}, {os.cpu_count()} CPUs, {platform.platform()}\n{table(found)}")
    return 0 if all(found.get(target, {}).get("rc") == 0 for target in args.only or TARGETS) else 1


if __name__ == "__main__":
    sys.exit(main())
