"""System calls that answer with an error, in this process and for good: a filter of seccomp, as containers have."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

NUMBERS = {
    "x86_64": {"mmap": 9, "clone": 56, "fallocate": 285, "membarrier": 324, "clone3": 435},
    "aarch64": {"mmap": 222, "clone": 220, "fallocate": 47, "membarrier": 283, "clone3": 435},
}


def refuse(calls: Sequence[str], error: int) -> None:
    """Raises OSError where that is not possible."""
    numbers = NUMBERS.get(platform.machine())
    if numbers is None:
        raise OSError(f"the numbers of this processor's system calls are not known here: {platform.machine()}")
    compare = [(0x15, 0, 1, numbers[call]) for call in calls]
    steps = [(0x20, 0, 0, 0)]  # load the number
    for one in compare:
        steps += [one, (0x06, 0, 0, 0x50000 | error)]
    steps += [(0x06, 0, 0, 0x7FFF0000)]  # otherwise allow
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "system calls cannot be filtered here")


def can_refuse() -> bool:
    """Whether this works here: tried in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            refuse(["membarrier"], 1)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(pid, 0)[1] == 0
