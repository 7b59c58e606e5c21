"""Millions of wake-ups: none may be lost, and none late while nothing else runs.

    python tests/lab/wakeups.py                      seven pairs of processes for fifteen seconds
    python tests/lab/wakeups.py --pairs 1 --seconds 1
    python tests/lab/wakeups.py --hunt               lost wake-ups are hunted, with `membarrier` and without

Two processes that never look twice (`spin=0`) send to each other, or wait for each other's room, as fast as they can.
So each call sleeps until the other side wakes it, and none has a reason to take 5 ms. What is counted is how often a
process slept. In a *hunt* each side pauses a few random microseconds first, so that a message is sent at every moment
of the other's falling asleep; and on one side or both a filter of system calls refuses `membarrier`.

A call that took a second is a lost wake-up. Exits with 1 if one was lost, or one was late: the latter is so only where
each process has a core to itself.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import json
import mmap
import os
import random
import resource
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import child_processes
import measured
import system_calls

import ringmain as rm
from bench import bars
from bench.placement import machine

LATE_S = 0.005
PATIENCE_S = 2.0
PAUSE_S = 6e-6
"""About as long as it takes to fall asleep."""
MESSAGE = bytes(32)

Call = Callable[[], bool]
"""One call that sleeps until it is woken. False: it gave up."""


@dataclass
class Counts:
    slept: int = 0
    calls: int = 0
    lost: int = 0
    late: int = 0
    worst_s: float = 0.0

    def add(self, other: Counts) -> None:
        self.slept += other.slept
        self.calls += other.calls
        self.lost += other.lost
        self.late += other.late
        self.worst_s = max(self.worst_s, other.worst_s)


@dataclass(frozen=True)
class Pair:
    name: str
    ends: tuple[Callable[[int], Call], Callable[[int], Call]]
    """Given the number of the pair, what opens each end."""
    refused: tuple[bool, bool] = (False, False)
    """Whether this end has no `membarrier`."""


# ------------------------------------------------------------------------------------------------- ways to wait


def receiver(way: str, sub: rm.Subscriber[bytes]) -> Call:
    def recv() -> bool:
        try:
            sub.recv(PATIENCE_S)
        except rm.Timeout:
            return False
        return True

    def borrow() -> bool:
        try:
            with sub.borrow(PATIENCE_S):
                return True
        except rm.Timeout:
            return False

    def wait() -> bool:
        while sub.try_recv() is None:
            if not rm.wait([sub], PATIENCE_S):
                return False
        return True

    loop = asyncio.new_event_loop() if way == "arecv" else None

    def arecv() -> bool:
        assert loop is not None
        try:
            loop.run_until_complete(sub.arecv(PATIENCE_S))
        except rm.Timeout:
            return False
        return True

    def fileno() -> bool:
        while sub.try_recv() is None:
            if not select.select([sub.fileno()], [], [], PATIENCE_S)[0]:
                return False
        return True

    return {"recv": recv, "borrow": borrow, "wait": wait, "arecv": arecv, "fileno": fileno}[way]


def there_and_back(way: str, contract: str) -> tuple[Callable[[int], Call], Callable[[int], Call]]:
    """One end sends and waits for the answer; the other waits and answers."""

    def end(mine: str, other: str, first: bool) -> Callable[[int], Call]:
        def open_end(number: int) -> Call:
            pub = rm.Publisher(f"{mine}/{number}", contract=contract, spin=0)  # type: ignore[arg-type]
            sub = rm.Subscriber(f"{other}/{number}", spin=0)
            if contract != "pipe":
                pub.wait_for_readers(1, timeout=30)
            receive = receiver(way, sub)

            def begin() -> bool:
                pub.send(MESSAGE)
                return receive()

            def answer() -> bool:
                there = receive()
                pub.send(MESSAGE)
                return there

            return begin if first else answer

        return open_end

    return end("there", "back", True), end("back", "there", False)


def room(number: int) -> Call:
    """Sends into a pipe of two messages: it waits for the hold to move."""
    pub = rm.Publisher(f"full/{number}", contract="pipe", capacity=4096, spin=0)
    message = bytes(1900)

    def send() -> bool:
        try:
            pub.send(message, timeout=PATIENCE_S)
        except rm.Full:
            return False
        return True

    return send


def from_the_room(number: int) -> Call:
    sub = rm.Subscriber(f"full/{number}", spin=0)
    return receiver("recv", sub)


def turn(number: int) -> Call:
    """Two writers of one topic, each a while in the middle of a message: they wait for the turn."""
    pub = rm.Publisher(f"turn/{number}", contract="bus", spin=0)

    def send() -> bool:
        try:
            with pub.reserve(len(MESSAGE), timeout=PATIENCE_S):
                pause(PAUSE_S)
        except rm.Full:
            return False
        return True

    return send


def kernels() -> tuple[Callable[[int], Call], Callable[[int], Call]]:
    """Two os.pipe and no ringmain: what this machine does to a process that sleeps."""
    there, back = os.pipe(), os.pipe()

    def end(begins: bool) -> Callable[[int], Call]:
        from_end, to_end = (back[0], there[1]) if begins else (there[0], back[1])

        def call() -> bool:
            if begins:
                os.write(to_end, MESSAGE)
            woken = bool(select.select([from_end], [], [], PATIENCE_S)[0])
            if woken:
                os.read(from_end, len(MESSAGE))
            if not begins:
                os.write(to_end, MESSAGE)
            return woken

        return lambda number: call

    return end(True), end(False)


KERNEL = Pair("os.pipe, for comparison", kernels())
PAIRS = (
    Pair("recv, broadcast", there_and_back("recv", "broadcast")),
    Pair("fileno", there_and_back("fileno", "reliable")),
    Pair("borrow, bus", there_and_back("borrow", "bus")),
    Pair("wait", there_and_back("wait", "broadcast")),
    Pair("arecv", there_and_back("arecv", "broadcast")),
    Pair("room in a pipe", (room, from_the_room)),
    KERNEL,
)
HUNTS = (
    Pair("recv", there_and_back("recv", "broadcast")),
    Pair("recv, no membarrier", there_and_back("recv", "broadcast"), (True, True)),
    Pair("recv, membarrier on one side", there_and_back("recv", "reliable"), (True, False)),
    Pair("room, no membarrier", (room, from_the_room), (True, True)),
    Pair("room, membarrier with the writer", (room, from_the_room), (False, True)),
    Pair("turn, membarrier on one side", (turn, turn), (True, False)),
    KERNEL,
)


# --------------------------------------------------------------------------------------------------- a process


def pause(seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        pass


def work(call: Call, end_s: float, hunt: bool, seed: int) -> Counts:
    """Calls until the end. The last is cut off by the other's leaving, or by SIGINT, and does not count."""
    counts, chance, clock = Counts(), random.Random(seed), time.monotonic
    before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    with suppress(KeyboardInterrupt):
        began_s = clock()
        while began_s < end_s:
            if hunt:
                pause(chance.random() * PAUSE_S)
                began_s = clock()
            woken = call()
            took_s = clock() - began_s
            began_s += took_s
            if began_s >= end_s:
                break
            counts.calls += 1
            counts.worst_s = max(counts.worst_s, took_s)
            if not woken or took_s >= PATIENCE_S / 2:
                counts.lost += 1
            elif took_s > LATE_S:
                counts.late += 1
    counts.slept = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before
    return counts


