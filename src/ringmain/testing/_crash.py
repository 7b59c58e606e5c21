"""The crash injector: let a child process die, or stop, at a named step inside ringmain.

    for label in crash_points():
        child = subprocess.Popen([...], env={**os.environ, **die_at(label)})
        child.wait()            # -SIGKILL, if it came by that step
        ...                     # does your program go on?

The child runs `_ring_lab`, the same code as `_ring` with the steps compiled in. Nothing changes in this process, and
nothing of it is in the module that runs otherwise.
"""

from __future__ import annotations

from importlib import import_module


def crash_points() -> tuple[str, ...]:
    """The labels of all steps at which a process can be made to die, as "what it does: what is done, what is not"."""
    labels: tuple[str, ...] = import_module("ringmain._ring_lab").crash_points()
    return labels


def die_at(label: str, nth: int = 1) -> dict[str, str]:
    """The environment in which a child dies with SIGKILL the nth time it comes by this step."""
    return _armed("", label, nth)


def stop_at(label: str, nth: int = 1) -> dict[str, str]:
    """The environment in which a child stops (SIGSTOP) the nth time it comes by this step, until it gets SIGCONT."""
    return _armed("stop:", label, nth)


def _armed(how: str, label: str, nth: int) -> dict[str, str]:
    if label not in crash_points():
        raise ValueError(f"there is no crash point {label!r}; crash_points() lists them")
    if nth < 1:
        raise ValueError(f"nth counts from 1, not {nth}")
    return {"RINGMAIN_LAB": "1", "RINGMAIN_CRASH": f"{how}{label}#{nth}"}
