"""Waiting: Ctrl-C is prompt, the GIL is released, a waiter sleeps, `spin=` is how long to look.

No test here measures how long something took.
"""

from __future__ import annotations

import asyncio
import ctypes
import dataclasses
import errno
import os
import resource
import shutil
import signal
import struct
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

import ringmain as rm
from ringmain._native import LAYOUT
from ringmain.testing import stop_at
from tests import asleep, contracts


class Bell(NamedTuple):
    rung: int
    armed: int


def words_at(runtime_dir: Path, topic: str, field: str) -> tuple[int, int]:
    """Two words of 32 bits of a topic's header, the first of them at this field."""
    with next(runtime_dir.glob(f"{topic}*")).open("rb") as file:
        file.seek(LAYOUT[field])
        return struct.unpack("<II", file.read(8))


def bell_of(runtime_dir: Path, topic: str) -> Bell:
    return Bell(*words_at(runtime_dir, topic, "Header.bell"))


WAITS = {
    "recv": "sub.recv()",
    "recv_before_the_topic": "rm.Subscriber('elsewhere').recv()",
    "iterate": "list(sub)",
    "borrow": "sub.borrow()",
    "batch": "sub.recv_batch(timeout=None)",
    "wait": "rm.wait([sub])",
    "send": "[full.send(b'x' * 1000) for _ in range(100)]",
    "stream": "[full.stream().write(b'x' * 1000) for _ in range(3)] and full.stream().write(b'x' * 4000)",
    "wait_for_readers": "full.wait_for_readers(5)",
    "turn": "(reserved, other.send(b'x'))",
    "spin": "rm.Subscriber('x', spin=1000).recv()",
    "spin_to_send": "[rm.Publisher('full', spin=1000).send(b'x' * 1000) for _ in range(100)]",
}

SETUP = """
    pub = rm.Publisher("x"); sub = rm.Subscriber("x")
    full = rm.Publisher("full", contract="reliable", capacity=4096); slow = rm.Subscriber("full")
    one = rm.Publisher("bus", contract="bus"); other = rm.Publisher("bus")
    full.send(b"y" * 2000)
    if "%(what)s" == "turn": reserved = one.reserve(1)
"""


@pytest.mark.parametrize("what", WAITS)
def test_ctrl_c_is_prompt(what, child):
    """A real SIGINT to a process that waits without a limit: it ends at once with KeyboardInterrupt."""
    waiter = child(
        SETUP % {"what": what}
        + f"""
    say("waiting")
    try:
        {WAITS[what]}
    except KeyboardInterrupt:
        say("interrupted")
    reserved = None
"""
    )
    assert waiter.line() == "waiting"
    time.sleep(0.1)  # so that it is most likely asleep; if it is not, Ctrl-C works the easier
    waiter.process.send_signal(signal.SIGINT)
    assert waiter.line() == "interrupted"
    waiter.finish()


@pytest.mark.parametrize("what", ["recv", "wait", "send", "recv_before_the_topic"])
def test_a_waiter_sleeps(what, child):
    waiter = child(
        SETUP % {"what": what}
        + f"""
    say("waits")
    try:
        {WAITS[what]}
    except KeyboardInterrupt:
        pass
"""
    )
    waiter.line()
    assert asleep.least_asleep(waiter.pid) >= asleep.ENOUGH
    waiter.process.send_signal(signal.SIGINT)
    waiter.finish()


def kernel_error(function: str, *arguments: int | None) -> int:
    """The error with which the C library's function answers to arguments that no kernel accepts."""
    library = ctypes.CDLL(None, use_errno=True)
    assert getattr(library, function)(*arguments) == -1
    return ctypes.get_errno()


# Emulators of other processors, such as qemu-user, pass on neither of these.
WAITS_FOR_SEVERAL = kernel_error("syscall", 449, None, 0, 0, None, 0) != errno.ENOSYS  # futex_waitv
FILTERS = kernel_error("prctl", 22, 2, None, 0, 0) == errno.EFAULT  # PR_SET_SECCOMP, without a program
needs_several = pytest.mark.skipif(not WAITS_FOR_SEVERAL, reason="this kernel does not wait for several words")
needs_filters = pytest.mark.skipif(not FILTERS, reason="this kernel does not filter system calls")


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("sub.recv(timeout=1)", 8),
        pytest.param("rm.wait([sub], timeout=1)", 8, marks=needs_several),
        pytest.param("rm.wait(many, timeout=1)", 200, marks=needs_several),
    ],
)
def test_a_wait_is_not_repeated_again_and_again(what, most, child):
    """How often it went to sleep in a second. `many` are more than the kernel takes in one call: it polls sixteen
    times, then threads begin to watch, and while these are given 200 bells they and the caller wait for each
    other's locks (22 to 61 were seen). To go on polling would be a thousand."""
    waiter = child(f"""
        import resource
        from contextlib import ExitStack
        with ExitStack() as stack:
            opened = [stack.enter_context(rm.Publisher(f"t/{{i}}", capacity="64KiB")) for i in range(200)]
            many = [stack.enter_context(rm.Subscriber(f"t/{{i}}")) for i in range(200)]
            sub = many[0]
            before = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
            try:
                {what}
            except rm.Timeout:
                pass
            say(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - before)
    """)
    assert int(waiter.line()) <= most
    waiter.finish()


