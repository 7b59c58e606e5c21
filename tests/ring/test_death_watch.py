"""A message whose writer died before it rang is seen at once, however its reader waits, and a wait that nothing ends
costs next to nothing.

How: tests/lab/unrung.py kills a writer between `commit` and its ring, and makes a table of the real times. Here no
time counts: in the process that waits, a preload makes a long sleep last for hours, so it does not see the message
unless it is woken, or sleeps briefly.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import threading
import time

import pytest

import ringmain as rm
from ringmain.testing import die_at
from tests import asleep
from tests.lab.unrung import PATIENCE_S, POINT, WAYS, late_s

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_unshare() -> bool:
    return shutil.which("unshare") is not None and subprocess.run([*UNSHARE, "true"], check=False).returncode == 0


@pytest.mark.parametrize(
    ("way", "waited_s"),
    [(way, 0.3) for way in WAYS] + [(way, 1.2) for way in ("recv", "wait", "arecv", "fileno", "recv, work", "reply")],
)
def test_a_message_whose_writer_died_before_it_rang_is_seen_at_once(way, waited_s, runtime_dir, no_long_sleeps):
    late = late_s(WAYS[way], waited_s, str(runtime_dir), reader_env=no_long_sleeps)
    print(f"{way}, after {waited_s} s: {1e3 * late:.1f} ms")
    shutil.rmtree(runtime_dir)  # what a writer has left
    assert late < PATIENCE_S


@pytest.mark.skipif(not can_unshare(), reason="no pid namespace can be made")
@pytest.mark.parametrize("way", ["recv", "wait", "arecv", "recv, work"])
def test_writers_of_another_pid_namespace_too(way, runtime_dir, no_long_sleeps):
    """They have no number here, so the thread looks every 20 ms."""
    late = late_s(WAYS[way], 1.2, str(runtime_dir), UNSHARE, no_long_sleeps)
    shutil.rmtree(runtime_dir)
    assert late < PATIENCE_S


WRITER = """
pub = rm.Publisher("x", contract="bus")
say("open")
hear()
pub.send(b"x")
"""


def test_a_writer_that_joins_while_a_reader_sleeps_is_watched(child, no_long_sleeps):
    with rm.Publisher("x", contract="bus"):
        reader = child("""
            sub = rm.Subscriber("x"); sub.try_recv()
            say("waits")
            sub.recv()
            say("seen")
            sub.close()
        """, env=no_long_sleeps)  # fmt: skip
        reader.line()
        time.sleep(0.2)
        writer = child(WRITER, env=die_at(POINT))
        writer.line()
        time.sleep(0.2)
        writer.tell()
        assert reader.line() == "seen"
        reader.finish()


def test_a_forked_child_watches_with_a_thread_of_its_own(child, no_long_sleeps):
    """Threads do not survive a fork, and the child's descriptors are its own."""
    writer = child(WRITER, env=die_at(POINT))
    writer.line()
    reader = child("""
        import signal
        sub = rm.Subscriber("x")
        try: sub.recv(timeout=0.1)
        except rm.Timeout: pass
        watched = sorted(os.listdir("/proc/self/fd"))
        pid = os.fork()
        if pid == 0:
            here = [os.readlink(f"/proc/self/fd/{n}") for n in watched if os.path.lexists(f"/proc/self/fd/{n}")]
            say(sum("pidfd" in link or "event" in link for link in here))
            sub.recv()
            say("seen")
            os._exit(0)
        os.waitpid(pid, 0)
        sub.close()
    """, env=no_long_sleeps)  # fmt: skip
    assert reader.line() == "0", "what the parent had open for its watch is closed"
    time.sleep(0.3)
    writer.tell()
    assert reader.line() == "seen"
    reader.finish()


REFUSED = {
    "pidfds": """
        import ctypes, errno, struct
        def refuse(call, error):  # seccomp: load the number, compare, answer with the error, otherwise allow
            steps = (0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)
            code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
            program = struct.pack("@HP", len(steps), ctypes.addressof(code))
            prctl = ctypes.CDLL(None).prctl
            assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program, 0, 0) == 0
        refuse(434, errno.EPERM)
    """,
    "descriptors": """
        import resource
        most = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    """,
    "all but two descriptors": """
        import resource
        most = max(map(int, os.listdir("/proc/self/fd"))) + 2
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    """,
    "threads": """
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))  # no room for a stack
    """,
}


@pytest.mark.parametrize("what", REFUSED)
def test_where_there_are_none_sleeps_are_short(what, child, no_long_sleeps):
    if what == "pidfds" and os.uname().machine not in ("x86_64", "aarch64"):
        pytest.skip("the number of the system call is another here")
    writer = child(WRITER, env=die_at(POINT))
    writer.line()
    reader = child(f"""
        sub = rm.Subscriber("x"); sub.try_recv()
        if True:{REFUSED[what].replace(chr(10), chr(10) + "    ")}
        say("waits")
        sub.recv()
        say("seen")
        hear()  # it may have seen the message before the writer was dead
        sub.close()
    """, env=no_long_sleeps)  # fmt: skip
    assert reader.line() == "waits"
    time.sleep(0.2)
    assert asleep.least_asleep(reader.pid) >= asleep.ENOUGH
    writer.tell()
    assert reader.line() == "seen"
    writer.process.wait(30)
    reader.tell()
    reader.finish()


