"""The crash points in Python: steps at which tests make a recorder or a pipeline's driver die.

`RINGMAIN_CRASH="batch: begun, nothing written#5"` kills the process with SIGKILL the fifth time it gets there, with
"stop:" before the label it stops with SIGSTOP instead; without `#n`, the first time. The ring's crash points
(native/base/crash.hpp) use the same variable and grammar, so a label that is not in POINTS is ignored here. It is
read once, at import: a point that is not armed costs one comparison. docs/spec/recording.md says
what others see after each of the recorder's; tests compare the two, and kill a process at each point.
"""

from __future__ import annotations

import os
import signal

RECORDER = (
    "record: stream made, empty",
    "record: batch half written",
    "record: batch written, caller not told",
    "seal: stream finished, not sealed",
    "seal: parquet half written",
    "seal: parquet written, not named",
    "seal: parquet named, stream kept",
    "meta: written, not named",
    "retain: segments counted, not deleted",
    "incident: asked for, not written",
    "incident: written, its window not over",
    "incident: window over, not closed",
)
PIPELINE = (
    "batch: begun, nothing written",
    "batch: files written, not committed",
    "batch: silver committed, gold not",
    "batch: gold merged, not committed",
    "batch: tables committed, not done",
    "batch: done, recordings not told",
)
DATASETS = (
    "build: begun, nothing written",
    "build: files written, not committed",
    "build: cells committed, episodes not",
    "build: tables committed, not done",
)
POINTS = (*RECORDER, *PIPELINE, *DATASETS)

_armed: str | None = None
_signal = signal.SIGKILL
_countdown = 0


def arm(setting: str | None) -> None:
    """Arm one point (`"LABEL"`, `"LABEL#5"`, `"stop:LABEL#5"`); None, or a label of the ring, disarms."""
    global _armed, _signal, _countdown
    rest = (setting or "").removeprefix("stop:")
    label, _, count = rest.partition("#")
    _armed = label if label in POINTS else None
    if _armed is None:
        return
    if not (count or "1").isdigit() or int(count or 1) < 1:
        raise ValueError(f"RINGMAIN_CRASH={setting!r}: expected LABEL#N, where N counts from 1")
    _signal = signal.SIGSTOP if rest != setting else signal.SIGKILL
    _countdown = int(count or 1)


def is_next(label: str) -> bool:
    """Would `point(label)` kill or stop the process now?"""
    return _armed == label and _countdown == 1


def point(label: str) -> None:
    """Die or stop here, without any clean-up, if this point is armed."""
    global _countdown
    if _armed is None or _armed != label:
        return
    _countdown -= 1
    if _countdown == 0:
        os.kill(os.getpid(), _signal)


arm(os.environ.get("RINGMAIN_CRASH"))
