"""The scenarios, and running them: one process dies, two die, one is stopped.

Run with RINGMAIN_LAB set (tests/lab/run_all.py does):

    RINGMAIN_LAB=1 python tests/lab/program.py die  --contract bus            every act, every point it passes
    RINGMAIN_LAB=1 python tests/lab/program.py pair --contract bus --seed 7 --seconds 20
    RINGMAIN_LAB=1 python tests/lab/program.py stop --contract bus --parallel 8

Prints one JSON line a scenario. With --results the lines go to a file, and the scenarios that are in it already are
not played again: the next call goes on where this one ended, however it ended.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

import arena
import child_processes
from actors import ACTS
from arena import Result, Victim, play, trace

from ringmain.testing import crash_points

Scenario = tuple[Victim, ...]
ATTEMPTS = 3
"""A point that depends on the others' pace may be missed."""
MAX_LINE = 4000
"""What a pipe takes in one piece, so that the lines of several workers do not mix."""


def passages(contract: str) -> list[tuple[Victim, int]]:
    """Every point of every act possible on this contract, with how often the act came by."""
    found = []
    for name, act in ACTS.items():
        if contract in act.contracts:
            seen = trace(contract, name)
            found += [(Victim(name, label), seen[label]) for label in crash_points() if seen[label]]
    return found


def deaths(contract: str, later: bool) -> Iterator[Scenario]:
    for victim, times in passages(contract):
        yield (victim,)
        if later and times > 3:
            yield (Victim(victim.act, victim.label, 2 + times // 2),)


def deaths_once(contract: str, seed: int) -> list[Scenario]:
    """Each point in one of the acts that pass it, in any order."""
    points = [victim for victim, _ in passages(contract)]
    random.Random(seed).shuffle(points)
    return [(victim,) for victim in {victim.label: victim for victim in points}.values()]


def pairs(contract: str, seed: int, every_act: bool) -> list[Scenario]:
    """Every pair of points, once for each pair of roles that pass them; or in all acts that do."""
    points = [victim for victim, _ in passages(contract) if ACTS[victim.act].survivors_first]
    both: list[Scenario] = [(a, b) for i, a in enumerate(points) for b in points[i:]]
    random.Random(seed).shuffle(both)
    if every_act:
        return both
    first: dict[object, Scenario] = {}
    for pair in both:
        first.setdefault(frozenset((role_of(v.act), v.label) for v in pair), pair)
    return list(first.values())


def role_of(act: str) -> str:
    return "writer" if ACTS[act].writes or act == "take over" else "reader" if act.startswith("read") else act


def stops(contract: str, every_act: bool) -> Iterator[Scenario]:
    wanted: dict[tuple[str, str], Victim] = {}
    for victim, _ in passages(contract):
        if ACTS[victim.act].survivors_first and victim.label:
            wanted.setdefault((victim.label, victim.act if every_act else ""), victim)
    for victim in wanted.values():
        yield (victim,)


def perform(contract: str, victims: Scenario, how: str) -> Result:
    for _ in range(ATTEMPTS if len(victims) == 1 else 1):
        result = play(contract, victims, how)
        if result.error or all(result.reached):
            break
    return result


def line_of(result: Result) -> bytes:
    line = json.dumps(asdict(result))
    if len(line) > MAX_LINE:
        result.error = result.error[: MAX_LINE // 4] + " ... " + result.error[-MAX_LINE // 4 :]
        line = json.dumps(asdict(result))
    return line.encode() + b"\n"


def play_all(contract: str, how: str, scenarios: Sequence[Scenario], width: int, deadline: float, out: int) -> None:
    """So many side by side, each worker taking the next when it is done with one; a line each to `out`."""
    gc.collect()
    gc.freeze()  # or every child would copy what its collector touches
    with tempfile.TemporaryFile() as queue:
        queue.write(b"".join(i.to_bytes(4, "little") for i in range(len(scenarios))))
        queue.flush()
        os.lseek(queue.fileno(), 0, os.SEEK_SET)  # all workers share the file's offset: each number is read once
        workers = [child_processes.fork() for _ in range(width) if os.getpid() == PARENT]
        if os.getpid() != PARENT:
            code = 1
            try:
                while time.monotonic() < deadline and (number := os.read(queue.fileno(), 4)):
                    os.write(out, line_of(perform(contract, scenarios[int.from_bytes(number, "little")], how)))
                code = 0
            finally:
                os._exit(code)
        try:
            while workers:
                pid, status = os.wait()
                workers.remove(pid)
                if status:
                    raise ChildProcessError(f"a worker of the lab ended with {os.waitstatus_to_exitcode(status)}")
        finally:
            for pid in workers:
                child_processes.kill(pid)


def plan(options: argparse.Namespace) -> list[Scenario]:
    return {
        "die": lambda: (
            deaths_once(options.contract, options.seed)
            if options.once
            else list(deaths(options.contract, options.later))
        ),
        "pair": lambda: pairs(options.contract, options.seed, options.every_act),
        "stop": lambda: list(stops(options.contract, options.every_act)),
    }[options.what]()


def kept_plan(options: argparse.Namespace) -> list[Scenario]:
    """The plan beside the results: what an act passes differs a little from time to time."""
    path = options.results.with_suffix(".plan")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps([[asdict(v) for v in scenario] for scenario in plan(options)]))
        options.results.write_text("")
    return [tuple(Victim(**v) for v in scenario) for scenario in json.loads(path.read_text())]


def played(results: Path) -> set[Scenario]:
    whole = (line for line in results.read_text().splitlines(keepends=True) if line.endswith("\n"))
    return {tuple(Victim(**v) for v in json.loads(line)["victims"]) for line in whole}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["die", "pair", "stop"])
    parser.add_argument("--contract", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0, help="end after so long; 0 plays all")
    parser.add_argument("--later", action="store_true", help="die also at a later passage, not only the first")
    parser.add_argument("--once", action="store_true", help="die at each point once, not in every act that passes it")
    parser.add_argument("--cpp", choices=list(arena.CPP), help="who is of C++; otherwise none")
    parser.add_argument("--every-act", action="store_true", help="stops, pairs: at a point in every act that passes it")
    parser.add_argument("--parallel", type=int, default=1, help="so many scenarios side by side")
    parser.add_argument("--results", type=Path, help="a file for the lines, to which a later call adds what is missing")
    options = parser.parse_args()
    if not os.environ.get("RINGMAIN_LAB"):
        parser.error("set RINGMAIN_LAB=1: the crash points are in the lab build only")
    child_processes.clean_up_on_sigterm()
    if options.cpp:
        import_module("face")  # before all forks
        arena.in_cpp = arena.CPP[options.cpp]
    deadline = time.monotonic() + (options.seconds or 1e9)
    with tempfile.TemporaryDirectory(prefix="ringmain-lab-", dir="/dev/shm") as arena.scratch:
        perform_all(options, deadline)
    return 0


def perform_all(options: argparse.Namespace, deadline: float) -> None:
    how = "stop" if options.what == "stop" else "die"
    if options.results is None:
        play_all(options.contract, how, plan(options), options.parallel, deadline, sys.stdout.fileno())
        return
    scenarios = kept_plan(options)
    done = played(options.results)
    left = [scenario for scenario in scenarios if scenario not in done]
    with options.results.open("ab") as out:
        play_all(options.contract, how, left, options.parallel, deadline, out.fileno())


PARENT = os.getpid()

if __name__ == "__main__":
    sys.exit(main())
