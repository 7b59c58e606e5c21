"""The crash injector: let a child process die, or stop, at a named step inside ringmain.

    for label in crash_points():
        child = subprocess.Popen([...], env={**os.environ, **die_at(label)})
        child.wait()            # -SIGKILL, if it reached that step
        ...                     # does your program go on?

A label names a step of the ring, of the recorder or of the pipeline; "label#3" is the third time that the child reaches
it. For a step of the ring the child runs `_ring_lab`, the same code as `_ring` with the steps compiled in. Nothing
changes here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Literal

from ringmain import _crash


def crash_points(part: Literal["ring", "recorder", "pipeline", "datasets"] = "ring") -> tuple[str, ...]:
    """The labels of the steps at which a process can die, as "what it does: what is done, what is not"."""
    if part != "ring":
        return {"recorder": _crash.RECORDER, "pipeline": _crash.PIPELINE, "datasets": _crash.DATASETS}[part]
    labels: tuple[str, ...] = import_module("ringmain._ring_lab").crash_points()
    return labels


def die_at(label: str, nth: int = 1) -> dict[str, str]:
    """The environment in which a child dies with SIGKILL the nth time it reaches this step."""
    return _environment("", label, nth)


def stop_at(label: str, nth: int = 1) -> dict[str, str]:
    """The environment in which a child stops (SIGSTOP) the nth time it reaches this step, until it gets SIGCONT."""
    return _environment("stop:", label, nth)


def _environment(how: str, label: str, nth: int) -> dict[str, str]:
    name, separator, count = label.rpartition("#")
    if separator and count.isdecimal():
        label, nth = name, int(count)
    if nth < 1:
        raise ValueError(f"the times that a step is reached are counted from 1, not {nth}")
    armed = {"RINGMAIN_CRASH": f"{how}{label}#{nth}"}
    ring = crash_points()
    if label in ring:
        return {**armed, "RINGMAIN_LAB": "1"}
    if label not in _crash.POINTS:
        known = "".join(f"\n  - {known}" for known in (*ring, *_crash.POINTS))
        raise ValueError(f"there is no crash point {label!r}; crash_points() has:{known}")
    return armed