IDLE = {
    "recv": "sub.recv(timeout={s})",
    "wait": "rm.wait([sub], timeout={s})",
    "arecv": "asyncio.run(sub.arecv(timeout={s}))",
    "fileno": "select.select([sub.fileno()], [], [], {s})",
    "recv, work": "worker.recv(timeout={s})",
    "wait, for topics to come": "rm.wait([early], timeout={s})",
}


@pytest.mark.parametrize("what", IDLE)
def test_an_idle_wait_sleeps_a_few_times(what, child):
    """Sleeps of all threads of the process in two seconds, by the kernel's count: a few as it begins, then one in two
    seconds for each of two threads. Slices of 40 ms would be 50."""
    other = child("""
        pub, jobs = rm.Publisher("x"), rm.Publisher("jobs", contract="work")
        worker = rm.Subscriber("jobs"); worker.try_recv()
        say("open"); hear()
        worker.close(); jobs.close(); pub.close()
    """)
    other.line()
    waiter = child(f"""
        import asyncio, resource, select
        with rm.Subscriber("x") as sub, rm.Subscriber("jobs") as worker, rm.Subscriber("early") as early:
            for each in (sub, worker, early): each.try_recv()
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            try: {IDLE[what].format(s=2)}
            except rm.Timeout: pass
            say(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)
    """)
    slept = int(waiter.line())
    print(slept)
    waiter.finish()
    other.tell()
    other.finish()
    assert slept < 25


def test_writers_that_come_and_go_leave_no_descriptor(child, until):
    """Each is watched while its reader sleeps, and forgotten two seconds after."""
    with rm.Publisher("x", contract="bus"), rm.Subscriber("x") as sub:

        def wait_once() -> None:
            with pytest.raises(rm.Timeout):
                sub.recv(timeout=0.1)

        def pidfds() -> int:
            links = []
            for number in os.listdir("/proc/self/fd"):
                try:
                    links.append(os.readlink(f"/proc/self/fd/{number}"))
                except FileNotFoundError:
                    continue
            return sum("pidfd" in link for link in links)

        for _ in range(3):
            writer = child(WRITER)
            writer.line()
            wait_once()
            assert pidfds() == 1
            writer.kill()
            until(lambda: pidfds() == 0)
        sub.try_recv()


@pytest.mark.parametrize("waited_before", [False, True])
def test_a_process_that_closes_all_descriptors_can_wait(waited_before, child):
    """As daemonizers do: the watch's own, too. No thread spins for want of what it waits on."""
    waiter = child(f"""
        pub, sub, early = rm.Publisher("x"), rm.Subscriber("x"), rm.Subscriber("early")
        def wait_for(sub, seconds):
            try: sub.recv(timeout=seconds)
            except rm.Timeout: say("nothing")
        sub.try_recv(); early.try_recv()
        if {waited_before}: wait_for(sub, 0.1)
        else: say("nothing")
        os.closerange(3, 1000)
        say("waits")
        wait_for(sub, 2.5)
        wait_for(early, 0.5)
        rm.wait([sub, early], 0.5)
        say("over")
        os._exit(0)
    """)
    assert [waiter.line() for _ in range(2)] == ["nothing", "waits"]
    time.sleep(0.2)
    assert asleep.least_asleep(waiter.pid) >= asleep.ENOUGH
    assert [waiter.line() for _ in range(3)] == ["nothing", "nothing", "over"]
    waiter.finish()
    rm.unlink("x", force=True)


def test_a_reader_that_joins_wakes_no_other():
    """Only writers ring as they join: those that sleep watch for the deaths of writers."""
    with rm.Publisher("x"), rm.Subscriber("x") as sub:
        sleeps: list[int] = []

        def wait() -> None:
            with pytest.raises(rm.Timeout):
                sub.recv(timeout=1)
            sleeps.append(resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw)

        thread = threading.Thread(target=wait)
        thread.start()
        while thread.is_alive():
            rm.Subscriber("x").close()
        assert sleeps[0] < 40


def test_a_topic_whose_creator_died_before_it_said_so_is_found_when_it_is_written(child, no_long_sleeps):
    """The next writer says it. Until then there is no message to be late."""
    reader = child("""
        sub = rm.Subscriber("x"); sub.try_recv()
        say("waits")
        sub.recv()
        say("seen")
        sub.close()
    """, env=no_long_sleeps)  # fmt: skip
    reader.line()
    time.sleep(0.3)
    creator = child('rm.Publisher("x", contract="bus")', env=die_at("create: named, bell not rung"))
    creator.process.wait(30)
    assert creator.process.returncode == -9
    with rm.Publisher("x", contract="bus") as pub:
        pub.send(b"x")
        assert reader.line() == "seen"
        reader.finish()