def process(pair: Pair, which: int, number: int, begins: mmap.mmap, seconds: float, hunt: bool, end: int) -> Counts:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if pair.refused[which]:
        system_calls.refuse(["membarrier"], errno.ENOSYS)
    call = pair.ends[which](number)
    os.write(end, b"\n")
    while not (begin_s := struct.unpack("d", begins[:8])[0]):
        time.sleep(0.001)
    time.sleep(max(0.0, begin_s - time.monotonic()))
    found = work(call, begin_s + seconds, hunt, 2 * number + which)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return found


def run(pairs: list[Pair], seconds: float, hunt: bool) -> list[Counts]:
    """All pairs at once; of each what both its processes counted."""
    far = next((one.cpus for one in machine().placements if one.name == "far"), ())
    begins = mmap.mmap(-1, 8)
    children = []
    for number, pair in enumerate(pairs):
        for which in (0, 1):
            ours, theirs = os.pipe()

            def work(number: int = number, pair: Pair = pair, which: int = which, to: int = theirs) -> None:
                if len(far) >= 2 * len(pairs):
                    os.sched_setaffinity(0, {far[2 * number + which]})
                found = process(pair, which, number, begins, seconds, hunt, to)
                os.write(to, json.dumps(vars(found)).encode())

            pid = child_processes.run(work)
            os.close(theirs)
            children.append((number, pid, ours))
    return collected(pairs, children, begins, seconds)


