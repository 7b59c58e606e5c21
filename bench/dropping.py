"""The cells in which messages may be lost: a sender that never waits, and a receiver that gets what it can.

The figure is what arrived, in messages a second, from the first send to the last receipt; the cell after it is how many
of a hundred were lost. One message in a few is looked at, and must begin like one of those that were sent.
"""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

from bench import pair
from bench.harness import Cell
from bench.peers import Peer
from bench.versus import in_directory

SMALL = 32
SIZES = {"32 B": SMALL, "64 KB": 65536}


@dataclass(frozen=True)
class Arrived:
    messages_per_s: float
    sent_per_s: float
    lost_percent: float


def one_way(peer: Peer, messages: list[bytes], count: int) -> Arrived:
    end = bytes(len(messages[0]))  # the pool's are random
    step = pair.STEP if len(end) <= 1024 else 4  # twice as many are less than any ring here
    over = mmap.mmap(-1, mmap.PAGESIZE)  # shared with both: the receiver has seen the end

    def sending(ready: pair.Ready) -> tuple[float, float]:
        with peer.sender(0) as send:
            ready()
            start = time.perf_counter()
            pair.produce(send, messages, count)
            sent = time.perf_counter()
            deadline = time.monotonic() + pair.PATIENCE_S
            while not over[0] and time.monotonic() < deadline:
                for _ in repeat(None, 2 * step):
                    send(end)
                time.sleep(0.002)  # a receiver that is behind reads the rest before it is overtaken
            ready()
            return start, sent

    def receiving(ready: pair.Ready) -> tuple[float, int]:
        with peer.receiver(0) as receive:
            ready()
            received, known = 0, {message[:SMALL] for message in messages}
            while True:
                for _ in repeat(None, step - 1):
                    receive()
                data = bytes(memoryview(receive())[:SMALL])
                if data == end[:SMALL]:  # the step in which it comes is not counted
                    break
                if data not in known:
                    raise pair.Wrong("a message is not one that was sent")
                received += step
            finished = time.perf_counter()
            over[0] = 1
            ready()
            return finished, received

    (start, sent), (finished, received) = pair.run_all([sending, receiving])
    return Arrived(received / (finished - start), count / (sent - start), 100 * max(0.0, 1 - received / count))


def sample_of(kind: type[Peer], size: int) -> Callable[[float], Arrived]:
    messages = pair.pool(size)
    counts: list[int] = []

    def once(count: int) -> Arrived:
        found: list[Arrived] = []
        in_directory(lambda directory: found.append(one_way(kind(directory, size), messages, count)) or 0.0)
        return found[0]

    def sample(budget_s: float) -> Arrived:
        if not counts:
            few = len(messages) * 64
            counts.append(max(few, int(once(few).sent_per_s * budget_s) // len(messages) * len(messages)))
        return once(counts[0])

    return sample


def dropping_cells(kinds: Sequence[type[Peer]]) -> list[Cell]:
    made = []
    for label, size in SIZES.items():
        for kind in kinds:
            if not kind.drops:
                continue
            sample, latest = sample_of(kind, size), [float("nan")]

            def rate(
                budget_s: float, sample: Callable[[float], Arrived] = sample, latest: list[float] = latest
            ) -> float:
                found = sample(budget_s)
                latest[0] = found.lost_percent
                return found.messages_per_s

            name = f"{label}, loss allowed | {kind.name}"
            made.append(Cell(name, "messages/s", rate, True, False))
            lost = f"{label}, lost | {kind.name}"
            made.append(Cell(lost, "%", lambda budget_s, latest=latest: latest[0], True, follows=True))
    return made
