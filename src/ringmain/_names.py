"""Names, sizes and directories: the rules for what a user may pass, and the errors for the rest."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from ringmain._contracts import CONTRACTS
from ringmain._native import KEPT_KINDS, MAX_KEPT_KINDS, MAX_SLOT_COUNT, SLOT_COUNT
from ringmain.errors import InvalidArgument

MAX_TOPIC_BYTES = 200
_PART = re.compile(r"[A-Za-z0-9._-]+")
_CAPACITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B?|B)?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
_BINARY_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_RULE = (
    "a topic's name is parts of letters, digits, '.', '_' and '-', separated by '/', "
    "no part empty, '.' or '..', 200 characters at most"
)
MAX_CAPACITY = 1 << 40


def check_topic(name: str) -> str:
    """The name itself if it is valid; otherwise `InvalidArgument` with the rule."""
    if not isinstance(name, str):
        raise TypeError(f"a topic's name is a str, not {type(name).__name__}")
    parts = name.split("/")
    if len(name) > MAX_TOPIC_BYTES or not all(_PART.fullmatch(p) and p not in (".", "..") for p in parts):
        shown = name if len(name) <= 60 else name[:57] + "..."
        raise InvalidArgument(f"{shown!r} is not a topic's name: {_RULE}")
    return name


def parse_capacity(capacity: int | str | None) -> int | None:
    """Bytes, from an int or something like "64MiB"."""
    if capacity is None:
        return None
    if isinstance(capacity, bool) or not isinstance(capacity, int | str):
        raise TypeError(f"capacity is a number of bytes or a text like '64MiB', not {capacity!r}")
    if isinstance(capacity, str):
        capacity = parse_bytes(capacity, "capacity")
    if not 0 < capacity <= MAX_CAPACITY:
        raise InvalidArgument(f"capacity must be between 1 byte and 1 TiB, not {capacity}")
    return capacity


def parse_bytes(text: str, what: str = "size") -> int:
    """Bytes, from something like "64MiB"."""
    match = _CAPACITY.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"{what} {text!r} is not understood: write bytes, or something like '64MiB'")
    unit = (match[2] or "").lower().removesuffix("b")
    scale = _BINARY_UNITS[unit[0]] if unit.endswith("i") else _UNITS[unit]
    return int(float(match[1]) * scale)


def check_envelope(what: str, name: str) -> str:
    """A sender's or kind's name: any text of at most 255 bytes in UTF-8, without NUL."""
    if not isinstance(name, str):
        raise TypeError(f"{what} is a str, not {type(name).__name__}")
    if len(name.encode()) > 255 or "\0" in name:
        raise InvalidArgument(f"{what} is at most 255 bytes of UTF-8 without NUL, not {name[:40]!r}")
    return name


def check_mode(mode: int) -> int:
    """The permissions of a topic's file: its owner may always read and write it."""
    if not isinstance(mode, int):
        raise TypeError(f"mode is an int such as 0o600, not {mode!r}")
    if mode & ~0o777 or mode & 0o600 != 0o600:
        raise InvalidArgument(f"mode is permissions that include 0o600, such as 0o660, not {mode:#o}")
    return mode


def check_max_deliveries(count: int | None) -> int:
    """0: no limit."""
    if count is not None and not 1 <= count <= 15:
        raise InvalidArgument(f"max_deliveries is from 1 to 15, or None, not {count}")
    return count or 0


def check_max_participants(count: int | None) -> int | None:
    """How many participants a topic takes: a publisher and a reader at least. None: not asked for."""
    if count is None:
        return None
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"max_participants is a number, not {count!r}")
    if not 2 <= count <= MAX_SLOT_COUNT:
        raise InvalidArgument(f"max_participants is from 2 to {MAX_SLOT_COUNT}, not {count}")
    return count


def check_kept_kinds(kinds: bool | int, contract: str | None) -> int:
    """Of how many kinds a topic keeps the last message; 0: not asked for."""
    if not isinstance(kinds, int):
        raise TypeError(f"keep_last_per_kind is True, False or a number of kinds, not {kinds!r}")
    if not 0 <= kinds <= MAX_KEPT_KINDS:
        raise InvalidArgument(f"keep_last_per_kind is True, or from 1 to {MAX_KEPT_KINDS} kinds, not {kinds}")
    if kinds and contract in CONTRACTS and CONTRACTS[contract].keeps_unread:
        raise InvalidArgument(
            f"keep_last_per_kind is not for a {contract} topic: its readers get every message, and begin where the "
            "last one stopped. Use broadcast, bus or reliable"
        )
    return KEPT_KINDS if kinds is True else int(kinds)


def check_min_readers(count: int, max_participants: int | None = None) -> int:
    """How many readers must take part: 0 or more, and no more than a topic has slots."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"min_readers is a number of readers, not {count!r}")
    slots = max_participants or SLOT_COUNT
    if not 0 <= count < slots:
        raise InvalidArgument(
            f"min_readers is from 0 to {slots - 1}, since a topic has {slots} slots, not {count}; "
            f"max_participants= makes it more"
        )
    return count


_chosen: ContextVar[str | None] = ContextVar("ringmain runtime directory", default=None)


@contextmanager
def directory_as(path: str) -> Iterator[None]:
    """Within the block this is the runtime directory. For endpoints that come from another process: they keep their
    directory, since the environment may differ (a fork server has that of its start)."""
    token = _chosen.set(path)
    try:
        yield
    finally:
        _chosen.reset(token)


def runtime_directory() -> str:
    """The directory of the topics: RINGMAIN_DIR, or a directory of this user in /dev/shm."""
    return _chosen.get() or os.environ.get("RINGMAIN_DIR") or f"/dev/shm/ringmain-{os.geteuid()}"


def participant_name(name: str | None, sender: str = "") -> str:
    """The participant's name: the given one, or its sender's name, or that of its process."""
    chosen = name or sender or _process_name()
    return chosen.replace("\0", "").encode()[:79].decode(errors="ignore")


def _process_name() -> str:
    """The name that `multiprocessing` gave this process; in a main process, the program's."""
    started = sys.modules.get("multiprocessing.process")  # not imported for this: most programs do without it
    name: str = started.current_process().name if started is not None else "MainProcess"
    return name if name != "MainProcess" else Path(sys.argv[0] if sys.argv else "").name or "python"


_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def forks() -> int:
    """How many forks lie between this process and the first one: tells a child from its parent. Pids do not: in a new
    pid namespace the child of pid 1 is pid 1."""
    return _forks


def pid_namespace() -> int:
    """The pid namespace of this process, as the inode of /proc/self/ns/pid; 0 if it is unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def describe_pid(pid: int, namespace: int) -> str:
    """`pid 12`, or `pid 12 in another pid namespace (4026532281)`: there, 12 is not our process 12."""
    if namespace and namespace == pid_namespace():
        return f"pid {pid}"
    return f"pid {pid} in {f'another pid namespace ({namespace})' if namespace else 'an unknown pid namespace'}"


def parse_spin(seconds: float | None) -> int:
    """Nanoseconds to spin before sleeping; negative: adaptive."""
    return -1 if seconds is None else parse_seconds("spin", seconds)


def parse_seconds(what: str, seconds: float) -> int:
    """Nanoseconds, from seconds that are zero or more."""
    if not 0 <= seconds < 1e9:
        raise InvalidArgument(f"{what} is a number of seconds, 0 or more, not {seconds!r}")
    return int(seconds * 1e9)
