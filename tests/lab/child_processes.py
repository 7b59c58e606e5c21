"""Children that never outlive their parent, and parents that clean up on SIGTERM.

A run of the lab is often killed before its end. Owns this invariant: a process that is forked here dies with its
parent, however that died; so no process is left to keep a processor busy and a runtime directory alive.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def fork() -> int:
    """os.fork(), but the child is killed when its parent dies, and SIGTERM ends it at once."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os._exit(1)
    return pid


def run(work: Callable[[], object]) -> int:
    """A child that does this, and ends with 0, or with 1 and a traceback."""
    pid = fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def expect_changes() -> None:
    """Before the first child of a process that is to wait_for_change(). Not in `fork`: a test's process forks, too, and
    must go on hearing of its children, as the processes must that it starts."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])


def wait_for_change(timeout_s: float) -> None:
    """Sleeps until a child has ended or stopped, or for so long; also wakes too early."""
    signal.sigtimedwait([signal.SIGCHLD], timeout_s)


def clean_up_on_sigterm() -> None:
    """SIGTERM from now on runs the `finally` clauses: children are killed, directories removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
