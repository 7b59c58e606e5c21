"""Loss is counted, exactly: on the subscriber since it was opened, on each message since the one before.

How: a ring of one page, messages numbered by their content, a reader that does not look; then all must add up.
"""

from __future__ import annotations

import random

import pytest

import ringmain as rm
from tests import contracts


@pytest.mark.parametrize("contract", contracts.LAPPING)
@pytest.mark.parametrize("on_lap", ["next", "oldest"])
def test_sent_is_received_plus_lost(contract, on_lap, seed):
    chance = random.Random(seed)
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x", on_lap=on_lap) as sub:
        sent = received = told = 0
        for _ in range(300):
            for _ in range(chance.randrange(120)):
                pub.send(b"%d" % sent + b"." * chance.randrange(200))
                sent += 1
            for _ in range(chance.randrange(60)):
                message = sub.try_recv_message()
                if message is None:
                    break
                received += 1
                told += message.lost
                assert int(message.data.split(b".")[0]) == message.seq
                assert message.seq + 1 == received + told == received + sub.lost
        rest = sub.recv_many(10_000)
        assert sent == received + len(rest) + sub.lost
        assert sub.lost > 0


def test_a_lapped_reader_goes_on_at_the_message_to_come():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x", on_lap="next") as sub:
        for i in range(1000):
            pub.send(b"%d" % i)
        assert sub.try_recv() is None
        assert sub.lost == 1000
        pub.send(b"new")
        message = sub.recv_message(timeout=0)
        assert (message.data, message.seq, message.lost) == (b"new", 1000, 1000)
        pub.send(b"newer")
        assert sub.recv_message(timeout=0).lost == 0


def test_or_at_the_oldest_that_is_whole():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x") as sub:
        for i in range(1000):
            pub.send(b"%d" % i)
        first = sub.recv_message(timeout=0)
        assert first.seq == first.lost == sub.lost == int(first.data)
        assert sub.recv_many(1000) == [b"%d" % i for i in range(first.seq + 1, 1000)]
        assert 1000 - first.seq > 4096 // 32 // 2, "at least half of the ring is kept"


def test_start_oldest_reads_what_is_still_there():
    with rm.Publisher("x", capacity=4096) as pub:
        for i in range(1000):
            pub.send(b"%d" % i)
        with rm.Subscriber("x", start="oldest") as old, rm.Subscriber("x") as new:
            data = old.recv_many(1000)
            assert data == [b"%d" % i for i in range(1000 - len(data), 1000)]
            assert len(data) > 20
            assert old.lost == 0, "what was before it came is not lost"
            assert new.try_recv() is None


def test_conflate_delivers_the_newest_only():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x", conflate=True) as sub:
        for count in (1, 2, 50, 5000):
            for i in range(count):
                pub.send(b"%d of %d" % (i, count))
            assert sub.recv(timeout=0) == b"%d of %d" % (count - 1, count)
            assert sub.try_recv() is None
        assert sub.lost == 0
        pub.send_many([b"a", b"b", b"c"])
        with sub.borrow(timeout=0) as message:
            assert message.data == b"c"


@pytest.mark.parametrize("contract", contracts.HOLDING)
def test_conflate_on_every_contract(contract):
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x", conflate=True) as sub:
        for _ in range(100):
            pub.send_many([b"a", b"b", b"c" * 500], timeout=0)
            assert sub.recv(timeout=0) == b"c" * 500
        assert pub.all_read


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [("start", "middle", "'next', 'oldest' or 'newest'"), ("on_lap", "cry", "'next' or 'oldest'")],
)
def test_other_words_are_refused(option, value, words):
    with pytest.raises(ValueError, match=rf"{option} is {words}, not '{value}'"):
        rm.Subscriber("x", **{option: value})


def test_lost_survives_closing():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x", on_lap="next") as sub:
        for _ in range(1000):
            pub.send(b"12345678")
        assert sub.try_recv() is None
    assert sub.lost == 1000
