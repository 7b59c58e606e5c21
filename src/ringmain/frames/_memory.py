"""What the system may provide for a pool's memory: huge pages, and registration with CUDA. Neither is guaranteed; the
functions here report whether it was provided."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ringmain import backends

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


def huge_page_problem(address: int, size: int) -> str | None:
    """Why the pool has no huge pages, or None if it has them."""
    if _huge_bytes(address, size) > 0:
        return None
    try:
        setting = _SETTING.read_text()
    except OSError:
        return "this kernel has no huge pages in shared memory"
    if "[deny]" in setting:
        return f"{_SETTING} denies them to all shared memory"
    # Apart from "deny", this setting concerns memory without a file; a mounted file system has its own.
    return (
        "the runtime directory's file system provides none, or the kernel had none left. As root, "
        "`mount -o remount,huge=advise /dev/shm` allows them, or set RINGMAIN_DIR to a tmpfs mounted with huge=advise"
    )


def _huge_bytes(address: int, size: int) -> int:
    """How much of the mapping is in huge pages, according to smaps."""
    inside, kib = False, 0
    try:
        with open("/proc/self/smaps") as smaps:
            for line in smaps:
                first, _, rest = line.partition(" ")
                if not first.endswith(":"):
                    low, _, high = first.partition("-")
                    inside = int(low, 16) < address + size and int(high, 16) > address
                elif inside and first in ("ShmemPmdMapped:", "FilePmdMapped:"):
                    kib += int(rest.split()[0])
    except (OSError, ValueError):
        return 0
    return kib * 1024


class Pinning:
    """The registration of a pool's memory with CUDA, which makes copies to a GPU asynchronous."""

    _READ_ONLY = 8  # cudaHostRegisterReadOnly

    def __init__(self, *, writable: bool) -> None:
        self._flags = 0 if writable else self._READ_ONLY
        self._cudart: Any = None
        self._address = 0  # of what is registered

    def register(self, memory: tuple[int, int] | None) -> bool:
        """Registers this memory, (address, bytes), in place of any registered before. False if there is none, torch
        with CUDA is not available, or CUDA refuses."""
        if memory is not None and memory[0] == self._address:
            return True
        self.release()
        try:
            torch: Any = import_module("torch")
        except ImportError:
            return False
        if memory is None or not torch.cuda.is_available():
            return False
        self._cudart = torch.cuda.cudart()
        if int(self._cudart.cudaHostRegister(*memory, self._flags)) == 0:
            self._address = memory[0]
        return self._address != 0

    def release(self) -> None:
        if self._address:
            self._cudart.cudaHostUnregister(self._address)
            self._address = 0


def check_backend() -> None:
    """Frames are shared memory: no other backend has them."""
    if (chosen := backends.choose()) != "shm":
        raise TypeError(f"frames need shared memory, so they cannot be used with the backend {chosen!r}")
