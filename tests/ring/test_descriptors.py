"""`fileno()`: readable while a message is there, through every life of the topic, in every process, with or without a
bell in the directory.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import ringmain as rm
from tests.conftest import PATIENCE_S, Child


def test_descriptor_is_readable_while_a_message_is_there() -> None:
    with rm.Subscriber("fd") as sub, rm.Publisher("fd") as pub, selectors.DefaultSelector() as selector:
        selector.register(sub, selectors.EVENT_READ)
        assert not selector.select(0)
        pub.send(b"1")
        pub.send(b"2")
        assert selector.select(PATIENCE_S)
        assert sub.recv() == b"1"
        assert selector.select(0), "one is still there"
        assert sub.recv() == b"2"
        assert not selector.select(0)
        pub.send(b"3")
        assert selector.select(PATIENCE_S)
        assert sub.recv_many(10) == [b"3"]
        assert not selector.select(0)


def test_descriptor_of_a_topic_that_appears_later() -> None:
    with rm.Subscriber("soon") as sub, selectors.DefaultSelector() as selector:
        selector.register(sub, selectors.EVENT_READ)
        with rm.Publisher("soon") as pub:
            pub.send(b"1")
            while sub.try_recv() is None:
                assert selector.select(PATIENCE_S)
            assert not selector.select(0)


def recreated(how: str, pub: rm.Publisher) -> rm.Publisher:
    """The topic's next life, after an ordinary restart of its publisher or a removal by force."""
    if how == "unlinked":
        rm.unlink("t", force=True)
    pub.close()
    return rm.Publisher("t", capacity="2MiB")


@pytest.mark.parametrize("how", ["restarted", "unlinked"])
def test_all_descriptors_follow_a_topic_that_is_recreated(how: str) -> None:
    pub = rm.Publisher("t")
    subs = [rm.Subscriber("t") for _ in range(4)]
    for sub in subs:
        sub.fileno()
    time.sleep(0.05)  # as above
    with recreated(how, pub) as new:
        new.send(b"new")
        for sub in subs:
            while (data := sub.try_recv()) is None:
                assert readable(sub), "a message is there"
            assert data == b"new"
            sub.close()


def readable(sub: rm.Subscriber, timeout: float = PATIENCE_S) -> bool:
    return bool(select.select([sub], [], [], timeout)[0])


def test_closing_makes_the_descriptor_readable() -> None:
    """So a loop in another thread that selects on it looks, and meets `Closed`."""
    sub = rm.Subscriber("x")
    fd = os.dup(sub.fileno())
    assert not select.select([fd], [], [], 0)[0]
    sub.close()
    assert select.select([fd], [], [], 0)[0]
    os.close(fd)


@pytest.mark.usefixtures("no_bell")
def test_a_directory_without_a_bell_wakes_descriptors_and_counts_changes() -> None:
    with rm.Subscriber("later") as sub:
        assert not readable(sub, 0)
        before = sub._directory_count()
        with rm.Publisher("later") as pub:
            assert sub._directory_count() != before
            pub.send(b"x")
            while (data := sub.try_recv()) is None:
                assert readable(sub)
            assert data == b"x"


@pytest.mark.not_as_root
def test_without_a_thread_to_be_had_the_error_says_so(child: Callable[..., Child], runtime_dir: Path) -> None:
    script = """
        import asyncio, resource
        if os.getuid() == 0:  # root has no limit
            os.chown(sys.argv[1], 65534, 65534); os.setgroups([]); os.setgid(65534); os.setuid(65534)
        with rm.Publisher("t") as pub, rm.Subscriber("t") as sub:
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
            for wait in (sub.fileno, lambda: asyncio.run(sub.arecv(timeout=1))):
                try: wait()
                except rm.SystemFailure as error: say(error)
            pub.send(b"x")
            say(sub.recv())
    """
    *errors, data = child(script, runtime_dir).finish()
    assert data == "b'x'"
    assert len(errors) == 2
    assert all("no thread can be started" in error and "ulimit -u" in error for error in errors)


def test_a_descriptor_asked_for_in_a_signal_handler_of_a_receive() -> None:
    refused: list[BaseException] = []

    def handle(*_: object) -> None:
        try:
            sub.fileno()
        except rm.InUse as error:
            refused.append(error)
        pub.send(b"x")

    before = signal.signal(signal.SIGALRM, handle)
    try:
        with rm.Publisher("t") as pub, rm.Subscriber("t") as sub:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            assert sub.recv(timeout=PATIENCE_S) == b"x"
            assert refused
            assert not readable(sub, 0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_forked_child_has_a_descriptor_of_its_own(child: Callable[..., Child]) -> None:
    """Under the same number: neither takes the other's wake-ups, and the tokens of one mean nothing to the other."""
    script = """
        import select
        pub = rm.Publisher("a", contract="bus"); other = rm.Publisher("b", contract="bus")
        a, b = rm.Subscriber("a"), rm.Subscriber("b")
        fds = [a.fileno(), b.fileno()]
        ready = lambda timeout: [fds.index(fd) for fd in select.select(fds, [], [], timeout)[0]]
        assert ready(0) == []
        down, up = os.pipe(), os.pipe()
        if os.fork() == 0:
            assert ready(0) == [0, 1]  # it looks once
            assert b.try_recv() is None and a.try_recv() is None and ready(0) == []
            os.write(up[1], b"r")
            os.read(down[0], 1)
            assert ready(20) == [0]
            assert a.recv(timeout=20) == b"1" and ready(0) == []
            os.write(up[1], b"d")
            os.read(down[0], 1)
            assert ready(20) == [1] and b.recv(timeout=20) == b"2"
            os._exit(0)
        os.read(up[0], 1)
        pub.send(b"1"); os.write(down[1], b"g"); os.read(up[0], 1)
        assert ready(20) == [0]  # the child has taken its own
        assert a.recv(timeout=0) == b"1" and ready(0) == []
        a.close(); b.close()
        other.send(b"2"); os.write(down[1], b"g")
        say(os.waitstatus_to_exitcode(os.wait()[1]))
        pub.close(); other.close(); rm.clean()
    """
    assert child(script).finish() == ["0"]
