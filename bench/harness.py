"""How a figure is measured: cells run in turn, round after round, and what is reported is the median and its spread.

Two things are noted beside every figure, since both move it more than any change of the code does: how far apart the
two cores are at that moment (the round trip of a cache line, probed before and after each sample of several processes;
*near*, *far*, or *crowded* if the two did not even run at the same time), and how loaded the machine is.

A sample during which the cores moved, or on a crowded machine, says nothing: it is taken again at once, a few times. Of
those that are left, the nearest placement counts.

Invariant: nothing is dropped in silence. Every sample stays in the results; one that failed has its error, one that
does not count has the reason.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

from bench import pair
from bench.floors import floor
from bench.placement import Placement

NEAR_NS = 200.0
"""Cores that share a cache answer within about a hundred nanoseconds; across dies it is several hundred."""
CROWDED_NS = 10_000.0
"""No cores are this far apart: the two processes did not run at the same time."""
PLACEMENTS = ("near", "far", "crowded")
ATTEMPTS = 3
"""How often a sample is repeated in one round if it does not count."""


@dataclass
class Cell:
    """One figure. `run` is given the seconds it may take, and returns one sample. A cell that `follows` has no run of
    its own but is another centile of the samples of the cell before it: it is always run right after it."""

    name: str
    unit: str
    run: Callable[[float], float]
    two_processes: bool = False
    lower_is_better: bool = True
    follows: bool = False
    processes: int = 2
    """If there are several."""
    at: Placement | None = None
    """Where they run; None: where the kernel puts them."""


def placed(cells: Sequence[Cell], placements: Sequence[Placement]) -> list[Cell]:
    """Cells of several processes at each placement that has a CPU for each process; where none has, and those of one
    process, once. At a placement other than near, its name is added: `32 B | ringmain` is `32 B, far | ringmain`."""
    if not placements:
        return list(cells)
    made = []
    for number, at in enumerate(placements):
        for cell in cells:
            several = cell.two_processes and any(len(one.cpus) >= cell.processes for one in placements)
            if several and len(at.cpus) >= cell.processes:
                made.append(replace(cell, name=_named(cell.name, at), at=at))
            elif not several and number == 0:
                made.append(cell)
    return made


def _named(name: str, at: Placement) -> str:
    group, bar, who = name.partition(" | ")
    return name if at.name == "near" else f"{group}, {at.name}{bar}{who}"


def placement(ns: float) -> str:
    return "near" if ns < NEAR_NS else "far" if ns < CROWDED_NS else "crowded"


@dataclass
class Sample:
    value: float | None
    before_ns: float | None = None
    after_ns: float | None = None
    load: float = 0.0
    error: str = ""
    discarded: str = ""

    @property
    def placement(self) -> str:
        return placement(max(self.before_ns or 0.0, self.after_ns or 0.0))

    def judge(self) -> None:
        """Why this sample does not count, looking at it alone; empty if it counts."""
        before, after = placement(self.before_ns or 0.0), placement(self.after_ns or 0.0)
        if "crowded" in (before, after):
            self.discarded = "crowded: others kept the two processes from running at the same time"
        elif before != after:
            self.discarded = f"the cores moved: {self.before_ns:.0f} ns apart before, {self.after_ns:.0f} ns after"


@dataclass
class Result:
    name: str
    unit: str
    two_processes: bool
    lower_is_better: bool
    samples: list[Sample] = field(default_factory=list)

    def settle(self) -> None:
        """Says of every sample that does not count why; if none would, the best of those that are there do."""
        there = [sample for sample in self.samples if sample.value is not None]
        good = [sample for sample in there if not sample.discarded] or there
        best = min((PLACEMENTS.index(sample.placement) for sample in good), default=0)
        for sample in good:
            behind = PLACEMENTS.index(sample.placement) > best
            sample.discarded = f"{sample.placement}, and there are {PLACEMENTS[best]} ones" if behind else ""

    def counted(self) -> list[float]:
        return [sample.value for sample in self.samples if sample.value is not None and not sample.discarded]

    @property
    def median(self) -> float | None:
        values = self.counted()
        return statistics.median(values) if values else None

    @property
    def placement(self) -> str:
        """Where the samples that count were taken, and how many of how many they are."""
        if not self.two_processes or self.median is None:
            return ""
        counted = [sample for sample in self.samples if sample.value is not None and not sample.discarded]
        share = "" if len(counted) == len(self.samples) else f" {len(counted)}/{len(self.samples)}"
        return counted[0].placement + share

    @property
    def error(self) -> str:
        return next((sample.error for sample in reversed(self.samples) if sample.error), "")


Say = Callable[[str], None]


def measure(cells: Sequence[Cell], rounds: int, budget_s: float, say: Say = lambda text: None) -> list[Result]:
    """Every cell once in each round, so that other load on the machine affects all of them alike. Ctrl-C ends it and
    returns what was measured so far."""
    results = [Result(cell.name, cell.unit, cell.two_processes, cell.lower_is_better) for cell in cells]
    pairs = list(zip(cells, results, strict=True))
    began = time.monotonic()
    try:
        for number in range(rounds):
            for index, cell in enumerate(cells):
                if cell.follows:
                    continue
                behind = list(takewhile(lambda one: one[0].follows, pairs[index + 1 :]))
                shown = _take(cell, behind, results[index], budget_s)
                say(f"{time.monotonic() - began:4.0f} s [{number + 1}/{rounds}] {cell.name}: {shown}")
    except KeyboardInterrupt:
        say("interrupted: what was measured so far is kept")
    for result in results:
        result.settle()
    return [result for result in results if result.samples]


def _take(cell: Cell, behind: Sequence[tuple[Cell, Result]], result: Result, budget_s: float) -> str:
    """One sample that says something, or a few that do not; with those of the cells that follow."""
    sample = Sample(None)
    for _ in range(ATTEMPTS if cell.two_processes else 1):
        sample = take(cell, budget_s)
        result.samples.append(sample)
        for other, their_result in behind:
            value = None if sample.error else other.run(budget_s)
            their_result.samples.append(
                Sample(value, sample.before_ns, sample.after_ns, sample.load, sample.error, sample.discarded)
            )
        if sample.error or not sample.discarded:
            break
    shown = sample.error or f"{sample.value:,.4g} {cell.unit}"
    return f"{shown} (discarded: {sample.discarded})" if sample.discarded else shown


def take(cell: Cell, budget_s: float) -> Sample:
    sample = Sample(None, load=os.getloadavg()[0])
    pair.cpus = cell.at.cpus if cell.at else ()
    try:
        if cell.two_processes:
            sample.before_ns = floor("cacheline", cpus=pair.cpus)
        sample.value = cell.run(budget_s)
        if cell.two_processes:
            sample.after_ns = floor("cacheline", cpus=pair.cpus)
            sample.judge()
    except Exception as error:  # a failing cell is reported, and does not end the run
        sample.value, sample.error = None, f"{type(error).__name__}: {error}"
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


def spread(values: Sequence[float]) -> list[float]:
    """The middle half of the samples; with few of them, the least and the greatest."""
    if not values:
        return []
    if len(values) < 4:
        return [min(values), max(values)]
    quarters = statistics.quantiles(values, n=4)
    return [quarters[0], quarters[2]]
