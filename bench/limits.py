"""What this machine lets any program reach, measured in the same run: native/limits.cpp, and for what Python takes part
in, native/least.cpp, both without ringmain.

A row that is not far ahead of every peer has a reason that lies in the machine, or has none. So its target is to be
ahead by so much, or to reach a share of what a program reaches that does nothing else; `bars.py` has the shares.
"""

from __future__ import annotations

from collections.abc import Callable

from bench import least, pair
from bench.floors import LIMITS, number_from
from bench.harness import Cell
from bench.versus import SIZES, round_trip
from bench.work import sample_of

CLIENTS = 64
COPIED_BYTES = 64 << 10
"""From here on the copies are what a message costs."""
PREFIX = "limit: "
IDLE_CROWD = "CPU of 1,000 idle subscribers, 100 processes"


def _large(size: int) -> Callable[[float], float]:
    return lambda seconds: number_from(LIMITS, "large", size, max(20, int(seconds * 4e9) // size), cpus=pair.cpus)


def _wakes(centile: float) -> Callable[[float], float]:
    return lambda seconds: number_from(LIMITS, "wake", max(1000, int(seconds * 20_000)), centile, cpus=pair.cpus)


def _crowd(seconds: float) -> float:
    return number_from(LIMITS, "crowd", CLIENTS, max(50, int(seconds * 2000)))


def limit_cells() -> list[Cell]:
    """A row that has a limit is named as its group is: "limit: 1 MB" beside "1 MB | ringmain"."""
    return [
        *(
            Cell(PREFIX + label, "messages/s", _large(size), True, False)
            for label, size in SIZES.items()
            if size >= COPIED_BYTES
        ),
        *(Cell(f"{PREFIX}round trip p{centile:g}, sleeping", "µs", _wakes(centile), True) for centile in pair.CENTILES),
        *(
            Cell(f"{PREFIX}round trip p{centile:g}, spinning", "µs", run, True, follows=centile != pair.CENTILES[0])
            for centile, run in zip(pair.CENTILES, round_trip(least.Least, True), strict=True)
        ),
        Cell(f"{PREFIX}work 3 → 3, 32 B", "messages/s", sample_of(least.LeastWork, 3), True, False, processes=6),
        Cell(f"{PREFIX}32 B send + recv", "ns", least.send_and_recv),
        Cell(f"{PREFIX}32 B send_many + recv_many", "ns/message", least.batches),
        Cell(f"{PREFIX}64 clients of a batching server", "requests/s", _crowd, False, False),
        Cell(f"{PREFIX}{IDLE_CROWD}", "ms/s", lambda _: number_from(LIMITS, "idle", 100, 0)),
        Cell(f"{PREFIX}CPU of a second's wait", "ms", lambda _: number_from(LIMITS, "second", 0)),
    ]
