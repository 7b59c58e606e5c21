"""Does a thread that waits sleep? The kernel is asked, not a clock. On a slow or busy machine a thread that waits is
asleep just the same, and one that keeps looking never is, however little of a processor it gets."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

LOOKS, PAUSE_S = 40, 0.005
ENOUGH = 4
"""Of the looks. One that waits is awake a hundredth of the time; a busy machine may be late to let it sleep again."""


def _asleep_now(pid: int) -> dict[int, bool]:
    """By thread."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            found[int(thread.name)] = (thread / "stat").read_text().rpartition(") ")[2][0] != "R"
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return found


def least_asleep(pid: int, looks: int = LOOKS) -> int:
    """In how many of the looks that thread of the process was asleep which was so least often, but for the one that
    asks. Of those that are there all the while."""
    seen, asleep = Counter[int](), Counter[int]()
    for _ in range(looks):
        now = _asleep_now(pid)
        seen.update(now.keys())
        asleep.update(thread for thread, sleeps in now.items() if sleeps)
        time.sleep(PAUSE_S)
    others = [thread for thread in seen if seen[thread] == looks and thread != threading.get_native_id()]
    return min(asleep[thread] for thread in others)


class _LookedAt(Exception):
    pass


def least_asleep_in(wait: Callable[[], object]) -> int:
    """The same of this process, while `wait` waits in this thread, which must be the main one. Ends it by a signal."""
    found: list[int] = []
    main = threading.get_ident()

    def look() -> None:
        found.append(least_asleep(os.getpid()))
        signal.pthread_kill(main, signal.SIGALRM)

    def end(*_: object) -> None:
        raise _LookedAt

    before = signal.signal(signal.SIGALRM, end)
    looking = threading.Thread(target=look)
    try:
        looking.start()
        wait()
        raise AssertionError("it did not wait")
    except _LookedAt:
        return found[0]
    finally:
        looking.join()
        signal.signal(signal.SIGALRM, before)
