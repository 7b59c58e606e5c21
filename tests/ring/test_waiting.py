"""Waiting: Ctrl-C is prompt, the GIL is released, a waiter uses next to no processor time, `spin=` is how long to look.

No test here measures how long something took by the clock on the wall; processor time of a process is its own.
"""

from __future__ import annotations

import signal
import threading
import time

import pytest

import ringmain as rm

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
def test_a_waiter_uses_next_to_no_processor_time(what, child):
    waiter = child(
        SETUP % {"what": what}
        + f"""
    import threading, _thread
    threading.Timer(1.0, _thread.interrupt_main).start()
    before = time.process_time()
    try:
        {WAITS[what]}
    except KeyboardInterrupt:
        pass
    say(time.process_time() - before)
"""
    )
    assert float(waiter.line()) < 0.1, "of one second"
    waiter.finish()


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


def test_a_long_spin_uses_the_processor_and_none_does_not(child):
    script = """
        with rm.Publisher("x"), rm.Subscriber("x", spin=float(sys.argv[1])) as sub:
            before = time.process_time()
            try:
                sub.recv(timeout=0.5)
            except rm.Timeout:
                say(time.process_time() - before)
    """
    spinning, sleeping = (float(child(script, spin).finish()[0]) for spin in (10, 0))
    assert spinning > 5 * sleeping


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
