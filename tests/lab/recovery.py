"""How soon a writer goes on after the one whose turn it is was killed in the middle of a message; what a blocked writer
costs, and how soon it hears Ctrl-C. Every contract with several writers, every way to send, several spins.

    python tests/lab/recovery.py                              200 deaths of each; prints the times; minutes
    python tests/lab/recovery.py --runs 5 --contract bus --way send

Exits with 1 if a bar was missed: 100 ms for a recovery and for Ctrl-C, 1 % of a core for a blocked writer. These
are times by the clock: run it on a machine with cores to spare. It needs ringmain and nothing else.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

import child_processes
import measured
from ways import SPINS, WAYS

import ringmain as rm
from bench import bars
from ringmain._contracts import CONTRACTS

RECOVERY, INTERRUPT, CORE = (
    "recovery: until a blocked writer goes on after a death, ms",
    "recovery: until a blocked writer hears Ctrl-C, ms",
    "recovery: a blocked writer's share of a core, %",
)
BAR_S = bars.QUIET[RECOVERY] / 1e3
PATIENCE_S = 5.0
BLOCKED_S = 2.0
BEFORE_S = 0.03
"""How long a writer has been blocked when the other dies, or Ctrl-C comes."""
MANY = [name for name, contract in CONTRACTS.items() if not contract.one_writer]


@dataclass(frozen=True)
class Case:
    contract: str
    way: str
    spin: float | None


@dataclass
class Found:
    recoveries_s: list[float] = field(default_factory=list)
    interrupts_s: list[float] = field(default_factory=list)
    core: float = 0.0

    def bars(self, case: Case) -> list[bars.Bar]:
        what = f"{case.contract}, {case.way}, spin={case.spin}"
        return [
            bars.quiet(RECOVERY, 1e3 * max(self.recoveries_s), what),
            bars.quiet(INTERRUPT, 1e3 * max(self.interrupts_s), what),
            bars.quiet(CORE, 100 * self.core, what),
        ]

    def misses(self, case: Case) -> bool:
        return not all(bar.met for bar in self.bars(case))


class Actor:
    """A forked process that says numbers."""

    def __init__(self, act: Callable[[Callable[[float], None]], None]) -> None:
        self._from, to = os.pipe()
        self._said = b""
        self.pid = child_processes.fork()
        if self.pid == 0:
            try:
                act(lambda number: (os.write(to, f"{number!r}\n".encode()), None)[1])
                os._exit(0)
            except BaseException as error:
                print(f"an actor failed: {error!r}", file=sys.stderr)
                os._exit(1)
        os.close(to)

    def number(self) -> float:
        """The next; infinity if none comes."""
        if b"\n" not in self._said and select.select([self._from], [], [], PATIENCE_S)[0]:
            self._said += os.read(self._from, 64)
        text, _, self._said = self._said.partition(b"\n")
        return float(text) if text else math.inf

    def has_said(self) -> bool:
        """Whether there is a number that was not asked for yet."""
        return bool(self._said) or bool(select.select([self._from], [], [], 0)[0])

    def end(self) -> None:
        child_processes.kill(self.pid)
        os.close(self._from)


def owner_of(case: Case) -> Actor:
    """Has the turn, and stays in the middle of its message."""

    def act(say: Callable[[float], None]) -> None:
        pub = rm.Publisher("t", contract=case.contract)
        with pub.reserve(8):
            say(0)
            signal.pause()

    owner = Actor(act)
    owner.number()
    return owner


def blocked_writer(case: Case, timeout: float | None) -> Actor:
    """Says when it has sent, or was interrupted, or, at its timeout, how much of a core it used."""

    def act(say: Callable[[float], None]) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with rm.Publisher("t", spin=case.spin) as pub:
            say(0)
            if timeout is not None:  # what its first wait starts, such as a loop and a thread, is not what a wait costs
                with suppress(rm.Full):
                    WAYS[case.way](pub, 0.001)
            began_s, used_s = time.monotonic(), time.process_time()
            try:
                WAYS[case.way](pub, timeout)
            except rm.Full:
                say((time.process_time() - used_s) / (time.monotonic() - began_s))
            except KeyboardInterrupt:
                say(time.monotonic())
            else:
                say(time.monotonic())

    writer = Actor(act)
    writer.number()
    return writer


def time_of(case: Case, cause: Callable[[Actor, Actor], None]) -> float:
    """From the cause until the blocked writer answers."""
    owner = owner_of(case)
    writer = blocked_writer(case, None)
    time.sleep(BEFORE_S)
    began_s = time.monotonic()
    cause(owner, writer)
    took_s = writer.number() - began_s
    for actor in (writer, owner):
        actor.end()
    for topic in rm.topics():
        with suppress(rm.TopicNotFound):  # a writer that was killed while it removed the topic left it marked
            rm.unlink(topic.name, force=True)
    return took_s


def measure(case: Case, runs: int) -> Found:
    """In a runtime directory of its own."""
    os.environ["RINGMAIN_DIR"] = directory = tempfile.mkdtemp(prefix="ringmain-recovery-", dir="/dev/shm")
    found = Found()
    try:
        for _ in range(runs):
            found.recoveries_s.append(time_of(case, lambda owner, _: os.kill(owner.pid, signal.SIGKILL)))
        for _ in range(max(1, runs // 20)):
            found.interrupts_s.append(time_of(case, lambda _, writer: os.kill(writer.pid, signal.SIGINT)))
        owner = owner_of(case)
        writer = blocked_writer(case, BLOCKED_S)
        found.core = writer.number()
        for actor in (writer, owner):
            actor.end()
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return found


def row(case: Case, found: Found) -> str:
    times = sorted(found.recoveries_s)
    within = sum(time_s <= BAR_S for time_s in times)
    quantiles = "".join(
        f"{1e3 * times[min(len(times) - 1, int(q * len(times)))]:8.1f}" for q in (0.0, 0.5, 0.9, 0.99, 1.0)
    )
    return (
        f"{case.contract:9} {case.way:10} spin={case.spin!s:5}{quantiles} ms   {within:4} of {len(times)}   "
        f"Ctrl-C {1e3 * max(found.interrupts_s):6.1f} ms   blocked {100 * found.core:5.2f} %"
        f"{'   MISSED' if found.misses(case) else ''}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="deaths of each case")
    parser.add_argument("--contract", choices=MANY, action="append", help="only these")
    parser.add_argument("--way", choices=list(WAYS), action="append", help="only these")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="cases at once")
    measured.add_option(parser)
    args = parser.parse_args()
    cases = [Case(*each) for each in itertools.product(args.contract or MANY, args.way or WAYS, SPINS)]
    print(f"{'':28}     min     50%     90%     99%     max      within {1e3 * BAR_S:.0f} ms")
    made = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for case, found in zip(cases, pool.map(measure, cases, itertools.repeat(args.runs)), strict=True):
            print(row(case, found), flush=True)
            made += found.bars(case)
    return measured.conclude(made, args.json)


if __name__ == "__main__":
    sys.exit(main())
