"""How soon those who wait go on, whatever they wait for, and however: after a death, and after a stop.

    RINGMAIN_LAB=1 python tests/lab/survivors.py                     every case five times; a minute or two
    RINGMAIN_LAB=1 python tests/lab/survivors.py --runs 100 --by turn --way asend

A process is in the way of another (obstacles.py): it has the turn, holds a message or a buffer, has the roster locked,
has a request, or has sent a message, a frame, a request or a reply and has not rung. The other waits in each way there
is (waiting.py): each call, asyncio, `wait`, a descriptor, a second thread, each `spin`. Then the first is killed; or it
was stopped, and goes on. What is measured is the time from then until the other has gone on. Exits with 1 if that was
more than 100 ms; or 20 ms, with `--quiet`, where nothing else runs (60 for the roster, 120 for a server that died with
a request).

Where a process was stopped after it had sent and before it rang, the others may find the message before it goes on.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor

import measured
from obstacles import OBSTACLES, STOPS_ITSELF, Case, Say, joins_too, serves
from recovery import PATIENCE_S, Actor
from waiting import (
    BUFFERS_FREE,
    BY_SUBSCRIBER,
    FRAMES,
    FROM_A_QUEUE,
    JOINING,
    OF_A_QUEUE,
    READERS,
    RECEIVING,
    REQUESTING,
    SENDING,
    SERVING,
    SINCE,
    WAITING,
)
from ways import SPINS, WAYS

from bench import bars

BAR = "survivors: until a waiting process has gone on, ms"
QUIET_BAR = "survivors: until a waiting process has gone on where nothing else runs, ms"
SERVER_BAR = "survivors: until a caller knows that the server with its request has died, ms"
QUIET_ROSTER_BAR = "survivors: until one that waits for the roster has gone on where nothing else runs, ms"
BEFORE_S = 0.03


def survive(case: Case, say: Say) -> None:
    call = WAITING[case.by][case.way](case)
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


def died_s(pid: int) -> float:
    """When it has died. On a busy machine a process that is killed takes its time, which is not the survivor's."""
    process = os.pidfd_open(pid)
    if not select.select([process], [], [], PATIENCE_S)[0]:
        raise RuntimeError("it did not die")
    os.close(process)
    return time.monotonic()


