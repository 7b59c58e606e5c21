"""How soon those who wait go on, whatever they wait for, and however: after a death, and after a stop.

    RINGMAIN_LAB=1 python tests/lab/survivors.py                     every case five times; a minute or two
    RINGMAIN_LAB=1 python tests/lab/survivors.py --runs 100 --by turn --way asend

A process is in the way of another: it has the turn, holds a message, has the roster locked, or has sent a message and
has not rung. The other waits in each way there is: each call, asyncio, `wait`, a descriptor, a second thread, each
`spin`. Then the first is killed; or it was stopped, and goes on. What is measured is the time from then until the other
has gone on. Exits with 1 if that was more than 100 ms; or 20 ms, with `--quiet`, where nothing else runs.

Where a process was stopped after it had sent and before it rang, the others may find the message before it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import measured
from recovery import PATIENCE_S, Actor
from ways import MESSAGE, SPINS, WAYS

import ringmain as rm
from bench import bars
from ringmain.testing import die_at, stop_at

BAR = "survivors: until a waiting process has gone on, ms"
QUIET_BAR = "survivors: until a waiting process has gone on where nothing else runs, ms"
QUIET_ROSTER_BAR = "survivors: until one that waits for the roster has gone on where nothing else runs, ms"
BEFORE_S = 0.03
NOT_RUNG, ROSTER = "publish: turn given back, bell not rung", "join: roster locked"
Say = Callable[[float], None]
Sending, Receiving = Callable[[rm.Publisher, float | None], object], Callable[[rm.Subscriber[bytes]], object]


@dataclass(frozen=True)
class Case:
    by: str
    contract: str
    way: str
    spin: float | None = None
    thread: bool = False
    cause: str = "killed"

    def __str__(self) -> str:
        spin = "" if self.spin is None else f", spin={self.spin:g}"
        thread = ", in a second thread" if self.thread else ""
        return f"{self.by}, {self.contract}, {self.way}{spin}{thread}, {self.cause}"


# --------------------------------------------------------------------------------------------- who is in the way


def when_told() -> None:
    """Until SIGUSR1, also one that came while this process was stopped."""
    signal.sigwait([signal.SIGUSR1])


def has_the_turn(case: Case, say: Say) -> None:
    with rm.Publisher("t", contract=case.contract) as pub, pub.reserve(8):  # type: ignore[arg-type]
        say(0)
        when_told()
    signal.pause()


def holds(case: Case, say: Say) -> None:
    """A reader of `reliable` that does not read, and one of `bus` that has borrowed."""
    with (
        rm.Publisher("t", contract=case.contract, capacity=4096) as pub,  # type: ignore[arg-type]
        rm.Subscriber("t") as sub,
    ):
        sub.try_recv()
        pub.send(bytes(2000))
        lease = sub.borrow() if case.contract == "bus" else None
        say(0)
        when_told()
        if lease is not None:
            lease.release()
        while True:
            sub.recv()


def has_locked_the_roster(case: Case, say: Say) -> None:
    os.environ.update(stop_at(ROSTER, 2))
    with rm.Publisher("t", contract=case.contract), rm.Subscriber("t") as sub:  # type: ignore[arg-type]
        sub.try_recv()
        signal.pause()


def has_not_rung(case: Case, say: Say) -> None:
    os.environ.update(die_at(NOT_RUNG) if case.cause == "killed" else stop_at(NOT_RUNG))
    with rm.Publisher("t", contract=case.contract) as pub:  # type: ignore[arg-type]
        say(0)
        when_told()
        pub.send(MESSAGE)
        signal.pause()


OBSTACLES = {"turn": has_the_turn, "hold": holds, "roster": has_locked_the_roster, "message": has_not_rung}


# ------------------------------------------------------------------------------------------------- who waits


def _fileno(sub: rm.Subscriber[bytes]) -> object:
    while (data := sub.try_recv()) is None:
        select.select([sub.fileno()], [], [])
    return data


RECEIVING: dict[str, Receiving] = {
    "recv": lambda sub: sub.recv(),
    "recv_message": lambda sub: sub.recv_message(),
    "recv_messages": lambda sub: sub.recv_messages(8, timeout=None),
    "recv_many": lambda sub: sub.recv_many(8, timeout=None),
    "recv_batch": lambda sub: sub.recv_batch(8, timeout=None),
    "recv_into": lambda sub: sub.recv_into(bytearray(64)),
    "borrow": lambda sub: sub.borrow().release(),
    "iteration": lambda sub: next(iter(sub)),
    "wait": lambda sub: rm.wait([sub]),
    "arecv": lambda sub: asyncio.run(sub.arecv()),
    "async for": lambda sub: asyncio.run(anext(aiter(sub))),
    "fileno": _fileno,
}
JOINING: dict[str, Callable[[Case], object]] = {
    "open a publisher": lambda case: rm.Publisher("t", contract=case.contract),  # type: ignore[arg-type]
    "open a subscriber, which receives": lambda case: rm.Subscriber("t").try_recv(),
}


def fill(pub: rm.Publisher) -> None:
    """Until only the hold is in the way of the next message."""
    for data in (bytes(500), MESSAGE):
        with suppress(rm.Full):
            for _ in range(1000):
                pub.send(data, timeout=0)


def prepared(case: Case) -> Callable[[], object]:
    """Opens what it needs, and gives the call that has to wait."""
    if case.by == "roster":
        return lambda: JOINING[case.way](case)
    if case.by == "message":
        sub = rm.Subscriber("t", spin=case.spin)
        sub.try_recv()
        return lambda: RECEIVING[case.way](sub)
    pub = rm.Publisher("t", spin=case.spin)
    if case.by == "hold":
        fill(pub)
    return lambda: WAYS[case.way](pub, None)


def survive(case: Case, say: Say) -> None:
    call = prepared(case)
    say(0)
    if case.thread:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    else:
        call()
    say(time.monotonic())


# ----------------------------------------------------------------------------------------------- one scenario


def stopped(pid: int) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() > end_s:
            raise RuntimeError("it did not stop")
        time.sleep(0.001)


def late_s(case: Case) -> float:
    """From the death, or from SIGCONT, until the survivor has gone on. Infinite: it did not within five seconds."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # for when_told()
    obstacle = Actor(lambda say: OBSTACLES[case.by](case, say))
    actors = [obstacle]
    try:
        if case.by == "roster":
            stopped(obstacle.pid)
        else:
            obstacle.number()
            if case.cause == "stopped" and case.by != "message":
                os.kill(obstacle.pid, signal.SIGSTOP)
                stopped(obstacle.pid)
        survivor = Actor(lambda say: survive(case, say))
        actors.append(survivor)
        survivor.number()
        time.sleep(BEFORE_S)
        if survivor.has_said():
            raise RuntimeError(f"{case}: it did not have to wait")
        if case.by == "message" and case.cause == "stopped":
            os.kill(obstacle.pid, signal.SIGUSR1)
            stopped(obstacle.pid)
        began_s = time.monotonic()
        if case.by == "message" and case.cause == "killed":  # it dies of its own
            os.kill(obstacle.pid, signal.SIGUSR1)
        elif case.cause == "killed":
            os.kill(obstacle.pid, signal.SIGKILL)
        else:
            os.kill(obstacle.pid, signal.SIGUSR1)
            os.kill(obstacle.pid, signal.SIGCONT)
        return max(0.0, survivor.number() - began_s)
    finally:
        for actor in actors:
            actor.end()


