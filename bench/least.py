"""The least that a message of 32 bytes costs Python and two processes: `native/least.cpp`, built on demand.

A queue for one writer and one reader that stamps, numbers and copies a message, gives it as `bytes`, and does nothing
that could be left out. What no library can be ahead of by much is held against it, in the same run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from bench import cells, pair, work
from bench.floors import LEAST
from bench.peers import Peer

SIZE = cells.SMALL


def load() -> Any:
    """The module, with a queue that processes forked from now on share."""
    if "least" not in sys.modules:
        spec = spec_from_file_location("least", LEAST)
        assert spec
        assert spec.loader
        sys.modules["least"] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules["least"])
    sys.modules["least"].make()
    return sys.modules["least"]


class Least(Peer):
    """One writer and one reader, in the place of a library. Only 32 bytes."""

    name = "limit"
    can_spin = True

    def __init__(self, directory: str, size: int, spinning: bool | None = None) -> None:
        super().__init__(directory, size, spinning)
        self.queue = load()

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        self.queue.sends(lane)
        yield self.queue.send_waking if self.spinning is False else self.queue.send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        self.queue.receives(lane)
        yield self.queue.recv_asleep if self.spinning is False else self.queue.recv


class LeastWork(work.Sharing):
    """Several writers and workers, likewise."""

    name = "limit"
    in_order, many = False, True

    def __init__(self, directory: str, senders: int) -> None:
        super().__init__(directory, senders)
        self.queue = load()

    @contextmanager
    def sender(self, index: int) -> Iterator[Callable[[list[bytes]], Any]]:
        yield self.queue.put_many

    @contextmanager
    def worker(self, index: int) -> Iterator[Callable[[], Any]]:
        self.queue.works(index)
        take_many = self.queue.take_many
        yield lambda: take_many(work.BATCH)


def send_and_recv(budget_s: float) -> float:
    queue = load()
    return cells.one_by_one(queue.send, queue.recv, budget_s)


def batches(budget_s: float) -> float:
    queue = load()
    return cells.in_batches(queue.send_many, queue.recv_many, budget_s)
