"""Places where a recorder may die, so that tests can make it die there.

`RINGMAIN_CRASH=R2` kills the process with SIGKILL the first time it reaches the point R2, `R2:5` the
fifth time. The variable is read once, at import: an unarmed point costs one comparison with None.
The points are listed in docs/spec/recording.md; a test kills a recorder at each of them.
"""

from __future__ import annotations

import os
import signal

POINTS = ("R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9")

_armed: str | None = None
_countdown = 0


def arm(setting: str | None) -> None:
    """Arm one point (`"R2"`, `"R2:5"`) or none."""
    global _armed, _countdown
    if setting is None:
        _armed = None
        return
    label, _, count = setting.partition(":")
    if label not in POINTS or not (count or "1").isdigit() or int(count or 1) < 1:
        raise ValueError(
            f"RINGMAIN_CRASH={setting!r}: expected one of {', '.join(POINTS)}, "
            "or the same followed by :N for the Nth time"
        )
    _armed, _countdown = label, int(count or 1)


def is_next(label: str) -> bool:
    """Would `point(label)` kill the process now?"""
    return _armed is not None and _armed == label and _countdown == 1


def point(label: str) -> None:
    """Die here, without any clean-up, if this point is armed."""
    global _countdown
    if _armed is None or _armed != label:
        return
    _countdown -= 1
    if _countdown == 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("RINGMAIN_CRASH") or None)