def cases() -> list[Case]:
    return [*writers(), *readers(), *joiners()]


def writers() -> Iterator[Case]:
    for by, contract, way, spin, cause in itertools.product(
        ("turn", "hold"), ("bus", "reliable"), WAYS, SPINS, ("killed", "stopped")
    ):
        yield Case(by, contract, way, spin, cause=cause)
    for by, contract in itertools.product(("turn", "hold"), ("bus", "reliable")):
        yield Case(by, contract, "send", thread=True)


def readers() -> Iterator[Case]:
    for way, spin, cause in itertools.product(RECEIVING, SPINS, ("killed", "stopped")):
        yield Case("message", "broadcast", way, spin, cause=cause)
    for contract in ("pipe", "bus", "reliable", "work"):
        yield Case("message", contract, "recv")
    for way in ("recv", "wait", "arecv", "fileno"):
        yield Case("message", "broadcast", way, thread=True)


def joiners() -> Iterator[Case]:
    for way, cause in itertools.product(JOINING, ("killed", "stopped")):
        yield Case("roster", "bus", way, cause=cause)


def bar_of(case: Case, quiet: bool) -> str:
    """Its name in bench/bars.py. The roster's lock has no bell: it is looked at every 40 ms."""
    return BAR if not quiet else QUIET_ROSTER_BAR if case.by == "roster" else QUIET_BAR


def measure(case: Case, runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        with measured.runtime_directory("survivors"):  # this process opens nothing, or its children could not be armed
            found.append(late_s(case))
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="of each case")
    parser.add_argument("--by", choices=OBSTACLES, action="append", help="only what is blocked by these")
    parser.add_argument("--way", action="append", help="only these ways to wait")
    parser.add_argument("--sample", type=int, default=0, help="only so many cases, chosen at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="cases at once")
    parser.add_argument("--quiet", action="store_true", help="nothing else runs here: the stricter bars")
    measured.add_option(parser)
    args = parser.parse_args()
    if not os.environ.get("RINGMAIN_LAB"):
        parser.error("set RINGMAIN_LAB=1: the crash points are in the lab build only")
    chosen = [case for case in cases() if case.by in (args.by or OBSTACLES) and case.way in (args.way or [case.way])]
    if args.sample:
        chosen = random.Random(args.seed).sample(chosen, min(args.sample, len(chosen)))
    print(f"{'ms':60}   median     most")
    made = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for case, found in zip(chosen, pool.map(measure, chosen, itertools.repeat(args.runs)), strict=True):
            print(f"{case!s:60} {1e3 * found[len(found) // 2]:8.1f} {1e3 * found[-1]:8.1f}", flush=True)
            made.append(bars.quiet(bar_of(case, args.quiet), 1e3 * found[-1], str(case)))
    return measured.conclude(made, args.json)


if __name__ == "__main__":
    sys.exit(main())
