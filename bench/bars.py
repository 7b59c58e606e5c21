"""The targets, as ratios within one run, and whether this run met them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.harness import Result
from bench.limits import IDLE_CROWD, PREFIX
from bench.placement import BAR_CPUS
from bench.runs import amount

IDLE = "1,000 idle subscribers"
WINDOWS, BATCHES = "16-step windows", "16-step windows in batches of 8"
CROWD = "64 clients of a batching server"
WAIT = "CPU of a second's wait"
LINE = "cache line round trip"
STANDSTILL = "standstill, blocking reader killed"
MEMORY, TOPIC_FILE = "memory of a pair", "topic file of a 1 MiB ring"
# Rows of which no target is made, by what their names begin with, and why.
WITHOUT_TARGET = {
    LINE: "a baseline: what the machine does without us",
    "two empty native calls": "a baseline",
    "memcpy ": "a baseline",
    "msgspec alone": "a baseline",
    "C++ ring 32 B": "a baseline: the same ring without Python",
    "queue of two processes": "a baseline: a queue that does nothing else",
    "Python reads what C++ has sent": "a baseline: the reader alone",
    PREFIX: "what the machine lets any program reach: other rows are held against it",
    TOPIC_FILE: "a size, which tests/ring/test_spec.py knows to the byte",
    "32 B, loss allowed": "what arrives depends on how long a queue each library was given",
    "64 KB, loss allowed": "what arrives depends on how long a queue each library was given",
    "32 B, lost": "what is lost depends on how long a queue each library was given",
    "64 KB, lost": "what is lost depends on how long a queue each library was given",
}
# What `make cores` asks of quiet cores besides figures: its bars, by the part and what is looked at. The parts are
# tests/lab/cores.py; no time here is the machine's own, so none depends on which machine it is.
QUIET: Mapping[str, float] = {
    "recovery: until a blocked writer goes on after a death, ms": 100,
    "recovery: until a blocked writer hears Ctrl-C, ms": 100,
    "recovery: a blocked writer's share of a core, %": 1,
    "unrung: until a message is seen whose writer died before it rang, ms": 20,
    "survivors: until a waiting process has gone on, ms": 100,
    "survivors: until a waiting process has gone on where nothing else runs, ms": 20,
    "survivors: until one that waits for the roster has gone on where nothing else runs, ms": 60,
    "survivors: until a caller knows that the server with its request has died, ms": 120,
    "shortages: calls that were not answered, or others that did not go on": 0,
    "lab: scenarios in which somebody did not go on": 0,
    "wakeups: lost": 0,
    "wakeups: later than 5 ms": 0,
    "hunts: lost": 0,
    "hunts: later than 5 ms": 0,
    "fairness: the most of one writer / the least of one": 2,
    # They take messages as programs take numbers from one word. Where those differ by more than 2, so may workers.
    "fairness: the most of one worker / the least of one, beside 2 or the machine's own": 1,
}


def quiet(what: str, found: float, case: str = "") -> Bar:
    """One row of `make cores`."""
    return Bar(f"{what}{case and f' ({case})'}", found, QUIET[what], True)


TWO_CALLS = "32 B send + recv"
BATCH_CALLS = "32 B send_many + recv_many"
# Rows that no library brings far ahead because of what the machine lets any program reach: their target is to be so far
# ahead, or to reach this share of the limit that is measured in the same run (limits.py).
OF_THE_LIMIT = {
    "64 KB": (f"{PREFIX}64 KB", 0.8),
    "1 MB": (f"{PREFIX}1 MB", 0.9),
    "6 MB": (f"{PREFIX}6 MB", 0.9),
    "numpy frame, 6 MB": (f"{PREFIX}6 MB", 0.85),
    # Two calls in Python on each side, as in ours.
    **{f"round trip p{c}, spinning": (f"{PREFIX}round trip p{c}, spinning", 0.6) for c in ("50", "99", "99.9")},
    **{f"round trip p{c}, sleeping": (f"{PREFIX}round trip p{c}, sleeping", 0.8) for c in ("50", "99", "99.9")},
    "request p50, sleeping": (f"{PREFIX}round trip p50, sleeping", 0.8),  # two sleeps and two wake-ups, too
    CROWD: (PREFIX + CROWD, 0.7),  # the server is one process, and Python
    WAIT: (PREFIX + WAIT, 0.4),
    IDLE_CROWD: (PREFIX + IDLE_CROWD, 0.8),
    STANDSTILL: (f"{PREFIX}standstill", 0.7),  # the kernel's part of a death, and the survivor's way back
    # A message of ours has a mark of its own, by which it is taken, and given back if its worker dies.
    "work 3 → 3, 32 B": (f"{PREFIX}work 3 → 3, 32 B", 0.5),
    MEMORY: (TOPIC_FILE, 0.5),  # it is theirs once they have touched it; the rest is Python's pages, and our module's
}


# And so much more, in the row's unit: who waits for one that dies looks every 10 ms whether it has.
AND_MORE = {STANDSTILL: 10.0}
# Of latencies at a fixed rate: of a reader that looks, and of one that sleeps, which is the kernel's, as above.
AT_A_RATE = (0.5, 0.8)


@dataclass
class Bar:
    what: str
    found: float
    limit: float
    at_most: bool
    placement: str = ""
    judges: tuple[str, ...] = ()  # the cells that it is made of
    # For comparisons with peers: the group, the peer, and both medians.
    group: str = ""
    ours: str = ""
    rival: str = ""
    our_median: float = 0.0
    their_median: float = 0.0
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.found <= self.limit if self.at_most else self.found >= self.limit


def bars(results: Sequence[Result], far_cpus: int = 0) -> list[Bar]:
    """The targets whose cells were measured. `far_cpus`: how many CPUs the machine has that do not share an L2."""
    by_name = {result.name: result for result in results if result.median is not None}
    made = [*_own(by_name), *(real_cores(by_name) if far_cpus >= BAR_CPUS else []), *_against_peers(by_name)]
    return [bar for bar in made if bar is not None]


def without_target(results: Sequence[Result]) -> list[str]:
    """The rows that no target judges, and for which no reason stands above."""
    judged = {name for bar in bars(results, BAR_CPUS) for name in bar.judges}
    rows = [result.name for result in results if result.median is not None]
    return [name for name in rows if name not in judged and not name.startswith(tuple(WITHOUT_TARGET))]


def _own(cells: Mapping[str, Result]) -> list[Bar | None]:
    ours = "readers | ringmain"
    return [
        # As much again for what else a message is asked for: turn, claim, holds, size, progress, a look at the bells.
        # Most of that is once for a batch.
        _ratio(cells, f"{TWO_CALLS} / the least that two calls do", TWO_CALLS, PREFIX + TWO_CALLS, 2.0),
        _ratio(cells, f"{BATCH_CALLS} / the least that two calls do", BATCH_CALLS, PREFIX + BATCH_CALLS, 1.6),
        _plain(cells, "1 MB send + recv_into / two memcpys", "1 MB send + recv_into / two memcpys", 1.25, True),
        _ratio(cells, "publish, 15 readers / 1 reader", f"publish to 15 {ours}", f"publish to 1 {ours}", 1.2),
        _plain(
            cells,
            "CPU of a second's wait, ms",
            f"{WAIT} | ringmain",
            max(0.1, _of_the_limit(cells, WAIT, True) or 0.0),
            True,
        ),
        *(
            _plain(cells, f"CPU of {IDLE}, {where}, ms a second", f"CPU of {IDLE}, {where} | ringmain", 10, True)
            for where in ("one process", "100 processes")
        ),
        *(
            _plain(cells, f"standstill, {what}, ms", f"standstill, {what} | ringmain", 100, True)
            for what in ("writer killed in mid-message", "blocking reader killed")
        ),
        _plain(cells, "system calls in 100k publishes", "system calls in 100k publishes", 0, True),
        _plain(cells, "32 B single calls, messages/s", "32 B | ringmain", 5e6, False),
        _plain(cells, "32 B iterator, messages/s", "32 B | ringmain, for", 15e6, False),
        _plain(cells, "32 B batch, messages/s", "32 B | ringmain, batch", 15e6, False),
        *(
            _ratio(
                cells,
                f"{way}: ringmain / multiprocessing.Queue",
                f"{way} | ringmain",
                f"{way} | multiprocessing.Queue",
                10,
                False,
            )
            for way in ("work 1 → 3, 32 B", "work 3 → 3, 32 B")
        ),
        _ratio(
            cells,
            "request spinning / two topic hops",
            "request p50, spinning | ringmain",
            "request p50, spinning | ringmain, two topics",
            1.3,
        ),
        _ratio(
            cells,
            "request by default, multiprocessing.Pipe / ringmain",
            "request p50, by default | multiprocessing.Pipe",
            "request p50, by default | ringmain",
            20,
            False,
        ),
        _ratio(
            cells,
            "64 clients of a batching server, ringmain / multiprocessing.Pipe",
            f"{CROWD} | ringmain",
            f"{CROWD} | multiprocessing.Pipe",
            min(10, _possible(cells, CROWD, f"{CROWD} | multiprocessing.Pipe", False)),
            False,
        ),
        _ratio(
            cells,
            "C++ round trip / a cache line's",
            "C++ → C++ round trip, spinning",
            LINE,
            # Where lines are fast, instructions count as much: then what a queue takes that has a bus's duties, and
            # nearly as much again for a library's calls and its way of waiting.
            max(3.0, _between(cells, f"{PREFIX}C++ round trip, spinning", LINE) / 0.55),
        ),
        _ratio(
            cells,
            "C++ one way / a cache line's round trip",
            "C++ → C++ one way, spinning",
            LINE,
            max(2.0, _between(cells, f"{PREFIX}C++ one way, spinning", LINE) / 0.65),  # which has two clocks in it
        ),
        _ratio(cells, "C++ 32 B, headers and library / the ring", "C++ → C++ 32 B", "C++ ring 32 B", 0.8, False),
        _ratio(
            cells, "C++ publish, 60 readers / 1 reader", "C++ publish to 60 readers", "C++ publish to 1 readers", 1.2
        ),
        _ratio(
            cells,
            "32 B, C++ → Python / Python → Python",
            "C++ → Python 32 B",
            "32 B | ringmain",
            # No writer is faster than its reader. If that is less, so much of what Python takes of a full ring while a
            # writer runs beside it: C++ fills the ring at once, and then both work on the same lines.
            min(
                1.3,
                0.6 * _between(cells, f"{PREFIX}Python reads what C++ has sent, 32 B", "32 B | ringmain") or math.inf,
            ),
            False,
        ),
        _plain(cells, "work, hand-over of 1 ms tasks, µs", "work, hand-over of 1 ms tasks | ringmain", 10, True),
        *(
            _plain(cells, name, name, 2.0, True)
            for name in (f"memory while {WINDOWS} are {what}, most / least" for what in ("written", "read"))
        ),
        _ratio(
            cells, f"{BATCHES}, ringmain / the copy alone", f"{BATCHES} | ringmain", f"{PREFIX}{BATCHES}", 0.85, False
        ),
        _ratio(
            cells,
            "round trip spinning, Python / C++",
            "round trip p50, spinning | ringmain",
            "C++ ring round trip, spinning",
            2.0,
        ),
    ]


def real_cores(cells: Mapping[str, Result]) -> list[Bar | None]:
    """On CPUs that do not share an L2."""
    trip = "round trip p50, spinning, far |"
    return [
        _plain(cells, "far: 32 B on a pipe, messages/s", "32 B, far | ringmain", 9e6, False),
        _plain(
            cells, "far: 32 B on broadcast, received/s", "32 B, loss allowed, far | ringmain, broadcast", 9e6, False
        ),
        _plain(cells, "far: 32 B on reliable, one writer, messages/s", "32 B, far | ringmain, reliable", 8e6, False),
        _plain(cells, "far: one → three, messages/s each", "one → three, 32 B, far | ringmain", 6e6, False),
        _plain(cells, "far: three → one, messages/s together", "three → one, 32 B, far | ringmain", 5e6, False),
        _ratio(cells, "far: round trip, kickmsg / ringmain", f"{trip} kickmsg", f"{trip} ringmain", 2.2, False),
    ]


def _against_peers(cells: Mapping[str, Result]) -> list[Bar | None]:
    """Ours against the best peer of each group: names are `group | who`."""
    groups: dict[str, dict[str, Result]] = {}
    for name, result in cells.items():
        group, bar, who = name.partition(" | ")
        if bar:
            groups.setdefault(group, {})[who] = result
    made: list[Bar | None] = []
    for group, everybody in groups.items():
        ours = [who for who in everybody if who.startswith("ringmain")]
        peers = [who for who in everybody if who not in ours]
        if not ours or not peers:  # a group of which only one side was measured, or whose peers all failed
            continue
        if "loss allowed" in group or everybody[ours[0]].unit == "%":  # depends on how long a queue each was given
            continue
        lower = everybody[peers[0]].lower_is_better

        def key(who: str, everybody: dict[str, Result] = everybody, lower: bool = lower) -> float:
            return (everybody[who].median or 0.0) * (-1 if lower else 1)

        best, rival = max(ours, key=key), max(peers, key=key)
        mine, other = everybody[best].median or 0.0, everybody[rival].median or 0.0
        if mine <= 0 or other <= 0:  # too little to be measured: there is no ratio
            continue
        ahead = other / mine if lower else mine / other
        wanted = _wanted(group)
        placement = f"{everybody[best].placement}, {everybody[rival].placement}"
        unit = everybody[best].unit
        what = f"{group}: {best} ahead of {rival}"
        judged = tuple(f"{group} | {who}" for who in everybody)
        wanted = min(wanted, _possible(cells, group, f"{group} | {rival}", lower))
        made.append(Bar(what, ahead, wanted, False, placement, judged, group, best, rival, mine, other, unit))
    return made


def _between(cells: Mapping[str, Result], one: str, other: str) -> float:
    """How many times the other; 0 if either was not measured."""
    medians = [cell.median for cell in (cells.get(one), cells.get(other)) if cell is not None and cell.median]
    return medians[0] / medians[1] if len(medians) == 2 else 0.0


def _of_the_limit(cells: Mapping[str, Result], group: str, lower_is_better: bool) -> float | None:
    """What is asked for of what the machine lets any program reach; None if that was not measured."""
    name, far, _ = group.partition(", far")
    of, share = OF_THE_LIMIT.get(name, ("", 0.0))
    if "intended time" in name:
        of, share = PREFIX + name, AT_A_RATE["asleep" in name]
    limit = cells.get(of + far)
    if limit is None or not limit.median:
        return None
    more = AND_MORE.get(name, 0.0)
    return limit.median / share + more if lower_is_better else limit.median * share


def _possible(cells: Mapping[str, Result], group: str, rival: str, lower_is_better: bool) -> float:
    """How far ahead of a peer the machine lets us be asked to be."""
    asked, other = _of_the_limit(cells, group, lower_is_better), cells.get(rival)
    if asked is None or other is None or not other.median:
        return math.inf
    return other.median / asked if lower_is_better else asked / other.median


def _wanted(group: str) -> float:
    """How far ahead of the best peer."""
    if group.startswith(WINDOWS):
        # All copy each pixel to a batch, and pandas once more before: the copy alone is 2.5 to 3 × pandas.
        return 2.0 if group == BATCHES else 3.0
    if group.startswith("work "):
        return 3.0
    if "sleeping" in group or "intended time" in group:  # the kernel's part, or a schedule's, is the same for everybody
        return 1.0
    return 2.0 if "32 B" in group or "spinning" in group else 1.2


def _ratio(
    cells: Mapping[str, Result], what: str, above: str, below: str, limit: float, at_most: bool = True
) -> Bar | None:
    if above not in cells or below not in cells:
        return None
    found = (cells[above].median or 0.0) / (cells[below].median or 1.0)
    return Bar(what, found, limit, at_most, cells[above].placement, (above, below))


def _plain(cells: Mapping[str, Result], what: str, name: str, limit: float, at_most: bool) -> Bar | None:
    if name not in cells:
        return None
    return Bar(what, cells[name].median or 0.0, limit, at_most, cells[name].placement, (name,))


def table(made: Sequence[Bar]) -> str:
    width = max((len(bar.what) for bar in made), default=0) + 2
    lines = []
    for bar in made:
        aim = f"{'≤' if bar.at_most else '≥'} {amount(bar.limit)}"
        lines.append(
            f"{bar.what:{width}}{amount(bar.found):>8}  {aim:9} {'met' if bar.met else 'NOT MET':8}{bar.placement}"
        )
    return "\n".join(line.rstrip() for line in lines)
