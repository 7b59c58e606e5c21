"""The contracts, side by side: how many writers and readers, and what becomes of a slow reader."""

from __future__ import annotations

import pytest

import ringmain as rm
from tests import contracts


@pytest.mark.parametrize("contract", contracts.ALL)
def test_a_message_arrives(contract):
    with rm.Publisher("x", contract=contract) as pub, rm.Subscriber("x") as sub:
        assert pub.contract == sub.contract == contract
        assert pub.send(b"one") == 0
        assert pub.send(b"two") == 1
        assert sub.recv(timeout=5) == b"one"
        assert sub.recv(timeout=5) == b"two"
        assert sub.lost == 0


def test_the_default_is_broadcast_of_one_mebibyte():
    with rm.Publisher("x") as pub:
        assert (pub.contract, pub.capacity) == ("broadcast", 1024 * 1024)


def test_an_unknown_contract_is_refused():
    with pytest.raises(ValueError, match=".*".join(contracts.ALL)):
        rm.Publisher("x", contract="telepathy")


@pytest.mark.parametrize("contract", contracts.TO_ALL)
def test_many_readers_get_everything(contract):
    with rm.Publisher("x", contract=contract) as pub:
        subs = [rm.Subscriber("x") for _ in range(5)]
        pub.send_many([b"%d" % i for i in range(100)])
        for sub in subs:
            assert sub.recv_many(1000) == [b"%d" % i for i in range(100)]
            sub.close()


@pytest.mark.parametrize("contract", [name for name in contracts.MANY_WRITERS if name in contracts.TO_ALL])
def test_many_writers_make_one_order(contract):
    with rm.Publisher("x", contract=contract, sender="a") as a, rm.Publisher("x", sender="b") as b:
        with rm.Subscriber("x") as one, rm.Subscriber("x") as two:
            for i in range(50):
                (a if i % 3 else b).send(b"%d" % i)
            heard = [[(m.seq, m.sender, m.data) for m in iter(s.try_recv_message, None)] for s in (one, two)]
        assert heard[0] == heard[1] == [(i, "a" if i % 3 else "b", b"%d" % i) for i in range(50)]


@pytest.mark.parametrize("contract", contracts.LAPPING)
def test_a_lapping_writer_never_waits(contract):
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x") as sub:
        for i in range(10_000):
            pub.send(b"%d" % i, timeout=0)
        pub.send(b"last", timeout=0)
        received = len(sub.recv_many(100_000))
        assert received + sub.lost == 10_001
        assert sub.lost > 0


@pytest.mark.parametrize("contract", contracts.WAITING)
def test_a_waiting_writer_loses_nothing(contract):
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x") as sub:
        sent = 0
        for _ in range(5):
            with pytest.raises(rm.Full):
                while True:
                    pub.send(b"%d" % sent * 10, timeout=0)
                    sent += 1
        assert sub.recv_many(10_000) == [b"%d" % i * 10 for i in range(sent)]
        assert pub.send(b"again", timeout=0) == sent
        assert sub.recv(timeout=0) == b"again"
        assert sub.lost == 0


@pytest.mark.parametrize("contract", contracts.WAITING)
def test_full_stays_full_however_long_one_waits(contract):
    """A wait that ends in the middle (its slices are 40 ms) must not count the slot as free."""
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x") as sub:
        pub.send(b"a" * 4000, timeout=0)
        with pytest.raises(rm.Full):
            pub.send(b"b" * 4000, timeout=0.2)
        assert sub.recv(timeout=0) == b"a" * 4000
        assert sub.try_recv() is None
