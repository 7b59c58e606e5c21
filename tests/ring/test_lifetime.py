"""A topic goes with its last participant, unless it was made to persist or is a pipe with unread messages."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import ringmain as rm
from ringmain._native import LAYOUT
from tests import contracts

CONTRACTS = contracts.UNSHARED


def names():
    return [topic.name for topic in rm.topics()]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_last_to_leave_takes_it_away(contract):
    pub = rm.Publisher("x", contract=contract)
    sub = rm.Subscriber("x")
    pub.close()
    assert names() == ["x"]
    sub.close()
    assert names() == []


def test_a_subscriber_alone_makes_no_topic():
    with rm.Subscriber("x"):
        assert names() == []


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_last_to_leave_takes_it_away_though_others_died(contract, child):
    with rm.Subscriber("x", observe="pipes"):  # a pipe's one reader is the child
        reader = child('sub = rm.Subscriber("x"); sub.try_recv(); say("in"); hear()')
        writer = child(f'pub = rm.Publisher("x", contract="{contract}"); say("in"); hear()')
        reader.line()
        writer.line()
        assert names() == ["x"]
        reader.kill()
        writer.kill()
        assert names() == ["x"]
        with rm.Publisher("x"):
            pass
    assert rm.clean() in ([], ["x"])


def test_clean_removes_the_dead_only_and_says_what(child):
    killed = child('pub = rm.Publisher("dead/a"); other = rm.Publisher(".dead.b", contract="bus"); say("in"); hear()')
    pipes = child('pub = rm.Publisher("pipe", contract="pipe"); pub.send(b"unread"); say("in"); hear()')
    kept = child('pub = rm.Publisher("kept", persist=True); say("in"); hear()')
    for one in (killed, pipes, kept):
        one.line()  # all of them first: a process that opens its first publisher cleans up, too
    for one in (killed, pipes, kept):
        one.kill()
    with rm.Publisher("alive"):
        assert rm.clean() == [".dead.b", "dead/a"]
        assert names() == ["alive", "kept", "pipe"]
        assert rm.clean() == []
    rm.unlink("kept")
    rm.unlink("pipe")


def test_persist_keeps_it():
    with rm.Publisher("x", persist=True, capacity=4096) as pub:
        pub.send(b"a")
    assert names() == ["x"]
    assert rm.info("x").persist
    with rm.Subscriber("x", start="oldest") as sub:
        assert sub.recv(timeout=0) == b"a"
    with rm.Publisher("x") as pub:
        assert pub.send(b"b") == 1
    rm.unlink("x")
    with pytest.raises(rm.TopicNotFound, match="no topic 'x'"):
        rm.unlink("x")


def test_a_pipe_stays_until_it_is_read():
    with rm.Publisher("x", contract="pipe") as pub:
        pub.send(b"a")
        pub.send(b"b")
    with rm.Subscriber("x") as sub:
        sub.recv(timeout=0)
    assert names() == ["x"]
    with rm.Subscriber("x") as sub:
        sub.recv(timeout=0)
    assert names() == []


def test_a_program_that_forgets_to_close_leaves_nothing(child):
    child('pub = rm.Publisher("x"); sub = rm.Subscriber("x"); pub.send(b"a")').finish()
    child('pub = rm.Publisher("y", contract="bus"); r = pub.reserve(10); v = memoryview(r)').finish()
    rm.clean()
    assert names() == []


def test_the_resource_tracker_has_no_part_in_it():
    script = (
        "import ringmain as rm, sys\n"
        "with rm.Publisher('x') as pub, rm.Subscriber('x') as sub: pub.send(b'a'); sub.recv()\n"
        "assert not any(name.startswith('multiprocessing') for name in sys.modules), 'imported'\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30, env=dict(os.environ))


def test_closing_twice_is_harmless():
    pub, sub = rm.Publisher("x"), rm.Subscriber("x")
    for endpoint in (pub, sub, pub, sub):
        endpoint.close()
    assert pub.closed
    assert sub.closed
    for call in (
        lambda: pub.send(b""),
        lambda: pub.reserve(1),
        pub.stream,
        lambda: pub.all_read,
        sub.recv,
        sub.try_recv,
    ):
        with pytest.raises(rm.Closed, match="topic 'x' is closed"):
            call()
    assert list(sub) == []


def test_a_removal_begun_waits_for_the_message_under_way(child, until, runtime_dir):
    """A remover died after it had stopped the writer. The next process to open the topic must not be faster than it."""
    turn = LAYOUT["Header.turn"]
    with rm.Publisher("x", contract="pipe") as pub, rm.Subscriber("x") as sub:
        with pub.reserve(3) as room:
            room[:] = b"one"
            remover = child("rm.unlink('x', force=True)")
            until(lambda: (runtime_dir / "x.ring").read_bytes()[turn : turn + 4] == b"\xff\xff\xff\x3f")
            remover.kill()
            with pytest.raises(rm.Timeout, match="in the middle of a message"):
                rm.Publisher("x", contract="pipe")
            with pytest.raises(rm.Timeout, match="in the middle of a message"):
                rm.Subscriber("x")
            assert sub.try_recv() is None
        assert sub.recv(timeout=0) == b"one"
        with pytest.raises(rm.TopicNotFound):
            pub.send(b"two")
        assert not (runtime_dir / "x.ring").exists()


def test_persist_may_be_asked_of_an_existing_topic():
    with rm.Publisher("x", contract="bus"), rm.Publisher("x", contract="bus", persist=True) as pub:
        pub.send(b"kept")
        assert rm.info("x").persist
    with rm.Subscriber("x", start="oldest") as sub:
        assert sub.recv(timeout=0) == b"kept"
    rm.unlink("x")


def test_a_mode_that_differs_is_not_ignored(runtime_dir):
    with rm.Publisher("x", contract="bus", mode=0o660), rm.Publisher("x", contract="bus"):  # as it is
        with pytest.raises(rm.TopicMismatch, match="mode 0660; requested was a bus of 1048576 bytes, mode 0600"):
            rm.Publisher("x", contract="bus", mode=0o600)
    with rm.Publisher("x", persist=True):
        pass
    with rm.Publisher("x", mode=0o640):  # no writer, nothing unread: replaced
        assert (runtime_dir / "x.ring").stat().st_mode & 0o777 == 0o640
