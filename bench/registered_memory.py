"""Memory of the size of a frame that is registered with CUDA as a frame's is, for `bench.frames_gpu`: with small and
huge pages, shared and not, mapped for writing and for reading only."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

SHAPE = (1208, 1928, 3)
SIZE = 1208 * 1928 * 3
READ_ONLY = 8  # cudaHostRegisterReadOnly


class Mapping(NamedTuple):
    what: str
    memory: mmap.mmap
    flags: int = 0
    """To register it with."""
    opened: bool = False
    """It is for reading only, but writable while CUDA registers it."""


@contextmanager
def registered(torch: Any, mapping: Mapping) -> Iterator[Any]:
    """A tensor in this mapping while it is registered."""
    memory = mapping.memory
    array = np.frombuffer(memory, np.uint8)[:SIZE]
    cudart, mprotect = torch.cuda.cudart(), ctypes.CDLL(None).mprotect
    where = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(len(memory))
    opens = mapping.opened and mprotect(*where, mmap.PROT_READ | mmap.PROT_WRITE) == 0
    error = int(cudart.cudaHostRegister(array.ctypes.data, len(memory), mapping.flags))
    if opens:
        mprotect(*where, mmap.PROT_READ)
    if error:
        raise OSError(f"cudaHostRegister: error {error}")
    try:
        yield torch.from_numpy(array)
    finally:
        cudart.cudaHostUnregister(array.ctypes.data)


def mappings() -> Iterator[Mapping]:
    """Each filled with zeros."""
    room = -(-SIZE // (2 << 20)) * (2 << 20)
    small, huge = mmap.mmap(-1, room, mmap.MAP_PRIVATE), mmap.mmap(-1, room, mmap.MAP_PRIVATE)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        small.madvise(mmap.MADV_NOHUGEPAGE)
        huge.madvise(mmap.MADV_HUGEPAGE)
    for memory in (small, huge):
        memory[:] = bytes(room)
    yield Mapping("private memory, small pages, registered", small)
    yield Mapping("private memory, huge pages where granted, registered", huge)
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        file.write(bytes(room))
        file.flush()
        yield Mapping("file in /dev/shm, mapped for writing, registered", mmap.mmap(file.fileno(), room))
        for what, flags in (("registered as such", READ_ONLY), ("registered as writable", 0)):
            readable = mmap.mmap(file.fileno(), room, prot=mmap.PROT_READ)
            yield Mapping(f"file in /dev/shm, mapped for reading, {what}", readable, flags, flags == 0)


@contextmanager
def huge_directory() -> Iterator[str | None]:
    """A runtime directory whose file system gives huge pages, where this process may mount one."""
    with tempfile.TemporaryDirectory() as directory:
        command = ["mount", "-t", "tmpfs", "-o", "huge=always,size=256m,mode=0700", "tmpfs", directory]
        if not shutil.which("mount") or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            yield None
            return
        try:
            yield directory
        finally:
            subprocess.run(["umount", "--lazy", directory], check=False)
