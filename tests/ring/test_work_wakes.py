"""One message wakes one worker, however many sleep; several messages of one call wake as many. One that gives up when
it is woken wakes another.

How: three workers and a writer, all under strace. Between two marks, the writer sends messages one at a time, each when
the one before is done; the kernel's answer to every wake-up of shared memory is how many it woke. For the second, two
workers whose long sleeps last for hours get two messages, and each keeps the one that it takes. For the third, the
kernel wakes the one that has slept longest, and a worker whose long sleeps last for hours gets the message.
"""

from __future__ import annotations

import asyncio
import re
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ringmain as rm
from ringmain import _aio
from tests import asleep

PROGRAM = """
import os, signal, sys, time
import ringmain as rm

MESSAGES, WORKERS = 20, 3
with rm.Publisher("jobs", contract="work") as pub:
    children = []
    for _ in range(WORKERS):
        child = os.fork()
        if child == 0:
            with rm.Subscriber("jobs", spin=0) as sub:
                while True:
                    sub.recv()
                    sub.try_recv()  # it is done
        children.append(child)
    pub.wait_for_readers(WORKERS, timeout=60)
    for child in children:
        while open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0] != "S":
            time.sleep(0.001)
    os.path.exists("/mark")
    for _ in range(MESSAGES):
        pub.send(b"x")
        while not pub.all_read:
            time.sleep(0.001)
    os.path.exists("/mark")
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_message_wakes_one_worker(tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ["strace", "-f", "-o", str(log), "-e", "trace=futex,stat,newfstatat,statx", sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    between = log.read_text().split('"/mark"')
    assert len(between) == 3
    # A wake-up of another process: one within a process, of Python's own locks, is FUTEX_WAKE_PRIVATE.
    woken = [int(count) for count in re.findall(r"FUTEX_WAKE, \d+\) = (\d+)", between[1])]
    woken += [int(count) for count in re.findall(r"futex resumed>\) = (\d+)", between[1])]
    assert 1 <= sum(woken) <= 20, woken
    assert max(woken) == 1


WORKER = """
import asyncio, select
sub = rm.Subscriber("jobs")

async def first():
    async for data in sub:
        return data

def by_descriptor():
    while (data := sub.try_recv()) is None:
        select.select([sub.fileno()], [], [])
    return data

ways = {
    "recv": sub.recv,
    "wait": lambda: rm.wait([sub]) and sub.try_recv(),
    "async for": lambda: asyncio.run(first()),
    "fileno": by_descriptor,
}
say("ready")
say(ways[sys.argv[1]]().decode())
hear()
sub.close()
"""


@pytest.mark.parametrize("way", ["recv", "wait", "async for", "fileno"])
def test_messages_of_one_call_wake_as_many_workers_however_they_wait(way, child, until, no_long_sleeps) -> None:
    with rm.Publisher("jobs", contract="work") as pub:
        workers = [child(WORKER, way, env=no_long_sleeps) for _ in range(2)]
        assert [worker.line() for worker in workers] == ["ready", "ready"]
        pub.wait_for_readers(2, timeout=30)
        for worker in workers:
            until(lambda worker=worker: asleep.least_asleep(worker.pid, 12) == 12)
        pub.send_many([b"a", b"b"])
        assert sorted(worker.line() for worker in workers) == ["a", "b"]
        for worker in workers:
            worker.tell()
            worker.finish()


SECOND = """
sub = rm.Subscriber("jobs")
say("ready")
hear()
say(sub.recv().decode())
hear()
sub.close()
"""


@pytest.mark.parametrize("ends", ["cancelled", "closed"])
def test_a_task_that_ends_as_it_is_woken_wakes_another_worker(ends, child, until, no_long_sleeps) -> None:
    async def woken(pub: rm.Publisher[bytes], second: Any) -> None:
        first = rm.Subscriber("jobs")
        task = asyncio.create_task(first.arecv())
        await asyncio.sleep(0.1)  # longer than its brief sleep
        second.tell()
        until(lambda: asleep.least_asleep(second.pid, 12) == 12)
        pub.send(b"a")
        select.select([_aio._LoopBell.of_running_loop()._event.fileno()], [], [], 1)  # the loop does not run meanwhile
        if ends == "closed":
            first.close()
        task.cancel()
        await asyncio.wait([task])
        assert await asyncio.to_thread(second.line) == "a"
        first.close()

    with rm.Publisher("jobs", contract="work") as pub:
        second = child(SECOND, env=no_long_sleeps)
        assert second.line() == "ready"
        asyncio.run(woken(pub, second))
        second.tell()
        second.finish()
