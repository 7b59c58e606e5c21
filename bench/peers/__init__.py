"""Who is compared with whom: one short adapter a peer, each used as its own documentation advises.

An adapter is made before the two processes part, and then gives one of them `sender(lane)` and the other
`receiver(lane)`: context managers whose value is what the loop calls for every message, so that no layer of ours lies
between. A lane is one direction. Nothing may be lost: a peer that drops when its queue is full is told to wait.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from bench import pair


class Peer:
    """What an adapter must have. `spinning` says how a receiver waits: looking, if `can_spin`, or sleeping, if
    `can_sleep`; None is as the peer does when nothing is said."""

    name = ""
    can_spin = False
    can_sleep = True
    smallest_bytes, largest_bytes = 0, 1 << 62

    def __init__(self, directory: str, size: int, spinning: bool | None = None) -> None:
        self.directory, self.size, self.spinning = directory, size, spinning

    def sender(self, lane: int) -> AbstractContextManager[pair.Send]:
        raise NotImplementedError

    def receiver(self, lane: int) -> AbstractContextManager[pair.Receive]:
        raise NotImplementedError

    def produce(self, send: pair.Send, messages: list[bytes], count: int) -> None:
        pair.produce(send, messages, count)

    def consume(self, receive: pair.Receive, messages: list[bytes], count: int) -> None:
        pair.consume(receive, messages, count)


MODULES = {
    "ringmain": "ring",
    "multiprocessing": "standard",
    "pyzmq": "zeromq",
    "iceoryx2": "iceoryx",
    "faster-fifo": "fasterfifo",
    "kickmsg": "kick",
}


def load() -> tuple[list[type[Peer]], dict[str, str]]:
    """The adapters whose package is here, and why the others are absent."""
    there: list[type[Peer]] = []
    absent = {"horus-robotics": "carries its own types and JSON values, not bytes: it has a typed cell instead"}
    for package, module in MODULES.items():
        try:
            found: Any = import_module(f"bench.peers.{module}")
        except ImportError as error:
            absent[package] = str(error)
            continue
        there += found.PEERS
    return there, absent
