"""How long other processes stop when a process that blocks them is killed, in milliseconds.

*Writer*: killed in the middle of a message, while another writer of the same topic waits for its turn. *Reader*: killed
while it holds what the writer waits to write over. The survivor notes when its call returns, the parent when it killed.
What the kernel takes to end a process, whoever waits for it, is the *limit*: a survivor that sleeps until it is told
that the victim is dead. A peer takes part where it can get into the same situation (iceoryx2 cannot: its publisher
returns when a queue is full); one whose survivor is still waiting after GIVE_UP_S fails with that as the reason, which
is the figure.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ringmain as rm
from bench.harness import Cell
from bench.limits import PREFIX
from bench.pair import PATIENCE_S, Wrong
from bench.versus import in_directory

GIVE_UP_S = 3.0
KILLS = 3
"""Of a sample: those who wait look every 10 ms, so one says little."""
SETTLE_S = 0.05
"""For the survivor to be in its call; it says so just before, and there is nothing else to wait for."""

Tell = Callable[[], None]
Victim = Callable[[str, Tell], None]
"""Blocks the others, reports it, and stays there."""
Survivor = Callable[[str, Tell], None]
"""Reports that it is about to wait, waits, and returns."""


def stay() -> None:
    time.sleep(PATIENCE_S)


def standstill_ms(victim: Victim, survivor: Survivor, after_kill: Callable[[str], None] = lambda _: None) -> float:
    context = multiprocessing.get_context("fork")

    def run(directory: str) -> float:
        in_the_way, begins = context.Event(), context.Event()
        ours, theirs = context.Pipe(duplex=False)

        def survive() -> None:
            survivor(directory, begins.set)
            theirs.send(time.monotonic())

        one = context.Process(target=victim, args=(directory, in_the_way.set), daemon=True)
        other = context.Process(target=survive, daemon=True)
        try:
            one.start()
            if not in_the_way.wait(PATIENCE_S):
                raise Wrong("the victim did not block the survivor")
            other.start()
            if not begins.wait(PATIENCE_S):
                raise Wrong("the survivor did not begin")
            time.sleep(SETTLE_S)
            if ours.poll(0):
                raise Wrong("the survivor did not have to wait")
            start = time.monotonic()
            os.kill(one.pid or 0, signal.SIGKILL)
            after_kill(directory)
            if not ours.poll(GIVE_UP_S):
                raise TimeoutError(f"still waiting after {GIVE_UP_S:.0f} s")
            return float(ours.recv() - start) * 1e3
        finally:
            for process in (one, other):
                if process.pid:
                    process.kill()
                    process.join()

    return statistics.median(in_directory(run) for _ in range(KILLS))


def writer_killed(budget_s: float) -> float:
    def victim(directory: str, tell: Tell) -> None:
        with rm.Publisher("turns", contract="bus") as pub, pub.reserve(4096) as buffer:
            buffer[:5] = b"never"
            tell()
            stay()

    def survivor(directory: str, tell: Tell) -> None:
        with rm.Subscriber("turns") as sub, rm.Publisher("turns") as pub:
            tell()
            pub.send(b"whole", timeout=GIVE_UP_S)
            if sub.recv(GIVE_UP_S) != b"whole":
                raise Wrong("half a message was seen")

    return standstill_ms(victim, survivor)


def reader_killed(budget_s: float) -> float:
    def victim(directory: str, tell: Tell) -> None:
        with rm.Publisher("kept", contract="reliable", capacity=1 << 16), rm.Subscriber("kept"):
            tell()
            stay()

    def survivor(directory: str, tell: Tell) -> None:
        with rm.Publisher("kept") as pub:
            while True:
                try:
                    pub.send(bytes(4096), timeout=0)
                except rm.Full:
                    break
            tell()
            pub.send(bytes(4096), timeout=GIVE_UP_S)

    return standstill_ms(victim, survivor)


def death_seen(budget_s: float) -> float:
    """Of a process that has as much to let go as the victims above."""

    def victim(directory: str, tell: Tell) -> None:
        with rm.Publisher("kept", contract="reliable", capacity=1 << 16), rm.Subscriber("kept"):
            Path(directory, "victim").write_text(str(os.getpid()))
            tell()
            stay()

    def survivor(directory: str, tell: Tell) -> None:
        poll = select.poll()
        poll.register(os.pidfd_open(int(Path(directory, "victim").read_text())), select.POLLIN)
        tell()
        poll.poll(GIVE_UP_S * 1000)

    return standstill_ms(victim, survivor)


def queue_reader_killed(budget_s: float) -> float:
    """multiprocessing.Queue: the reader that waits has the lock that readers share."""
    queue: Any = multiprocessing.get_context("fork").Queue()

    def victim(directory: str, tell: Tell) -> None:
        tell()
        queue.get()

    def survivor(directory: str, tell: Tell) -> None:
        tell()
        queue.get()

    return standstill_ms(victim, survivor, lambda _: queue.put(b"whole"))


def zmq_reader_killed(budget_s: float) -> float:
    """XPUB that was told not to drop, and a subscriber that does not read."""
    import zmq

    def victim(directory: str, tell: Tell) -> None:
        with zmq.Context() as context, context.socket(zmq.SUB) as one:
            one.setsockopt(zmq.SUBSCRIBE, b"")
            one.connect(f"ipc://{directory}/zmq")
            tell()
            stay()

    def survivor(directory: str, tell: Tell) -> None:
        with zmq.Context() as context, context.socket(zmq.XPUB) as one:
            one.setsockopt(zmq.LINGER, 0)
            one.setsockopt(zmq.XPUB_NODROP, 1)
            one.bind(f"ipc://{directory}/zmq")
            if not one.poll(int(PATIENCE_S * 1000)):
                raise Wrong("no subscription came")
            one.recv()
            full_since = time.monotonic()
            while time.monotonic() - full_since < 0.2:  # the kernel's buffers and the reader's fill up behind its own
                try:
                    one.send(bytes(65536), zmq.NOBLOCK)
                    full_since = time.monotonic()
                except zmq.Again:
                    time.sleep(0.01)
            tell()
            one.send(bytes(65536))

    return standstill_ms(victim, survivor)


def recovery_cells() -> list[Cell]:
    made = [
        ("writer killed in mid-message | ringmain", writer_killed, "ringmain"),
        ("blocking reader killed | ringmain", reader_killed, "ringmain"),
        ("blocking reader killed | multiprocessing.Queue", queue_reader_killed, "multiprocessing"),
        ("blocking reader killed | pyzmq PUB/SUB", zmq_reader_killed, "zmq"),
    ]
    return [
        *(Cell(f"standstill, {name}", "ms", run) for name, run, package in made if find_spec(package)),
        Cell(f"{PREFIX}standstill", "ms", death_seen),
    ]
