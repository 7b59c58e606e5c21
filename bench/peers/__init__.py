"""The libraries that are compared: one short adapter each, used as its documentation advises.

An adapter is made before the processes part, and then gives one of them `sender(lane)` and another `receiver(lane)`:
context managers whose value is what the loop calls for every message, so that no layer of ours lies between. A lane is
one direction. Nothing may be lost: a peer that drops when its queue is full is told to wait, or `drops` and is compared
with those that do.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

from bench import pair


class Peer:
    """What an adapter must have. `spinning` says how a receiver waits: looking, if `can_spin`, or sleeping, if
    `can_sleep`; None is as the peer does when nothing is said. `senders` and `receivers` are how many there are of
    each; more than one only where the adapter `can_fan_in` or `can_fan_out`."""

    name = ""
    can_spin = False
    can_sleep = True
    can_fan_in = False
    can_fan_out = False
    fan_in_largest_bytes = 1 << 62
    batches = False
    """Another way to call a peer that is there already: takes part in throughput alone."""
    drops = False
    """A sender cannot be told to wait: takes part in round trips, and in throughput where messages may be lost."""
    smallest_bytes, largest_bytes = 0, 1 << 62

    def __init__(
        self, directory: str, size: int, spinning: bool | None = None, senders: int = 1, receivers: int = 1
    ) -> None:
        self.directory, self.size, self.spinning = directory, size, spinning
        self.senders, self.receivers = senders, receivers

    def sender(self, lane: int, index: int = 0) -> AbstractContextManager[pair.Send]:
        """`index`: which of the senders this is."""
        raise NotImplementedError

    def receiver(self, lane: int, index: int = 0) -> AbstractContextManager[pair.Receive]:
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
    "eclipse-zenoh": "zenoh_shm",
    "msgq-ipc": "msgq_ipc",
}


def load() -> tuple[list[type[Peer]], dict[str, str]]:
    """The adapters whose package is here, and why the others are absent."""
    there: list[type[Peer]] = []
    absent = {"horus-robotics": "carries its own types and JSON values, not bytes: it takes part in the typed cells"}
    for package, module in MODULES.items():
        try:
            found: Any = import_module(f"bench.peers.{module}")
        except ImportError as error:
            absent[package] = str(error)
            continue
        there += found.PEERS
    return there, absent
