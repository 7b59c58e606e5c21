"""The cells in which ringmain and its peers do the same: throughput from one process to another, and round trips."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence

from bench import pair
from bench.harness import Cell
from bench.peers import Peer

SIZES = {"32 B": 32, "1 KB": 1024, "64 KB": 65536, "1 MB": 1 << 20, "6 MB": 6_000_000}


def in_directory(run: Callable[[str], float]) -> float:
    """Every sample in a runtime directory of its own, so that none inherits from another."""
    before = os.environ["RINGMAIN_DIR"]
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    os.environ["RINGMAIN_DIR"] = directory
    try:
        return run(directory)
    finally:
        os.environ["RINGMAIN_DIR"] = before
        shutil.rmtree(directory)


def throughput(kind: type[Peer], size: int) -> Callable[[float], float]:
    messages = pair.pool(size)
    counts: list[int] = []

    def sample(budget_s: float) -> float:
        def once(count: int) -> float:
            return in_directory(lambda directory: pair.throughput(kind(directory, size), messages, count))

        if not counts:  # the first time, find out how many fit in the time
            few = len(messages) * (8 if size <= 65536 else 2)
            rate = once(few)
            counts.append(max(few, int(rate * budget_s) // len(messages) * len(messages)))
        return once(counts[0])

    return sample


def round_trip(kind: type[Peer], spinning: bool) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """The median, and the 99th centile of the same round trips: to be asked for in this order."""
    message = pair.pool(32)[0]
    latest = [float("nan")]

    def median(budget_s: float) -> float:
        count = max(200, int((20_000 if spinning else 6_000) * budget_s))

        def run(directory: str) -> float:
            p50, latest[0] = pair.round_trips(kind(directory, len(message), spinning), message, count)
            return p50

        return in_directory(run)

    return median, lambda budget_s: latest[0]


def peer_cells(kinds: Sequence[type[Peer]]) -> list[Cell]:
    cells = []
    for label, size in SIZES.items():
        for kind in kinds:
            if kind.smallest_bytes <= size <= kind.largest_bytes:
                cells.append(Cell(f"{label} | {kind.name}", "messages/s", throughput(kind, size), True, False))
    for way, spinning in (("spinning", True), ("sleeping", False)):
        for kind in kinds:
            if kind.name.startswith("ringmain,") or not (kind.can_spin if spinning else kind.can_sleep):
                continue
            for centile, run in zip(("p50", "p99"), round_trip(kind, spinning), strict=True):
                cells.append(Cell(f"round trip {centile}, {way} | {kind.name}", "µs", run, True))
    return cells
