"""Beside a process that was stopped while it had the roster lock of a topic: waits keep to their timeout, let other
threads run, hear signals, and go on when the lock is free again. Those that cannot do without it give up after two
seconds, and the error names the process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial

import numpy
import pytest

import ringmain as rm
from ringmain.testing import stop_at
from tests.conftest import PATIENCE_S, Child
from tests.interrupts import Interrupted, interrupted_after

HOLDS_LOCK = "stayed locked by pid {pid}, which has stopped while it joined"
TIMES = 20
"""What waited for the lock took two seconds or more. So many of that are more than any machine is slow."""


@pytest.fixture
def stopped(child) -> Iterator[Callable[..., Child]]:
    """A process that stops with the roster locked, as it joins for the nth time."""
    started: list[Child] = []

    def start(script: str, nth: int = 1) -> Child:
        joiner = child(script, env=stop_at("join: roster locked", nth))
        started.append(joiner)
        os.waitid(os.P_PID, joiner.pid, os.WSTOPPED | os.WNOWAIT)
        return joiner

    yield start
    for one in started:
        one.dispose()
    for topic in rm.topics():
        rm.unlink(topic.name, force=True)


def keeps_to_its_timeout(wait: Callable[[], object], error: type[Exception] | None = None) -> None:
    began_s = time.monotonic()
    for _ in range(TIMES):
        with pytest.raises(error) if error else nullcontext():
            wait()
    assert time.monotonic() - began_s < PATIENCE_S


def lets_others_run_and_hears_signals(wait: Callable[[], object]) -> None:
    """`wait` waits for PATIENCE_S. Another thread runs so often that the wait would be over if each run had to wait for
    the lock, and interrupts it."""
    main = threading.get_ident()

    def run() -> None:
        for _ in range(TIMES):
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGALRM)

    other = threading.Thread(target=run)
    with pytest.raises(Interrupted), interrupted_after(2 * PATIENCE_S):
        other.start()
        wait()
    other.join()


def test_a_send_behind_a_dead_reader(child, stopped):
    reader = child("sub = rm.Subscriber('t'); say('in'); hear()")
    with rm.Publisher("t", contract="reliable", capacity=4096) as pub:
        assert reader.line() == "in"
        pub.wait_for_readers(1, timeout=20)
        with suppress(rm.Full):
            while True:
                pub.send(bytes(500), timeout=0)
        joiner = stopped("rm.Subscriber('t')")
        reader.kill()
        for timeout in (0, 0.02):
            with pytest.raises(rm.Full, match=f"which has died; .*{HOLDS_LOCK.format(pid=joiner.pid)}"):
                pub.send(bytes(500), timeout=timeout)
            keeps_to_its_timeout(lambda timeout=timeout: pub.send(bytes(500), timeout=timeout), rm.Full)
        lets_others_run_and_hears_signals(lambda: pub.send(bytes(500), timeout=PATIENCE_S))
        joiner.kill()
        pub.send(bytes(500), timeout=20)


def test_a_worker_beside_a_dead_one(child, stopped):
    with rm.Publisher("t", contract="work") as pub:
        worker = child("sub = rm.Subscriber('t'); sub.recv(timeout=20); say('has it'); hear()")
        with rm.Subscriber("t") as sub:
            pub.send(b"task")
            if (task := sub.try_recv()) is not None:  # for the other
                sub.reject(task)
            while (task := sub.try_recv()) is not None:
                sub.reject(task)
            assert worker.line() == "has it"
            joiner = stopped("rm.Subscriber('t').try_recv()")
            worker.kill()
            keeps_to_its_timeout(lambda: sub.recv(timeout=0.02), rm.Timeout)
            lets_others_run_and_hears_signals(lambda: sub.recv(timeout=PATIENCE_S))
            joiner.kill()
            assert sub.recv(timeout=20) == b"task"


@pytest.mark.parametrize("endpoint", [rm.Publisher, rm.Subscriber])
def test_opening_hears_signals_and_names_the_process(endpoint, stopped):
    with rm.Publisher("t", contract="bus"):
        joiner = stopped("rm.Subscriber('t')")
        with pytest.raises(Interrupted), interrupted_after(0.05):
            endpoint("t")
        with pytest.raises(rm.Timeout, match=HOLDS_LOCK.format(pid=joiner.pid)):
            endpoint("t")
        with pytest.raises(Interrupted), interrupted_after(0.05):
            rm.unlink("t", force=True)


@pytest.mark.parametrize("how", ["recv", "wait"])
def test_a_subscriber_that_waited_for_the_topic(how, stopped):
    """It joins once it gets the lock; until then it waits as for a message, as long as it is told to."""
    with rm.Subscriber("t") as sub:
        joiner = stopped(
            "sub = rm.Subscriber('t'); pub = rm.Publisher('t', contract='reliable'); pub.send(b'x')", nth=2
        )
        wait, error = (sub.recv, rm.Timeout) if how == "recv" else (partial(rm.wait, [sub]), None)
        keeps_to_its_timeout(lambda: wait(timeout=0.02), error)
        lets_others_run_and_hears_signals(lambda: wait(timeout=PATIENCE_S))
        os.kill(joiner.pid, signal.SIGCONT)
        assert sub.recv(timeout=20) == b"x"


def test_a_frame_publisher_beside_a_dead_reader(child, stopped):
    with rm.FramePublisher("t", (16,), "u1", buffers=2) as pub:
        reader = child(
            "sub = rm.FrameSubscriber('t'); say('in'); held = [sub.recv(timeout=20) for _ in '12']; say('has'); hear()"
        )
        assert reader.line() == "in"
        pub.wait_for_readers(1, timeout=20)
        for _ in range(2):
            pub.send(numpy.zeros(16, "u1"), timeout=20)
        assert reader.line() == "has"
        stopped("sub = rm.FrameSubscriber('t', start='oldest'); sub.recv(timeout=20)", nth=2)
        reader.kill()
        keeps_to_its_timeout(lambda: pub.frame(timeout=0.02), rm.Full)
        lets_others_run_and_hears_signals(lambda: pub.frame(timeout=PATIENCE_S))


def test_a_process_that_cleans_up_leaves_it_alone(stopped):
    with rm.Publisher("t", contract="bus"):
        stopped("rm.Subscriber('t')")
        keeps_to_its_timeout(rm.clean)
        assert [topic.name for topic in rm.topics()] == ["t"]
