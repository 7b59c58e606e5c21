"""`Publisher(min_readers=...)`: a writer that waits rather than send to too few readers.

What holds for every backend is in tests/backends/conformance."""

from __future__ import annotations

import pytest

import ringmain as rm
from tests import contracts


def test_a_writer_asleep_is_woken_by_the_reader(in_thread):
    with rm.Publisher("x", contract="reliable", min_readers=1) as pub:
        sending = in_thread(lambda: pub.send(b"first", timeout=20))
        with rm.Subscriber("x", start="oldest") as sub:
            assert sub.recv(timeout=20) == b"first"
            assert sending() == 0


def test_a_reader_that_waits_for_the_topic_counts():
    with rm.Subscriber("x") as sub, rm.Publisher("x", contract="reliable", min_readers=1) as pub:
        pub.send(b"a", timeout=0)
        assert sub.recv(timeout=0) == b"a"


def test_while_the_only_reader_restarts_nothing_is_overwritten(child):
    with rm.Publisher("x", contract="reliable", capacity=4096, min_readers=1) as pub:
        reader = child("sub = rm.Subscriber('x'); say('in'); hear()")
        assert reader.line() == "in"
        pub.send(b"to the first", timeout=20)
        reader.kill()
        sent = 0
        with pytest.raises(rm.Full, match="0 of 1 readers"):  # once the ring is full, the dead reader is noticed
            while sent < 1000:
                pub.send(bytes(100), timeout=0.1)
                sent += 1
        assert sent < 50
        with rm.Subscriber("x") as sub:
            pub.send(b"to the next", timeout=0)
            assert sub.recv(timeout=0) == b"to the next"


def test_an_observer_is_no_reader():
    with rm.Publisher("x", min_readers=1) as pub, rm.Subscriber("x", observe="always"):
        with pytest.raises(rm.Full, match="0 of 1 readers"):
            pub.send(b"x", timeout=0)


@pytest.mark.parametrize("contract", contracts.LAPPING)
def test_a_removed_topic_ends_the_wait(contract, in_thread, until):
    with rm.Publisher("x", contract=contract, min_readers=1) as pub:
        sending = in_thread(lambda: pub.send(b"x", timeout=20))
        rm.unlink("x", force=True)
        with pytest.raises(rm.TopicNotFound):
            sending()


def test_a_takeover_ends_the_wait(in_thread):
    with rm.Publisher("x", min_readers=1) as pub:
        sending = in_thread(lambda: pub.send(b"x", timeout=20))
        with rm.Publisher("x", takeover=True), pytest.raises(rm.TakenOver):
            sending()


def test_closing_ends_the_wait(in_thread):
    pub = rm.Publisher("x", min_readers=1)
    sending = in_thread(lambda: pub.send(b"x", timeout=20))
    pub.close()
    with pytest.raises(rm.Closed):
        sending()