def collected(
    pairs: list[Pair], children: list[tuple[int, int, int]], begins: mmap.mmap, seconds: float
) -> list[Counts]:
    found = [Counts() for _ in pairs]
    left = {end: (number, pid) for number, pid, end in children}
    deadline_s = time.monotonic() + seconds + 60
    try:
        for number, _, end in children:
            if os.read(end, 1) != b"\n":
                raise RuntimeError(f"a process of {pairs[number].name!r} failed")
        begins[:8] = struct.pack("d", time.monotonic() + 0.05)
        while left:
            ended = select.select([*left], [], [], max(0.0, deadline_s - time.monotonic()))[0]
            if not ended:
                raise RuntimeError(f"it hangs: {sorted({pairs[number].name for number, _ in left.values()})}")
            for end in ended:
                number, _ = left.pop(end)
                text = os.read(end, 4096)
                if not text:
                    raise RuntimeError(f"a process of {pairs[number].name!r} failed")
                found[number].add(Counts(**json.loads(text)))
            time.sleep(0.1)
            for number, pid in left.values():  # nobody wakes the other of the pair any more
                if found[number].calls:
                    os.kill(pid, signal.SIGINT)
    finally:
        for _, pid, end in children:
            child_processes.kill(pid)
            os.close(end)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--pairs", type=int, default=len(PAIRS), help="only the first so many")
    parser.add_argument("--hunt", action="store_true", help="hunt for lost wake-ups")
    measured.add_option(parser)
    options = parser.parse_args()
    child_processes.clean_up_on_sigterm()
    part, all_pairs, not_run = ("hunts", HUNTS, []) if options.hunt else ("wakeups", PAIRS, [])
    pairs = list(all_pairs[: options.pairs])
    if any(any(pair.refused) for pair in pairs) and not system_calls.can_refuse():
        not_run.append("hunts without membarrier: this kernel does not filter system calls")
        pairs = [pair for pair in pairs if not any(pair.refused)]
    with measured.runtime_directory("wakeups"):
        found = run(pairs, options.seconds, options.hunt)
    made: list[bars.Bar] = []
    for pair, counts in zip(pairs, found, strict=True):
        most = f"{1e3 * counts.worst_s:.2f} ms at most"
        print(f"{pair.name:34} {counts.slept:10,} sleeps in {counts.calls:10,} calls, {most}, {counts.late} late")
        if pair is KERNEL:
            continue
        made.append(bars.quiet(f"{part}: lost", counts.lost, pair.name))
        made.append(bars.quiet(f"{part}: later than 5 ms", counts.late, pair.name))
    print(f"{sum(counts.slept for counts in found):,} wake-ups")
    return measured.conclude(made, options.json, not_run)


if __name__ == "__main__":
    sys.exit(main())
