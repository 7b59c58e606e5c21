"""`TopicInfo` and `Participant`: what `ringmain.info` and `ringmain.topics` return, whatever the backend."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ringmain import _names

if TYPE_CHECKING:
    from ringmain.backends import Backend
    from ringmain.typed import Schema

Role = Literal["writer", "reader", "observer"]


@dataclass(frozen=True, slots=True)
class Participant:
    """A writer, reader or observer of a topic. A backend that does not count something leaves it at 0."""

    pid: int
    """In its own pid namespace. If `same_namespace` is False, this number means another process here, or none."""
    name: str
    role: Role
    user: int
    position: int = 0
    """Reader: of the next message to read, in bytes since the topic began."""
    lag_messages: int = 0
    lag_bytes: int = 0
    messages: int = 0
    """Sent or received since it joined."""
    bytes: int = 0
    lost: int = 0
    holding: bool = False
    """Does it keep the writers from overwriting what it has not read?"""
    alive: bool = True
    waits_for: str | None = None
    """Writer: the name of the participant that blocks it, if it is waiting."""
    joined_ns: int = 0
    pid_namespace: int = 0
    """The inode of its pid namespace, as `readlink /proc/PID/ns/pid` shows it; 0 if unknown."""
    same_namespace: bool = True
    """Is it in our pid namespace? Only then is `pid` a process here, which can be looked up or sent a signal."""
    started_ticks: int = 0
    """When its process began, in clock ticks from boot, as in /proc/PID/stat; 0 if unknown."""
    taken: int = 0
    """Worker: messages that it has taken and not finished."""
    taken_ns: int = 0
    """Worker: since when it has the oldest of them, as `time.monotonic_ns()`; 0 if it has none."""
    redelivered: int = 0
    """Worker: messages it was given that another worker had given back."""

    @property
    def taken_for_ns(self) -> int:
        """Worker: how long it has had the oldest of them."""
        return time.monotonic_ns() - self.taken_ns if self.taken_ns else 0

    @property
    def pid_text(self) -> str:
        """`pid 12`, or `pid 12 in another pid namespace (4026532281)`."""
        return f"pid {self.pid}" if self.same_namespace else _names.describe_pid(self.pid, self.pid_namespace)


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What is known of a topic."""

    name: str
    contract: str
    capacity: int
    used: int
    """Bytes of the ring that hold messages; where the writer waits, only those that some reader has not finished."""
    next_sequence: int
    epoch: int
    """Which life of the topic this is: when it was created, in nanoseconds."""
    persist: bool
    schema: Schema | None
    writers: list[Participant]
    readers: list[Participant]
    """Observers are among them; one that is still joining is not. Each receives what is sent from now on."""
    backend: Backend = "shm"
    waiting: int | None = None
    """On `work`: messages that no worker has taken. None on other contracts."""
    kept_kinds: int | None = None
    """With keep_last_per_kind: how many kinds have had a message that the ring dropped. None on other topics."""
    max_kept_kinds: int = 0
    """Of how many kinds it can keep the last message."""
    not_kept: int = 0
    """Messages that it dropped and did not keep, because it had as many other kinds."""
    max_participants: int | None = None
    """How many publishers and subscribers it takes at once. None: the backend sets no limit."""


def parse_schema(schema: bytes) -> Schema | None:
    """The schema that a topic keeps as bytes; None if it is not typed."""
    if not schema:
        return None
    from ringmain import typed

    return typed.Schema.from_bytes(schema)