@pytest.mark.descriptors(4096)
def test_any_of_more_topics_than_the_kernel_takes_wakes_a_wait(in_thread, runtime_dir):
    """It polls sixteen times, arming each bell once; then threads watch."""
    with ExitStack() as stack:
        pubs = [stack.enter_context(rm.Publisher(f"t/{i}", capacity="64KiB")) for i in range(300)]
        subs = [stack.enter_context(rm.Subscriber(f"t/{i}")) for i in range(300)]
        waiting = in_thread(lambda: rm.wait(subs, timeout=60))
        while bell_of(runtime_dir, "t+299").armed < 17:
            time.sleep(0.001)
        pubs[299].send(b"x")
        assert waiting() == [subs[299]]


@pytest.mark.descriptors(4096)
def test_subscribers_of_one_topic_share_a_bell(in_thread):
    """A thousand of them are no more than the kernel takes; each of them has the message."""
    with ExitStack() as stack:
        pubs = [stack.enter_context(rm.Publisher(f"t/{i}", capacity="64KiB")) for i in range(10)]
        subs = [stack.enter_context(rm.Subscriber(f"t/{i % 10}")) for i in range(1000)]
        threads = len(os.listdir("/proc/self/task"))
        waiting = in_thread(lambda: rm.wait(subs, timeout=60))
        pubs[7].send(b"x")
        assert waiting() == subs[7::10]
        assert len(os.listdir("/proc/self/task")) <= threads + 1


@pytest.mark.parametrize("what", ["recv", "wait"])
def test_closing_rings_for_a_thread_that_waits(what, in_thread, runtime_dir):
    """A thread that has waited for long would not look again for two seconds."""
    with rm.Publisher("x"), rm.Subscriber("x") as sub:
        waiting = in_thread({"recv": sub.recv, "wait": lambda: rm.wait([sub])}[what])
        while not (before := bell_of(runtime_dir, "x")).armed:
            time.sleep(0.001)
        sub.close()
        with pytest.raises(rm.Closed):
            waiting()
        assert bell_of(runtime_dir, "x").rung > before.rung


def test_the_gil_is_released_while_waiting(in_thread):
    with rm.Publisher("x"), rm.Subscriber("x") as sub:
        counted = 0
        waiting, done = threading.Event(), threading.Event()

        def wait():
            waiting.set()
            try:
                with pytest.raises(rm.Timeout):
                    sub.recv(timeout=0.3)
            finally:
                done.set()

        result = in_thread(wait)
        assert waiting.wait(20)
        while not done.is_set():
            counted += 1
        result()
        assert counted > 1000, "the main thread ran while the other waited"


@pytest.mark.parametrize("spin", [0, 1e-6, 0.001])
def test_spin_is_a_duration(spin, in_thread):
    with rm.Publisher("x", contract="pipe", spin=spin) as pub, rm.Subscriber("x", spin=spin) as sub:
        for i in range(100):
            result = in_thread(sub.recv, 20)
            pub.send(b"%d" % i)
            assert result() == b"%d" % i


def test_a_long_spin_does_not_sleep_and_none_does(child):
    """Sleeps, and not the processor time: on a busy machine one that spins gets little of it."""
    script = """
        import resource
        with rm.Publisher("x"), rm.Subscriber("x", spin=float(sys.argv[1])) as sub:
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            try:
                sub.recv(timeout=1)
            except rm.Timeout:
                say(resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before)
    """
    spinning, sleeping = (int(child(script, spin).finish()[0]) for spin in (10, 0))
    assert spinning < sleeping


@pytest.mark.parametrize("nonsense", [-1, float("nan"), float("inf"), 1e10])
def test_nonsense_is_no_duration(nonsense):
    with pytest.raises(ValueError, match="spin"):
        rm.Publisher("x", spin=nonsense)
    with pytest.raises(ValueError, match="spin"):
        rm.Subscriber("x", spin=nonsense)


