"""For testing programs that use ringmain.

`fake`: the whole program in one process, deterministic, on a virtual clock, with faults on demand. `Lockstep`: real
processes, each paused at its `recv` until the test lets it continue. `Sequencer`: an order between processes or
threads. The crash injector, `crash_points`, `die_at` and `stop_at`: real processes that die or stop at a given step.
"""

from __future__ import annotations

from ringmain.backends.fake._schedule import Deadlock, Stuck
from ringmain.backends.fake._world import Killed, World
from ringmain.testing._crash import crash_points, die_at, stop_at
from ringmain.testing._fake import fake
from ringmain.testing._lockstep import Lockstep, NotPaused, Paused
from ringmain.testing._sequencer import Sequencer

__all__ = [
    "Deadlock",
    "Killed",
    "Lockstep",
    "NotPaused",
    "Paused",
    "Sequencer",
    "Stuck",
    "World",
    "crash_points",
    "die_at",
    "fake",
    "stop_at",
]