def late_s(case: Case) -> float:
    """From the death, or from SIGCONT, until the survivor has gone on. Infinite: it did not within five seconds."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])  # for when_told()
    actors: list[Actor] = []

    def start(act: Callable[[Case, Say], None]) -> Actor:
        actors.append(Actor(lambda say: act(case, say)))
        return actors[-1]

    try:
        if case.by == "request turn":
            start(serves).number()
        obstacle = start(OBSTACLES[case.by])
        if case.by == "roster":
            stopped(obstacle.pid)
        else:
            obstacle.number()
        survivor = start(survive)
        survivor.number()
        if case.by in ("server", "reply"):
            obstacle.number()  # it has the request
        if case.by == "reader":
            os.kill(obstacle.pid, signal.SIGUSR1)
            stopped(obstacle.pid)
            if case.cause == "killed":
                start(joins_too).number()
        elif case.cause == "stopped" and case.by not in (*STOPS_ITSELF, "roster"):
            os.kill(obstacle.pid, signal.SIGSTOP)
            stopped(obstacle.pid)
        time.sleep(BEFORE_S)
        if survivor.has_said():
            raise RuntimeError(f"{case}: it did not have to wait")
        if case.by in STOPS_ITSELF and case.cause == "stopped":
            os.kill(obstacle.pid, signal.SIGUSR1)
            stopped(obstacle.pid)
        began_s = time.monotonic()
        if case.cause == "killed" and case.by in STOPS_ITSELF:  # it dies of its own
            os.kill(obstacle.pid, signal.SIGUSR1)
        elif case.cause == "killed":
            os.kill(obstacle.pid, signal.SIGKILL)
        else:
            os.kill(obstacle.pid, signal.SIGUSR1)
            os.kill(obstacle.pid, signal.SIGCONT)
        if case.cause == "killed":
            began_s = died_s(obstacle.pid)
        return max(0.0, survivor.number() - began_s)
    finally:
        for actor in actors:
            actor.end()


# -------------------------------------------------------------------------------------------------- all of them


def cases() -> list[Case]:
    return [*writers(), *readers(), *of_frames(), *of_requests(), *joiners()]


def each(by: str, contract: str, ways: Iterable[str], spins: Iterable[float | None] = (None,)) -> Iterator[Case]:
    for way, spin, cause in itertools.product(ways, spins, ("killed", "stopped")):
        yield Case(by, contract, way, spin, cause=cause)


def writers() -> Iterator[Case]:
    for by, contract in itertools.product(("turn", "hold"), ("bus", "reliable")):
        yield from each(by, contract, WAYS, SPINS)
        yield from each(by, contract, [way for way in SENDING if way not in WAYS])
        yield Case(by, contract, "send", thread=True)
        if contract == "reliable":
            yield from each(by, contract, OF_A_QUEUE)


def readers() -> Iterator[Case]:
    yield from each("message", "broadcast", BY_SUBSCRIBER, SPINS)
    yield from each("message", "broadcast", [way for way in RECEIVING if way not in BY_SUBSCRIBER])
    yield from each("message", "reliable", FROM_A_QUEUE)
    yield from each("message", "bus", SINCE)
    for contract in ("pipe", "bus", "reliable", "work"):
        yield Case("message", contract, "recv")
    for way in ("recv", "wait", "arecv", "fileno"):
        yield Case("message", "broadcast", way, thread=True)


def of_frames() -> Iterator[Case]:
    yield from each("frame", "frames", FRAMES)
    yield from each("buffers", "frames", BUFFERS_FREE)


def of_requests() -> Iterator[Case]:
    for by in ("server", "reply", "request turn"):
        yield from each(by, "service", REQUESTING)
    for way in REQUESTING:  # if the server dies, nobody makes room
        yield Case("request room", "service", way, cause="stopped")
    yield from each("request", "service", SERVING)


def joiners() -> Iterator[Case]:
    yield from each("roster", "bus", JOINING)
    yield from each("reader", "bus", READERS)


def bar_of(case: Case, quiet: bool) -> str:
    """Its name in bench/bars.py. The roster's lock has no bell: it is looked at every 40 ms. No bell rings either when
    a server has died with a request: its client looks after 10, 20, 40 and 80 ms, and then every 100."""
    if (case.by, case.cause) == ("server", "killed"):
        return SERVER_BAR
    waits_for_roster = case.by == "roster" or (case.by == "reader" and case.cause == "killed")
    return BAR if not quiet else QUIET_ROSTER_BAR if waits_for_roster else QUIET_BAR


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
    parser.add_argument("--sample", type=int, default=0, help="only so many of each obstacle, chosen at random")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="cases at once")
    parser.add_argument("--quiet", action="store_true", help="nothing else runs here: the stricter bars")
    measured.add_option(parser)
    args = parser.parse_args()
    if not os.environ.get("RINGMAIN_LAB"):
        parser.error("set RINGMAIN_LAB=1: the crash points are in the lab build only")
    chosen = [case for case in cases() if case.by in (args.by or OBSTACLES) and case.way in (args.way or [case.way])]
    if args.sample:
        of_each = [[case for case in chosen if case.by == by] for by in OBSTACLES]
        some = random.Random(args.seed)
        chosen = [case for those in of_each for case in some.sample(those, min(args.sample, len(those)))]
    print(f"{'ms':60}   median     most")
    made = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for case, found in zip(chosen, pool.map(measure, chosen, itertools.repeat(args.runs)), strict=True):
            print(f"{case!s:60} {1e3 * found[len(found) // 2]:8.1f} {1e3 * found[-1]:8.1f}", flush=True)
            made.append(bars.quiet(bar_of(case, args.quiet), 1e3 * found[-1], str(case)))
    return measured.conclude(made, args.json)


if __name__ == "__main__":
    sys.exit(main())