def test_a_sleeper_is_woken_by_the_message(child):
    """Spins are off on both sides, so every message finds its reader asleep or nearly so; none is missed."""
    echo = child("""
        with rm.Subscriber("there", spin=0) as sub, rm.Publisher("back") as pub:
            say("ready")
            for _ in range(2000): pub.send(sub.recv(timeout=20))
    """)
    echo.line()
    with rm.Publisher("there") as pub, rm.Subscriber("back", spin=0) as sub:
        assert sub.try_recv() is None
        for i in range(2000):
            pub.send(b"%d" % i)
            assert sub.recv(timeout=20) == b"%d" % i
        echo.finish()


def test_wait_takes_a_list():
    """To list a subscriber would be to receive from it without an end."""
    with rm.Subscriber("x") as sub, rm.Latest({"x": None}) as latest:
        for one in (sub, latest):
            with pytest.raises(TypeError, match=r"wait\(\[subscriber\]\)"):
                rm.wait(one, timeout=0)


FILTER = """
    import ctypes, struct
    def refuse(call, error):  # seccomp: load the number, compare, answer with the error, otherwise allow
        steps = (0x20, 0, 0, 0), (0x15, 0, 1, call), (0x06, 0, 0, 0x50000 | error), (0x06, 0, 0, 0x7FFF0000)
        code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
        program = struct.pack("@HP", len(steps), ctypes.addressof(code))
        prctl = ctypes.CDLL(None).prctl
        assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, program, 0, 0) == 0
"""


@needs_filters
@pytest.mark.parametrize("error", ["EPERM", "ENOSYS", "EACCES"])
def test_who_waits_for_several_words_sleeps_where_a_filter_refuses_that(error, child):
    """Container runtimes answer system calls that they do not know with an error of their choice."""
    waiter = child(
        FILTER
        + f"""
    import asyncio, errno
    with rm.Publisher("x") as pub, rm.Subscriber("x") as one, rm.Subscriber("x") as other:
        refuse(449, errno.{error})  # futex_waitv
        for wait in (lambda: rm.wait([one, other]), lambda: asyncio.run(one.arecv())):
            say("waits")
            try: wait()
            except KeyboardInterrupt: pass
        pub.send(b"1")
        say(len(rm.wait([one, other], timeout=20)))
"""
    )
    for _ in range(2):
        assert waiter.line() == "waits"
        assert asleep.least_asleep(waiter.pid) >= asleep.ENOUGH
        waiter.process.send_signal(signal.SIGINT)
    assert waiter.finish() == ["2"]


@needs_filters
@pytest.mark.parametrize("contract", contracts.UNSHARED)
def test_a_filter_that_refuses_the_process_wide_barrier_loses_no_message(contract, child):
    """That process fences on its own, and looks every millisecond while it waits; its peer has the barrier."""
    echo = child(
        FILTER
        + f"""
    import errno, os
    refuse({{"x86_64": 324, "aarch64": 283}}[os.uname().machine], errno.ENOSYS)  # membarrier
    with rm.Subscriber("there", spin=0) as sub, rm.Publisher("back", contract="{contract}", capacity=4096) as pub:
        say("ready")
        for _ in range(200):
            with sub.borrow(timeout=20) as message: data = bytes(message.data)
            pub.send(data, timeout=20)
"""
    )
    echo.line()
    with (
        rm.Publisher("there", contract=contract, capacity=4096) as pub,
        rm.Subscriber("back", spin=0) as sub,
    ):
        for i in range(200):
            pub.send(b"%d" % i, timeout=20)
            assert sub.recv(timeout=20) == b"%d" % i
        echo.finish()


EXITS = {
    "recv": "sub.recv()",
    "iterate": "list(sub)",
    "borrow": "sub.borrow()",
    "wait": "rm.wait([sub])",
    "update": "rm.Latest({'x': None}).update()",
    "send": "[full.send(bytes(500)) for _ in range(100)]",
    "wait_for_readers": "pub.wait_for_readers(5)",
    "spin": "rm.Subscriber('x', spin=1000).recv()",
}


@pytest.mark.parametrize("what", EXITS)
def test_the_program_ends_while_a_daemon_thread_waits(what, child):
    """Python ends such a thread as it asks for the GIL, in the middle of our code."""
    program = child(f"""
        import threading
        pub, sub = rm.Publisher("x"), rm.Subscriber("x")
        full = rm.Publisher("full", contract="pipe", capacity=4096)
        inside = threading.Event()
        def wait():
            inside.set()
            try: {EXITS[what]}
            except rm.Closed: pass
        threading.Thread(target=wait, daemon=True).start()
        inside.wait(); time.sleep(0.05)
    """)
    program.finish()
    assert "terminate" not in program.errors()
    for topic in rm.topics():  # a pipe keeps what is unread
        rm.unlink(topic.name, force=True)


