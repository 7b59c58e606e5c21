"""The targets for CPUs that do not share an L2, and nothing else: about a minute.

    python -m bench.real_cores [--rounds 5] [--seconds 0.5] [--out FILE] [--any]

Each process is pinned to a CPU with an L2 of its own. It needs ringmain, kickmsg for the round trip's target, and a
compiler to measure how far the CPUs are apart; what is missing is said. On a machine with fewer than eight such CPUs it
measures nothing, unless told to by --any: then the CPUs that are there, which decides no target.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench import bars, dropping, fans, measured, pair, runs, versus
from bench.floors import build_floor, floor
from bench.harness import Result, Sample
from bench.peers import ring
from bench.placement import BAR_CPUS, Machine, Placement, machine

SMALL = 32
Take = Callable[[float], float]


def cells() -> dict[str, tuple[str, Take]]:
    """The unit and the measurement of each cell that `bars.real_cores` looks at, by its name there."""
    arrived = dropping.sample_of(ring.Broadcast, SMALL)
    made: dict[str, tuple[str, Take]] = {
        "32 B, far | ringmain": ("messages/s", versus.throughput(ring.Single, SMALL)),
        "32 B, loss allowed, far | ringmain, broadcast": ("messages/s", lambda s: arrived(s).messages_per_s),
        "32 B, far | ringmain, reliable": ("messages/s", versus.throughput(ring.Reliable, SMALL)),
        "one → three, 32 B, far | ringmain": ("messages/s", fans.sample_of(ring.Single, SMALL, True)),
        "three → one, 32 B, far | ringmain": ("messages/s", fans.sample_of(ring.Single, SMALL, False)),
        "32 B, far | ringmain, for": ("messages/s", versus.throughput(ring.Iterating, SMALL)),
        "32 B, far | ringmain, batch": ("messages/s", versus.throughput(ring.Batching, SMALL)),
        "round trip p50, spinning, far | ringmain": ("µs", versus.round_trip(ring.Single, True)[0]),
    }
    try:
        from bench.peers.kick import Kick
    except ImportError as error:
        print(f"kickmsg is absent, so the round trip has no target: {error}")
    else:
        made["round trip p50, spinning, far | kickmsg"] = ("µs", versus.round_trip(Kick, True)[0])
    return made


def cache_line_ns(cpus: tuple[int, ...]) -> float | None:
    """Round trip of a cache line between the first two of these CPUs, or None if it cannot be measured here."""
    try:
        build_floor()
        return floor("cacheline", cpus=cpus)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"how far the CPUs are apart was not measured: {error}")
        return None


def measure(chosen: dict[str, tuple[str, Take]], rounds: int, seconds: float) -> list[Result]:
    """Every cell once in each round. A cell that fails has its error."""
    results = [Result(name, unit, False, unit == "µs") for name, (unit, _) in chosen.items()]
    for number in range(rounds):
        for result, (_, take) in zip(results, chosen.values(), strict=True):
            try:
                result.samples.append(Sample(take(seconds), load=os.getloadavg()[0]))
            except Exception as error:  # reported, and does not end the run
                result.samples.append(Sample(None, error=f"{type(error).__name__}: {error}"))
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return results


def begun(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Machine, Placement | None]:
    """The options, with those that all such measurements have; the machine; and where on it to measure. Where that is
    nowhere, it says so."""
    parser.add_argument("--any", action="store_true", help="measure on a machine for which the targets are not made")
    measured.add_option(parser)
    options, here = parser.parse_args(), machine()
    if here.far_cpus >= BAR_CPUS:
        return options, here, next(one for one in here.placements if one.name == "far")
    if options.any:
        return options, here, here.placements[-1]
    print(f"{here}\nnot measured: the targets are for {BAR_CPUS} CPUs with an L2 each, here are {here.far_cpus}")
    return options, here, None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.real_cores", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each measurement in each round")
    parser.add_argument("--out", type=Path, help="the JSON file; default: bench/results/real_cores/<time>.json")
    options, here, at = begun(parser)
    if at is None:
        return 0
    pair.cpus = at.cpus
    about = runs.circumstances(shlex.join(["python", "-m", "bench.real_cores", *sys.argv[1:]]))
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    os.environ["RINGMAIN_DIR"] = directory
    try:
        before = cache_line_ns(at.cpus)
        results = measure(cells(), options.rounds, options.seconds)
        after = cache_line_ns(at.cpus) if before is not None else None
    finally:
        shutil.rmtree(directory)
    apart = "not measured" if before is None else f"{before:.0f} ns before, {after:.0f} ns after"
    print(
        f"{about['machine']}, Linux {about['kernel']}, Python {about['python']}, commit {about['commit'] or 'unknown'}"
    )
    print(f"{at}\ncache line round trip: {apart}\n{runs.table(results)}\n")
    made = [bar for bar in bars.real_cores({one.name: one for one in results if one.median is not None}) if bar]
    print(bars.table(made))
    if here.far_cpus < BAR_CPUS:
        print(f"these targets are for {BAR_CPUS} CPUs with an L2 each, here are {here.far_cpus}: they decide nothing")
    out = options.out or runs.DIRECTORY / "real_cores" / f"{about['date'].replace(':', '').replace('-', '')[:15]}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    kept = [{**asdict(result), "median": result.median} for result in results]
    found = [{**asdict(bar), "met": bar.met} for bar in made]
    line = {"before_ns": before, "after_ns": after}
    out.write_text(
        json.dumps({**about, **asdict(at), "cache_line": line, "bars": found, "cells": kept}, indent=1) + "\n"
    )
    print(out)
    failed = measured.conclude(made, options.json)
    return failed if here.far_cpus >= BAR_CPUS else 0


if __name__ == "__main__":
    sys.exit(main())
