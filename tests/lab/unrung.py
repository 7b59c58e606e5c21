"""How late a message is seen whose writer died before it rang.

A reader waits, in every way there is. After a while a writer commits a message and is killed before it wakes anyone.
Late is from just before the send until the reader has the message: so it includes the death.

    python -m tests.lab.unrung                a table of all ways, of 20 deaths each
    python -m tests.lab.unrung --rounds 200   of so many
    python -m tests.lab.unrung --way recv     of one way

Exits with 1 if one was more than 20 ms late: that is for a machine with cores to spare. Needs nothing but ringmain,
msgspec and numpy.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import MappingProxyType

from bench import bars, measured
from ringmain.testing import die_at

POINT = "publish: turn given back, bell not rung"
WAITED_S = (0.02, 0.3, 1.2)
BAR = "unrung: until a message is seen whose writer died before it rang, ms"
BAR_MS = bars.QUIET[BAR]
"""By the clock: on a machine with cores to spare."""
PATIENCE_S = 25.0
"""Less than its own timeout, after which it would look."""

READER = """
import asyncio, os, select, sys, threading, time
import ringmain as rm
{prepare}
os.write(1, b"waits\\n")
{wait}
os.write(1, f"{{time.monotonic()}}\\n".encode())
os._exit(0)
"""
WRITER = """
import os, sys, time
import ringmain as rm
{open}
os.write(1, b"ready\\n")
sys.stdin.readline()
sent = f"{{time.monotonic()}}\\n".encode()
os.write(1, sent)
{send}
"""


@dataclass(frozen=True)
class Way:
    """A way to wait: code of the reader until it waits, and while it does; of the writer until it sends, and then."""

    wait: str
    prepare: str = "sub = rm.Subscriber('t'); sub.try_recv()"
    open: str = "pub = rm.Publisher('t', contract={contract!r})"
    send: str = "pub.send(b'x')"
    contract: str = "broadcast"
    point: str = POINT


FRAMES = {
    "prepare": "sub = rm.FrameSubscriber('t'); sub.try_recv()",
    "open": "pub = rm.FramePublisher('t', size=16)",
    "send": "with pub.frame() as frame: frame.data[:] = bytes(16)",
}
TASK = {
    "open": "pub = rm.Publisher('t', contract='work'); pub.send(b'x'); sub = rm.Subscriber('t'); sub.recv(30)",
    "send": "os.kill(os.getpid(), 9)",
    "point": f"{POINT}#2",  # never reached: it dies with the task
}
MANY = "subs = [rm.Subscriber(f'other/{i}') for i in range(200)] + [rm.Subscriber('t')]; rm.wait(subs, 0)"

WAYS = {
    "recv": Way("sub.recv(30)"),
    "recv_message": Way("sub.recv_message(30)"),
    "recv, in a thread": Way("t = threading.Thread(target=sub.recv); t.start(); t.join(30)"),
    "recv_many": Way("sub.recv_many(1, timeout=30)"),
    "recv_batch": Way("sub.recv_batch(1, timeout=30)"),
    "iteration": Way("next(iter(sub))"),
    "borrow": Way("sub.borrow(30)"),
    "wait": Way("rm.wait([sub], 30)"),
    "wait, for 201 topics": Way("rm.wait(subs, 30)", MANY),
    "arecv": Way("asyncio.run(sub.arecv(30))"),
    "fileno": Way("select.select([sub.fileno()], [], [], 30)"),
    "Latest": Way("latest.update(30)", "latest = rm.Latest({'t': None}); latest.update(0)"),
    "SyncQueue": Way(
        "queue.pop(block=True, timeout=30)",
        "queue = rm.SyncQueue('t', 'reader')",
        "queue = rm.SyncQueue('t', 'writer')",
        "queue.append('kind', 'body')",
    ),
    "keep_last_per_kind": Way("sub.recv(30)", open="pub = rm.Publisher('t', keep_last_per_kind=4)"),
    **{f"recv, {contract}": Way("sub.recv(30)", contract=contract) for contract in ("pipe", "bus", "reliable", "work")},
    "arecv, work": Way("asyncio.run(sub.arecv(30))", contract="work"),
    "wait, work": Way("rm.wait([sub], 30)", contract="work"),
    "frames": Way("sub.recv(30)", **FRAMES),
    "frames, wait": Way("rm.wait([sub], 30)", **FRAMES),
    "frames, arecv": Way("asyncio.run(sub.arecv(30))", **FRAMES),
    "request": Way("next(iter(server))", "server = rm.Server('t')", "client = rm.Client('t')", "client.call(b'x')"),
    "reply": Way(
        "client.call(b'x', timeout=30)",
        "client = rm.Client('t')",
        "server = rm.Server('t')",
        "server.take(1, timeout=30)[0].reply(b'y')",
        point=f"{POINT}#2",  # it says first that it has the request
    ),
    "woken half": Way("sub.recv(30)", point="bell: rung, sleepers not woken"),
    "a task of a dead worker": Way("sub.recv(30)", **TASK),
    "a task of a dead worker, wait": Way("rm.wait([sub], 30)", **TASK),
    "a task of a dead worker, arecv": Way("asyncio.run(sub.arecv(30))", **TASK),
}


def late_s(
    way: Way,
    waited_s: float,
    directory: str,
    within: tuple[str, ...] = (),
    reader_env: Mapping[str, str] = MappingProxyType({}),
) -> float:
    """One death; infinite if the reader did not see the message within PATIENCE_S. `within`: a command that runs the
    writer, such as `unshare`."""
    environment = {**os.environ, "RINGMAIN_DIR": directory}
    opens = way.open.format(contract=way.contract)
    program = WRITER.format(open=opens, send=way.send)
    with (
        subprocess.Popen(
            [*within, sys.executable, "-c", program],
            env={**environment, **die_at(way.point)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as writer,
        subprocess.Popen(
            [sys.executable, "-c", READER.format(prepare=f"sys.stdin.readline()\n{way.prepare}", wait=way.wait)],
            env={**environment, **reader_env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as reader,
    ):
        try:
            assert writer.stdin is not None
            assert writer.stdout is not None
            assert reader.stdin is not None
            assert reader.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
            reader.stdin.write(b"\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == b"waits\n"
            time.sleep(waited_s)
            writer.stdin.write(b"\n")
            writer.stdin.flush()
            sent_s = float(writer.stdout.readline())
            if not select.select([reader.stdout], [], [], PATIENCE_S)[0]:
                return float("inf")
            return float(reader.stdout.readline()) - sent_s
        finally:
            writer.kill()
            reader.kill()


def late_ms(way: str, waited_s: float) -> float:
    directory = tempfile.mkdtemp(prefix="ringmain-unrung-", dir="/dev/shm")
    try:
        return 1e3 * late_s(WAYS[way], waited_s, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--parallel", type=int, default=1, help="so many at once, where there are cores to spare")
    measured.add_option(parser)
    options = parser.parse_args()
    print(f"| {'milliseconds':32} | waited | median |    90 % |   most |")
    print(f"|{'-' * 34}|-------:|-------:|--------:|-------:|")
    made = []
    with ThreadPoolExecutor(options.parallel) as pool:
        cases = [(name, waited_s) for name in options.way or WAYS for waited_s in WAITED_S]
        runs = {case: [pool.submit(late_ms, *case) for _ in range(options.rounds)] for case in cases}
        for (name, waited_s), deaths in runs.items():
            late = sorted(death.result() for death in deaths)
            print(
                f"| {name:32} | {waited_s:4} s | {statistics.median(late):6.1f} |"
                f" {late[-1 - len(late) // 10]:7.1f} | {late[-1]:6.1f} |{'  MISSED' if late[-1] > BAR_MS else ''}",
                flush=True,
            )
            made.append(bars.quiet(BAR, late[-1], f"{name}, after {waited_s:g} s"))
    return measured.conclude(made, options.json)


if __name__ == "__main__":
    sys.exit(main())
