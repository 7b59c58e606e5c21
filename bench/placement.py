"""Which CPUs the processes of a measurement run on, and how far these are apart.

*near*: CPUs that share an L2: hyperthreads of one core, or the cores of a cluster. *far*: CPUs with an L2 each. What
the kernel says in /sys decides. A virtual machine's kernel may not know: fewer than FAR_CPUS CPUs may be hyperthreads
of one core, whatever /sys says, so they count as near, and the round trip of a cache line, which is printed with every
figure, says how near they are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FAR_CPUS = 4
"""One sender and three receivers, each with an L2 of its own."""
BAR_CPUS = 8
"""The bars for far CPUs are for machines with at least so many of them."""
SYS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Placement:
    name: str
    cpus: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: CPUs {', '.join(map(str, self.cpus))}"


@dataclass(frozen=True)
class Machine:
    """The placements it has, and a sentence for each that it has not."""

    placements: tuple[Placement, ...]
    skipped: tuple[str, ...]

    @property
    def far_cpus(self) -> int:
        return max((len(one.cpus) for one in self.placements if one.name == "far"), default=0)

    def only(self, name: str) -> Machine:
        return Machine(tuple(one for one in self.placements if one.name == name), self.skipped)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.placements), *self.skipped])


def sharing_l2(allowed: Sequence[int], root: Path = SYS) -> list[tuple[int, ...]]:
    """The CPUs in groups that share an L2. Where the kernel does not say, the hyperthreads of a core are a group."""
    groups: dict[str, list[int]] = {}
    for cpu in sorted(allowed):
        caches = root / f"cpu{cpu}" / "cache"
        l2 = [index for index in caches.glob("index*") if (index / "level").read_text().strip() == "2"]
        shared = l2[0] / "shared_cpu_list" if l2 else root / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        groups.setdefault(shared.read_text().strip(), []).append(cpu)
    return [tuple(group) for group in groups.values()]


def machine(allowed: Sequence[int] | None = None, root: Path = SYS) -> Machine:
    """Of the CPUs that this process may use."""
    cpus = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    groups = sharing_l2(cpus, root)
    if len(groups) < FAR_CPUS:
        few = f"far: skipped, that needs {FAR_CPUS} CPUs with an L2 each, and there are {len(groups)}"
        return Machine((Placement("near", tuple(cpus)),), (few,))
    far = Placement("far", tuple(group[0] for group in groups))
    nearest = max(groups, key=len)
    if len(nearest) < 2:
        return Machine((far,), ("near: skipped, no two CPUs share an L2",))
    return Machine((Placement("near", nearest), far), ())
