"""The recorder's crash points: steps at which tests make a recorder die.

`RINGMAIN_CRASH="R2#5"` kills the process with SIGKILL the fifth time it reaches R2, `"stop:R2#5"` stops it with SIGSTOP
instead; without `#n`, the first time. The ring's crash points (native/crash.hpp) use the same variable and grammar, so
a label that is not in POINTS is ignored here. The variable is read once, at import: a point that is not armed costs one
comparison. docs/spec/recording.md has the same table; a test compares the two and kills a recorder at each point.
"""

from __future__ import annotations

import os
import signal

POINTS = {
    "R1": "the stream exists and is empty",
    "R2": "a batch is half written",
    "R3": "a batch is written, no caller was told",
    "R4": "the stream is finished, sealing has not begun",
    "R5": "`N.parquet.tmp` is partly written",
    "R6": "`N.parquet.tmp` is complete",
    "R7": "`N.parquet` and `N.arrows` both exist",
    "R8": "the new meta.json has its temporary name",
    "R9": "segments are counted as retired and not yet deleted",
}

_armed: str | None = None
_signal = signal.SIGKILL
_countdown = 0


def arm(setting: str | None) -> None:
    """Arm one point (`"R2"`, `"R2#5"`, `"stop:R2#5"`); None, or another component's label, disarms."""
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
