"""For testing programs that use ringmain.

`fake`: the whole program in one process, deterministic, on a virtual clock, with faults on demand. `Lockstep`: real
processes, each held at its `recv` until the test lets it go. `Sequencer`: an order between processes or threads. The
crash injector, `crash_points`, `die_at` and `stop_at`: real processes that die or stop at a labelled point of the ring.
"""

from __future__ import annotations

from ringmain.testing.crash import crash_points, die_at, stop_at
from ringmain.testing.fake_world import fake
from ringmain.testing.lockstep import Held, Lockstep, NotHeld
from ringmain.testing.schedule import Deadlock, Stuck
from ringmain.testing.sequencer import Sequencer
from ringmain.testing.world import Killed, World

__all__ = [
    "Deadlock",
    "Held",
    "Killed",
    "Lockstep",
    "NotHeld",
    "Sequencer",
    "Stuck",
    "World",
    "crash_points",
    "die_at",
    "fake",
    "stop_at",
]
