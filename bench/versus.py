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

WAYS = {"by default": None, "spinning": True, "sleeping": False}
"""How the receiver of a round trip waits: by default, always spinning, never spinning."""


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


def round_trip(kind: type[Peer], spinning: bool | None) -> list[Callable[[float], float]]:
    """One for each of pair.CENTILES: the first takes the round trips, the others look at the same."""
    message = pair.pool(32)[0]
    latest = [float("nan")] * len(pair.CENTILES)

    def median(budget_s: float) -> float:
        # Enough for the last centile to be more than chance, as far as the time allows.
        looks = spinning or (spinning is None and kind.can_spin)
        count = max(400, int((80_000 if looks else 12_000) * budget_s))

        def run(directory: str) -> float:
            latest[:] = pair.round_trips(kind(directory, len(message), spinning), message, count)
            return latest[0]

        return in_directory(run)

    def other(index: int) -> Callable[[float], float]:
        return lambda budget_s: latest[index]

    return [median, *(other(index) for index in range(1, len(pair.CENTILES)))]


def peer_cells(kinds: Sequence[type[Peer]]) -> list[Cell]:
    cells = []
    for label, size in SIZES.items():
        for kind in kinds:
            if not kind.drops and kind.smallest_bytes <= size <= kind.largest_bytes:
                cells.append(Cell(f"{label} | {kind.name}", "messages/s", throughput(kind, size), True, False))
    for way, spinning in WAYS.items():
        for kind in kinds:
            able = spinning is None or (kind.can_spin if spinning else kind.can_sleep)
            if kind.batches or not able:
                continue
            for centile, run in zip(pair.CENTILES, round_trip(kind, spinning), strict=True):
                name = f"round trip p{centile:g}, {way} | {kind.name}"
                cells.append(Cell(name, "µs", run, True, follows=centile != pair.CENTILES[0]))
    return cells
