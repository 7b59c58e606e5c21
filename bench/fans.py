"""One sender and three receivers, three senders and one receiver: several processes on few cores.

One → three: every receiver gets every message. A peer that has no such thing is given one queue a receiver, which its
sender fills in turn. Three → one: messages are told apart by their first bytes. The rate is that of messages sent, from
the first send to the last receipt. Before the first timed run of a cell, one short run in which every message is
compared and the order of every sender is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import repeat

from bench import pair
from bench.harness import Cell
from bench.peers import Peer
from bench.versus import in_directory

MANY = 3
SIZES = {"32 B": 32, "64 KB": 65536}


def one_to_many(peer: Peer, messages: list[bytes], count: int, whole: bool) -> float:
    def sending(ready: pair.Ready) -> float:
        with peer.sender(0) as send:
            ready()
            start = time.perf_counter()
            peer.produce(send, messages, count)
            ready()
            return start

    def receiving(index: int) -> pair.Job:
        def job(ready: pair.Ready) -> float:
            with peer.receiver(0, index) as receive:
                ready()
                if whole:
                    for number in range(count):
                        pair.check(receive(), messages, number)
                else:
                    peer.consume(receive, messages, count)
                end = time.perf_counter()
                ready()
                return end

        return job

    start, *ends = pair.run_all([sending, *(receiving(index) for index in range(peer.receivers))])
    return float(count / (max(ends) - start))


def _marked(size: int, sender: int) -> list[bytes]:
    """A pool of messages, each of which contains its sender and its number."""
    return [bytes([sender, number]) + data[2:] for number, data in enumerate(pair.pool(size, sender))]


def many_to_one(peer: Peer, size: int, count: int, whole: bool) -> float:
    pools = [_marked(size, sender) for sender in range(peer.senders)]
    length = len(pools[0])
    each = max(length, count // peer.senders // length * length)

    def sending(index: int) -> pair.Job:
        def job(ready: pair.Ready) -> float:
            with peer.sender(0, index) as send:
                ready()
                start = time.perf_counter()
                pair.produce(send, pools[index], each)
                ready()
                return start

        return job

    def look(data: bytes) -> tuple[int, int]:
        view = memoryview(data)
        sender, number = view[0], view[1]
        if sender >= peer.senders or number >= length or view != pools[sender][number]:
            raise pair.Wrong("a message is not one that was sent")
        return sender, number

    def receiving(ready: pair.Ready) -> float:
        with peer.receiver(0) as receive:
            ready()
            total, seen = each * peer.senders, [0] * peer.senders
            if whole:
                for _ in repeat(None, total):
                    sender, number = look(receive())
                    if number != seen[sender] % length:
                        raise pair.Wrong(f"message {seen[sender]} of sender {sender} is missing or out of order")
                    seen[sender] += 1
            else:
                done = 0
                while done < total:
                    few = min(pair.STEP, total - done)
                    for _ in repeat(None, few - 1):
                        receive()
                    look(receive())
                    done += few
            end = time.perf_counter()
            ready()
            return end

    *starts, end = pair.run_all([*(sending(index) for index in range(peer.senders)), receiving])
    return float(each * peer.senders / (end - min(starts)))


def sample_of(kind: type[Peer], size: int, out: bool) -> Callable[[float], float]:
    messages = pair.pool(size)
    counts: list[int] = []

    def once(count: int, whole: bool = False) -> float:
        def run(directory: str) -> float:
            peer = kind(directory, size, None, 1 if out else MANY, MANY if out else 1)
            if out:
                return one_to_many(peer, messages, count, whole)
            return many_to_one(peer, size, count, whole)

        return in_directory(run)

    def sample(budget_s: float) -> float:
        if not counts:
            few = len(messages) * (24 if size <= 1024 else 6)
            rate = once(few, whole=True)
            counts.append(max(few, int(rate * budget_s) // len(messages) * len(messages)))
        return once(counts[0])

    return sample


def fan_cells(kinds: Sequence[type[Peer]]) -> list[Cell]:
    made = []
    for way, out in (("one → three", True), ("three → one", False)):
        for label, size in SIZES.items():
            for kind in kinds:
                able = kind.can_fan_out if out else kind.can_fan_in and size <= kind.fan_in_largest_bytes
                if able and kind.smallest_bytes <= size <= kind.largest_bytes:
                    run = sample_of(kind, size, out)
                    name = f"{way}, {label} | {kind.name}"
                    made.append(Cell(name, "messages/s", run, True, False, processes=1 + MANY))
    return made
