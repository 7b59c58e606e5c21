"""The crash injector: let a child process die, or stop, at a named step inside ringmain.

    for label in crash_points():
        child = subprocess.Popen([...], env={**os.environ, **die_at(label)})
        child.wait()            # -SIGKILL, if it reached that step
        ...                     # does your program go on?

A label names a step of the ring or of the recorder; "label#3" is the third time that the child reaches it. For a step
of the ring the child runs `_ring_lab`, the same code as `_ring` with the steps compiled in. Nothing changes here.
"""

from __future__ import annotations

from importlib import import_module


def crash_points() -> tuple[str, ...]:
    """The labels of the ring's steps at which a process can die, as "what it does: what is done, what is not"."""
    labels: tuple[str, ...] = import_module("ringmain._ring_lab").crash_points()
    return labels


def _recorder_points() -> tuple[str, ...]:
    try:
        return tuple(import_module("ringmain.recording._crash").POINTS)
    except ModuleNotFoundError as error:  # without the extra `record` there is no recorder
        if (error.name or "").partition(".")[0] not in ("pyarrow", "isal"):
            raise
        return ()


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
    if label in ring:  # without the recorder, whose import takes a second
        return {**armed, "RINGMAIN_LAB": "1"}
    recorder = _recorder_points()
    if label not in recorder:
        known = "".join(f"\n  - {known}" for known in (*ring, *recorder))
        raise ValueError(f"there is no crash point {label!r}; crash_points() and the recorder have:{known}")
    return armed
