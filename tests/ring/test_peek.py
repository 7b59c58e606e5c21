"""`_native.peek`: the newest messages seen from outside, complete or not at all, without an effect on participants."""

from __future__ import annotations

import os

import pytest

import ringmain as rm
from ringmain import _native
from tests import contracts

CONTRACTS = contracts.UNSHARED


def peek(topic: str, count: int = 10, max_bytes: int = 1 << 20):
    return _native.peek(os.environ["RINGMAIN_DIR"], topic, count, max_bytes)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_newest_oldest_first(contract):
    with rm.Publisher("t", contract=contract, sender="s") as pub:
        assert peek("t") == []
        for number in range(5):
            pub.send(b"%d" % number, kind="k")
        assert [(each["seq"], each["data"]) for each in peek("t", 3)] == [(2, b"2"), (3, b"3"), (4, b"4")]
        newest = peek("t", 1)[0]
        assert newest.pop("time_ns") > 0
        assert newest == {"seq": 4, "sender": "s", "kind": "k", "size": 1, "data": b"4"}
        assert peek("t", 0) == []
    if contract == "pipe":
        rm.unlink("t")  # a pipe keeps what is unread


def test_it_takes_no_slot_and_holds_nothing():
    with rm.Publisher("t", contract="pipe") as pub:
        pub.send(b"x")
        assert peek("t")
        assert rm.info("t").readers == []
        with rm.Subscriber("t") as sub:
            assert sub.recv(0) == b"x", "still there for its reader"


def test_large_messages_are_named_and_not_copied():
    with rm.Publisher("t") as pub:
        pub.send(bytes(1000))
        unseen = peek("t", 1, 999)[0]
        assert (unseen["size"], unseen["data"]) == (1000, None)
        assert len(peek("t", 1, 1000)[0]["data"]) == 1000


def test_after_many_rounds_of_the_ring():
    with rm.Publisher("t", capacity=4096) as pub:
        for number in range(10_000):
            pub.send(number.to_bytes(number % 300 + 4, "little"))
        seen = peek("t", 5)
        assert [each["seq"] for each in seen] == list(range(9995, 10_000))
        assert all(int.from_bytes(each["data"][:4], "little") == each["seq"] for each in seen)


def test_while_it_is_being_written(child):
    """A writer that goes round as fast as it can: whatever is seen is whole."""
    writer = child("""
        with rm.Publisher('t', capacity=4096) as pub:
            say('ready')
            number = 0
            while True:
                pub.send(number.to_bytes(4, 'little') * (1 + number % 60))
                number += 1
    """)
    writer.line()
    seen = 0
    for _ in range(3000):
        for each in peek("t", 4):
            seq, data = each["seq"], each["data"]
            assert data == (seq & 0xFFFFFFFF).to_bytes(4, "little") * (1 + seq % 60)
            assert each["size"] == len(data)
            seen += 1
    assert seen > 0
    writer.kill()
    assert rm.clean() == ["t"]


def test_no_topic():
    with pytest.raises(rm.TopicNotFound):
        peek("nothing")
