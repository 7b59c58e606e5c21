"""Where many write, a writer keeps the turn until another asks for it. These show that keeping it blocks no other
writer, whatever becomes of the one that keeps it, and that what others wrote meanwhile is not overwritten.
"""

import mmap
import os
import signal
import struct

import pytest

import ringmain as rm
from ringmain._native import LAYOUT
from tests import contracts

MANY = contracts.MANY_WRITERS
SENDER = """
    import sys
    pub = rm.Publisher("t", contract=sys.argv[1], spin=0)
    pub.send(b"theirs"); say("sent"); hear()
    pub.send(b"theirs again", timeout=10); say("sent")
"""


@pytest.fixture(autouse=True)
def nothing_left(runtime_dir):
    """A topic with unread messages outlives its publishers."""
    yield
    rm.unlink("t", force=True) if rm.topics() else None


def turn(runtime_dir):
    with open(runtime_dir / "t.ring", "rb") as file:
        return struct.unpack_from("<Q", file.read(), LAYOUT["Header.turn"])[0]


@pytest.mark.parametrize("contract", MANY)
def test_a_lone_writer_takes_the_turn_once(contract, runtime_dir):
    with rm.Publisher("t", contract=contract) as pub:
        for _ in range(100):
            pub.send(b"x")
        word = turn(runtime_dir)
        assert word & 0xFFFFFFFF == 1 + pub._describe()["slot"]
        assert word >> 32 == 1


@pytest.mark.parametrize("contract", MANY)
def test_two_that_write_in_turns_overwrite_nothing(contract):
    """After the first meeting each gives the turn back at once; after 64 messages alone it keeps the turn again."""
    with (
        rm.Publisher("t", contract=contract, capacity="64KiB") as one,
        rm.Publisher("t", contract=contract) as other,
        rm.Subscriber("t") as sub,
    ):
        sent = []
        for pub, count in ((one, 2), (other, 1), (one, 1), (other, 3), (one, 100), (other, 1), (one, 1), (other, 100)):
            for _ in range(count):
                sent.append(b"%d" % pub.send(b"%d" % len(sent)))
        assert [sub.recv(timeout=0) for _ in sent] == sent == [b"%d" % i for i in range(len(sent))]


@pytest.mark.parametrize("contract", MANY)
def test_a_writer_that_is_stopped_at_rest_blocks_no_other(contract, child):
    stopped = child(SENDER, contract)
    assert stopped.line() == "sent"
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        with rm.Publisher("t", contract=contract, spin=0) as pub, rm.Subscriber("t") as sub:
            assert pub.send(b"ours", timeout=0) == 1
            os.kill(stopped.process.pid, signal.SIGCONT)
            stopped.tell()
            assert stopped.line() == "sent"
            assert pub.send(b"ours again", timeout=10) == 3
            assert list(iter(sub.try_recv, None))[-3:] == [b"ours", b"theirs again", b"ours again"]
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("contract", MANY)
def test_a_writer_that_is_killed_at_rest_blocks_no_other(contract, child):
    killed = child(SENDER, contract)
    assert killed.line() == "sent"
    with rm.Publisher("t", contract=contract, spin=0) as pub:
        killed.kill()
        assert pub.send(b"ours", timeout=0) == 1


@pytest.mark.parametrize("contract", MANY)
def test_a_topic_whose_turn_is_kept_can_be_removed(contract):
    with rm.Publisher("t", contract=contract) as pub:
        pub.send(b"x")
        rm.unlink("t", force=True)
        with pytest.raises(rm.TopicNotFound):
            pub.send(b"y")


@pytest.mark.parametrize("contract", MANY)
def test_a_turn_of_ours_that_we_did_not_take_is_another_writers(contract, runtime_dir):
    """Our slot was given to another, since the kernel had dropped our lock: then we must not write."""
    with rm.Publisher("t", contract=contract) as pub:
        pub.send(b"x")
        with open(runtime_dir / "t.ring", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            struct.pack_into("<Q", memory, LAYOUT["Header.turn"], turn(runtime_dir) + (1 << 32))
        with pytest.raises(rm.TakenOver):
            pub.send(b"y")
