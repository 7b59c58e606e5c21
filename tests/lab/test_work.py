"""Workers die at every step at which one can die, and every message is done by another.

How: a worker is killed at each crash point of `native/rule/worker.hpp`, and the process that reaps it at its own. Then
the soak: messages of which each kills its workers a number of times that the seed decides.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import ringmain as rm
from ringmain.testing import die_at

POINTS = [label for label in importlib.import_module("ringmain._ring_lab").CRASH_POINTS if label.startswith("work:")]
TASKS = 20

VICTIM = """
import ringmain as rm
with rm.Subscriber("jobs", name="victim", spin=0) as sub:
    print("ready", flush=True)
    sub.reject(sub.recv())
    for task in sub:
        print(task.decode(), flush=True)
"""
HOLDER = """
import ringmain as rm, time
with rm.Subscriber("jobs", name="holder") as sub:
    print(sub.recv().decode(), flush=True)
    time.sleep(3600)
"""


def start(program: str, environment: dict[str, str] | None = None, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("label", POINTS)
def test_another_worker_does_what_a_dead_one_had(label: str) -> None:
    with rm.Publisher("jobs", contract="work") as pub, start(VICTIM, die_at(label)) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"  # it may be dead already: "about to sleep"
        for i in range(TASKS):
            pub.send(b"%d" % i)
        assert victim.wait(60) == -signal.SIGKILL
        printed = victim.stdout.read().split()
        with rm.Subscriber("jobs") as survivor:
            done = []
            while not pub.all_read:
                done += [task.decode() for task in survivor.recv_many(TASKS, timeout=0.05)]
        assert len(done) == len(set(done))
        assert set(done) | set(printed) >= {str(i) for i in range(TASKS)}


def test_the_reaper_dies_too_and_the_message_counts_once() -> None:
    with rm.Publisher("jobs", contract="work") as pub:
        pub.send(b"task")
        with start(HOLDER) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "task\n"
            holder.kill()
        with start(VICTIM, die_at("reap: message given back, hold kept")) as reaper:
            assert reaper.wait(60) == -signal.SIGKILL
        with rm.Subscriber("jobs") as survivor:
            message = survivor.recv_message(10)
            assert (message.data, message.redelivered) == (b"task", 1)


WORKER = """
import os, sys, ringmain as rm
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
with rm.Subscriber("jobs", spin=0) as sub:
    while True:
        message = sub.recv_message()
        number, deaths = map(int, message.data.split())
        os.write(log, b"begin %d %d %d\\n" % (number, os.getpid(), message.redelivered))
        if message.redelivered < deaths:
            os.write(log, b"dies %d %d 0\\n" % (number, os.getpid()))
            os.kill(os.getpid(), 9)
        os.write(log, b"end %d %d 0\\n" % (number, os.getpid()))
"""


def test_messages_that_kill_their_workers_are_all_done(tmp_path: Path) -> None:
    """Every message is done, none by two living workers at once, and `redelivered` is exact."""
    seed = int(os.environ.get("RINGMAIN_SEED", time.time_ns() % 1_000_000))
    print(f"RINGMAIN_SEED={seed}")
    chance = random.Random(seed)
    tasks = int(os.environ.get("RINGMAIN_TASKS", "40"))
    deaths = [chance.choice((0, 0, 0, 1, 2)) for _ in range(tasks)]
    log = tmp_path / "log"
    log.touch()
    crew = [start(WORKER, None, str(log)) for _ in range(3)]
    try:
        with rm.Publisher("jobs", contract="work", capacity=4096) as pub:
            for number, dies in enumerate(deaths):
                while True:
                    crew = [w if w.poll() is None else replace(w, log) for w in crew]
                    try:
                        pub.send(b"%d %d" % (number, dies), timeout=0.05)
                        break
                    except rm.Full:
                        continue
            while log.read_text().count("end") < tasks or not pub.all_read:
                crew = [w if w.poll() is None else replace(w, log) for w in crew]
                time.sleep(0.01)
            check(log.read_text().split("\n")[:-1], deaths)
    finally:
        for worker in crew:
            worker.kill()
            worker.communicate()
        rm.clean()  # the last participants were killed


def replace(worker: subprocess.Popen[str], log: Path) -> subprocess.Popen[str]:
    worker.communicate()
    return start(WORKER, None, str(log))


def check(lines: list[str], deaths: list[int]) -> None:
    begun: Counter[int] = Counter()
    has: dict[int, int] = {}
    for line in lines:
        what, number, pid, redelivered = line.split()[0], *map(int, line.split()[1:])
        if what == "begin":
            assert number not in has, f"message {number} is with {has[number]} and {pid}"
            assert redelivered == begun[number], f"message {number}: redelivered {redelivered}, begun {begun[number]}"
            has[number] = pid
            begun[number] += 1
        else:
            assert has.pop(number) == pid
    assert begun == Counter({number: dies + 1 for number, dies in enumerate(deaths)})
