"""Nobody starves: what share each of several writers, and each of several workers, gets in so many seconds.

    python tests/lab/fairness.py                 three and six writers, three and six workers, a second each
    python tests/lab/fairness.py --seconds 5

Writers of `bus` and `reliable` send as fast as they can, and workers of `work` take as fast as they can. Exits with 1
if one got more than twice as much as another, unless the machine is as uneven: beside the workers, as many processes of
C++ take numbers from one word. The bar holds only where each has a core to itself.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import child_processes
import measured

import ringmain as rm
from bench import bars
from bench.floors import LIMITS, build_limits, number_from

WRITERS = "fairness: the most of one writer / the least of one"
WORKERS = "fairness: the most of one worker / the least of one, beside 2 or the machine's own"
PROCESSES = (3, 6)
MESSAGE = bytes(32)
CAPACITY = 1 << 20


@contextmanager
def processes(acts: list[Callable[[], int]]) -> Iterator[list[int]]:
    """Each act in a process of its own, at once; gives the read ends of what they count."""
    pids, ends = [], []
    for act in acts:
        end, to = os.pipe()
        pid = child_processes.fork()
        if pid == 0:
            os.write(to, f"{act()}\n".encode())
            os._exit(0)
        os.close(to)
        pids.append(pid)
        ends.append(end)
    try:
        yield ends
    finally:
        for pid, end in zip(pids, ends, strict=True):
            child_processes.kill(pid)
            os.close(end)


def count_of(end: int) -> int:
    text = os.read(end, 32)
    if not text:
        raise RuntimeError("a process of the measurement failed")
    return int(text)


def writers(contract: str, count: int, seconds: float) -> list[int]:
    """How many messages each writer sent until the end."""
    begin = time.monotonic() + 0.3
    end = begin + seconds

    def send() -> int:
        sent = 0
        with rm.Publisher("f", contract=contract, capacity=CAPACITY) as pub:
            time.sleep(max(0.0, begin - time.monotonic()))
            while time.monotonic() < end:
                for _ in range(32):
                    pub.send(MESSAGE)
                sent += 32
        return sent

    def read() -> int:
        with rm.Subscriber("f") as sub:
            while time.monotonic() < end + 0.5:
                sub.recv_many(1000, timeout=0.1)
        return 0

    with rm.Publisher("f", contract=contract, capacity=CAPACITY), processes([read, *[send] * count]) as ends:
        return [count_of(end) for end in ends[1:]]


def workers(count: int, seconds: float) -> list[int]:
    """How many messages each worker took until the end."""
    begin = time.monotonic() + 0.3
    end = begin + seconds

    def work() -> int:
        done = 0
        with rm.Subscriber("f") as sub:
            while time.monotonic() < end:
                try:
                    sub.recv(timeout=0.05)
                    done += 1
                except rm.Timeout:
                    pass
        return done

    def send() -> int:
        with rm.Publisher("f") as pub:
            time.sleep(max(0.0, begin - time.monotonic()))
            while time.monotonic() < end:
                with suppress(rm.Full):
                    pub.send(MESSAGE, timeout=0.1)
        return 0

    with rm.Publisher("f", contract="work", capacity=CAPACITY), processes([send, *[work] * count]) as ends:
        return [count_of(end) for end in ends[1:]]


def bars_of(seconds: float) -> Iterator[bars.Bar]:
    cases: list[tuple[str, str, Callable[[int], list[int]]]] = [
        ("writers of bus", WRITERS, lambda count: writers("bus", count, seconds)),
        ("writers of reliable", WRITERS, lambda count: writers("reliable", count, seconds)),
        ("workers", WORKERS, lambda count: workers(count, seconds)),
    ]
    for what, bar, measure in cases:
        for count in PROCESSES:
            shares = sorted(measure(count))
            found = shares[-1] / max(1, shares[0])
            print(f"{count} {what:20} {shares} {found:.2f}", end="", flush=True)
            if bar == WORKERS:
                machine = number_from(LIMITS, "shares", count, seconds)
                print(f", numbers {machine:.2f}", end="")
                found /= max(2, machine)
            print()
            yield bars.quiet(bar, found, f"{count} {what}")
            if rm.topics():
                rm.unlink("f", force=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    measured.add_option(parser)
    args = parser.parse_args()
    build_limits()
    with measured.runtime_directory("fairness"):
        made = list(bars_of(args.seconds))
    return measured.conclude(made, args.json)


if __name__ == "__main__":
    sys.exit(main())