@pytest.mark.parametrize("contract", contracts.UNSHARED)
def test_ctrl_c_in_a_decoder_passes_and_no_message_is_lost(contract):
    with rm.Publisher("t", type=Number, contract=contract) as pub, rm.Subscriber("t", type=Number) as sub:
        calls = {
            "recv": lambda: [sub.recv(timeout=20)],
            "try_recv": lambda: [sub.try_recv()],
            "recv_message": lambda: [sub.recv_message(timeout=20).data],
            "iteration": lambda: [next(iter(sub))],
            "arecv": lambda: [asyncio.run(sub.arecv(timeout=20))],
            "recv_many": lambda: sub.recv_many(3),
        }
        for call in calls.values():
            for n in range(5):
                pub.send(Number(n))
            for interrupted in (0, 1, 2):
                Number.interrupt_at = interrupted
                got = []
                try:
                    while len(got) <= interrupted:
                        got += call()
                except KeyboardInterrupt:
                    assert got == [Number(n) for n in range(len(got))]
                else:
                    raise AssertionError("Ctrl-C was swallowed")
                Number.interrupt_at = -1
                assert sub.recv_many(5 - len(got)) == [Number(n) for n in range(len(got), 5)]
                for n in range(5):
                    pub.send(Number(n))
            sub.recv_many(5)
        assert sub.lost == 0


def test_ctrl_c_while_a_borrowed_message_is_decoded():
    with rm.Publisher("t", type=Number) as pub, rm.Subscriber("t", type=Number) as sub:
        pub.send(Number(0))
        Number.interrupt_at = 0
        with sub.borrow(timeout=20) as message:
            with pytest.raises(KeyboardInterrupt):
                _ = message.data
            assert message.data == Number(0)


@dataclasses.dataclass
class Number:
    n: int
    interrupt_at: ClassVar[int] = -1

    def __post_init__(self) -> None:
        if self.n == Number.interrupt_at:
            Number.interrupt_at = -1
            raise KeyboardInterrupt


@pytest.mark.parametrize("attached", [False, True])
def test_a_runtime_directory_that_is_removed_and_made_again(attached, runtime_dir, in_thread):
    """Deleted by hand, so that no word and no bell says so. A subscriber whose writer lives stays with it."""
    old = rm.Publisher("x") if attached else None
    with rm.Subscriber("x") as sub, rm.Subscriber("x") as other:
        results = [in_thread(sub.recv, 20), in_thread(rm.wait, [other], 20)]
        shutil.rmtree(runtime_dir)
        runtime_dir.mkdir(mode=0o700)
        with rm.Publisher("x") as pub:
            pub.send(b"new")
            if old:
                old.close()
            assert results[0]() == b"new"
            assert results[1]() == [other]
            assert other.recv(timeout=0) == b"new"


def test_a_publisher_opens_while_the_runtime_directory_is_removed(runtime_dir, child):
    """It has opened the old directory already, and creates its topic in the new one."""
    creator = child(
        """
        with rm.Publisher("x") as pub:
            say("open")
            pub.wait_for_readers(1, timeout=20)
            pub.send(b"1")
            hear()
        """,
        env=stop_at("create: joined, without a name"),
    )
    os.waitid(os.P_PID, creator.pid, os.WSTOPPED | os.WNOWAIT)
    shutil.rmtree(runtime_dir)
    with rm.Subscriber("x") as sub:
        os.kill(creator.pid, signal.SIGCONT)
        assert creator.line() == "open"
        assert sub.recv(timeout=20) == b"1"
    creator.tell()
    creator.finish()


@pytest.mark.parametrize("others", [0, 1])
def test_a_worker_sleeps_as_long_as_any_reader(others):
    """Sleeps of an idle worker in a second, alone and beside another: that one's death would wake it."""
    with rm.Publisher("jobs", contract="work"), rm.Subscriber("jobs") as sub, ExitStack() as stack:
        sub.try_recv()
        for _ in range(others):
            stack.enter_context(rm.Subscriber("jobs")).try_recv()
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        with pytest.raises(rm.Timeout):
            sub.recv(timeout=1.0)
        slept = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
        assert slept < 8


def test_a_worker_that_joins_wakes_those_that_sleep(runtime_dir):
    """They watch it from now on: the word on which they sleep changes."""
    with rm.Publisher("jobs", contract="work"), rm.Subscriber("jobs") as first:
        first.try_recv()
        before, _ = words_at(runtime_dir, "jobs", "Header.work_bell")
        with rm.Subscriber("jobs") as second:
            second.try_recv()
            assert words_at(runtime_dir, "jobs", "Header.work_bell")[0] != before
