"""What can be asked of the system for a pool's memory: huge pages, and registration with CUDA. Both are wishes; what
came of them is told."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

_SETTING = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")


def huge_page_problem(address: int, size: int) -> str | None:
    """Why the pool has no huge pages, or None if it has."""
    if _huge_bytes(address, size) > 0:
        return None
    try:
        setting = _SETTING.read_text()
    except OSError:
        return "this kernel has no huge pages in shared memory"
    if "[deny]" in setting:
        return f"{_SETTING} denies them to all of shared memory"
    # The setting is for memory without a file; a mounted file system has its own.
    return (
        "the runtime directory's file system gives none, or the kernel had none left. As root, "
        "`mount -o remount,huge=advise /dev/shm` allows them, or set RINGMAIN_DIR to a tmpfs mounted with huge=advise"
    )


def _huge_bytes(address: int, size: int) -> int:
    """How much of the mapping is in huge pages, as the kernel tells in smaps."""
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


class Pinned:
    """Memory registered with CUDA."""

    _READ_ONLY = 8  # cudaHostRegisterReadOnly

    def __init__(self, cudart: Any, address: int) -> None:
        self._cudart = cudart
        self._address = address

    @classmethod
    def register(cls, address: int, size: int, *, writable: bool) -> Pinned | None:
        """None where torch with CUDA is not there, or refuses."""
        try:
            torch: Any = import_module("torch")
        except ImportError:
            return None
        if not torch.cuda.is_available():
            return None
        cudart = torch.cuda.cudart()
        if int(cudart.cudaHostRegister(address, size, 0 if writable else cls._READ_ONLY)) != 0:
            return None
        return cls(cudart, address)

    def release(self) -> None:
        self._cudart.cudaHostUnregister(self._address)
