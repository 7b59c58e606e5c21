"""Reading in place. What is borrowed stays on the contracts that hold, and is checked at the end on `broadcast`."""

from __future__ import annotations

import gc

import numpy
import pytest

import ringmain as rm
from tests import contracts

HOLDING = contracts.HOLDING


@pytest.mark.parametrize("contract", ["broadcast", *HOLDING])
def test_borrow_is_the_message_where_it_lies(contract):
    with rm.Publisher("x", contract=contract, sender="s", capacity=4096) as pub, rm.Subscriber("x") as sub:
        for i in range(200):
            pub.send(numpy.arange(i, i + 20), kind="k", timeout=0)
            with sub.borrow(timeout=0) as message:
                assert (message.seq, message.sender, message.kind, message.lost) == (i, "s", "k", 0)
                assert numpy.frombuffer(message.data, "i8").tolist() == list(range(i, i + 20))
                assert message.data.readonly
                assert len(message) == 160
                with pytest.raises(TypeError, match=r"read-only|readonly"):
                    message.data[0] = 1


@pytest.mark.parametrize("contract", HOLDING)
def test_a_borrowed_message_stops_the_writer(contract):
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x", name="holder") as sub:
        pub.send(b"keep me")
        with sub.borrow(timeout=0) as message:
            with pytest.raises(rm.Full, match="'holder'"):
                for _ in range(1000):
                    pub.send(b"x" * 100, timeout=0.01)
            assert message.data == b"keep me"
            assert rm.info("x").readers[0].holding
        if contract != "bus":  # there the reader goes on holding, now at the next message
            sub.recv_many(10)
        pub.send(b"x" * 100, timeout=0)
        sub.recv_many(1000)


def test_the_writer_goes_on_when_the_borrower_is_done(in_thread):
    with rm.Publisher("x", contract="bus", capacity=4096) as pub, rm.Subscriber("x") as sub:
        pub.send(b"keep me")
        with sub.borrow(timeout=0) as message:
            done = in_thread(lambda: [pub.send(b"x" * 100, timeout=20) for _ in range(1000)])
            assert message.data == b"keep me"
        assert len(done()) == 1000


def test_an_array_keeps_the_message_beyond_the_block():
    with rm.Publisher("x", contract="bus", capacity=4096) as pub, rm.Subscriber("x") as sub:
        pub.send(b"keep me!")
        with sub.borrow(timeout=0) as message:
            kept = numpy.frombuffer(message.data, "u1")
        with pytest.raises(rm.Full):
            for _ in range(1000):
                pub.send(b"x" * 100, timeout=0)
        assert kept.tobytes() == b"keep me!"
        with pytest.raises(rm.InUse):
            sub.close()
        del kept, message
        gc.collect()
        pub.send(b"x" * 100, timeout=0)


@pytest.mark.parametrize("contract", contracts.MANY_TO_ALL)
def test_several_borrowed_at_once_hold_from_the_oldest(contract):
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x") as sub:
        pub.send_many([b"%d" % i * 100 for i in range(5)])
        leases = [sub.borrow(timeout=0) for _ in range(5)]
        for i in (1, 4, 2):  # not the oldest
            leases[i].release()
        with pytest.raises(rm.Full):
            for _ in range(100):
                pub.send(b"x" * 100, timeout=0)
        assert leases[0].data == b"0" * 100
        assert leases[3].data == b"3" * 100
        leases[0].release()
        leases[3].release()
        while sub.try_recv():
            pass
        pub.send(b"x" * 100, timeout=0)


def test_a_borrowed_message_given_back_cannot_be_read():
    with rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        pub.send(b"data")
        with sub.borrow(timeout=0) as message:
            view = message.data
        with pytest.raises(ValueError, match="released"):
            bytes(view)
        with pytest.raises(ValueError, match="given back"):
            _ = message.data
        with pytest.raises(ValueError, match="given back"):
            message.__enter__()
        message.release()
        assert message.seq == 0


def test_broadcast_says_lapped_when_the_writer_went_over_it():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x", on_lap="next") as sub:
        pub.send(b"first")
        with pytest.raises(rm.Lapped, match="message 0 of topic 'x'") as caught, sub.borrow(timeout=0):
            assert not rm.info("x").readers[0].holding
            for _ in range(100):
                pub.send(b"x" * 100, timeout=0)
        assert isinstance(caught.value, BufferError)
        assert sub.try_recv() is None  # goes on at the message to come
        pub.send(b"next")
        with pytest.raises(rm.Lapped):
            lease = sub.borrow(timeout=0)
            for _ in range(100):
                pub.send(b"x" * 100, timeout=0)
            lease.release()


def test_an_exception_in_the_block_is_not_hidden_by_lapped():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x") as sub:
        pub.send(b"first")
        with pytest.raises(KeyError), sub.borrow(timeout=0):
            for _ in range(100):
                pub.send(b"x" * 100)
            raise KeyError


def test_bus_borrows_count_what_was_lost_before():
    with rm.Publisher("x", contract="bus", capacity=4096) as pub, rm.Subscriber("x", on_lap="oldest") as sub:
        for i in range(1000):
            pub.send(b"%d" % i)
        with sub.borrow(timeout=0) as message:
            assert message.lost == message.seq == sub.lost == int(bytes(message.data)) > 0


def test_reading_on_while_something_is_borrowed():
    """The writer has announced more than the hold lets it write: what lies behind the hold can still be read."""
    with rm.Publisher("x", contract="bus", capacity=4096) as pub, rm.Subscriber("x") as sub:
        pub.send(b"first")
        with sub.borrow(timeout=0) as message:
            sent = 1
            with pytest.raises(rm.Full):
                while True:
                    pub.send(b"%d" % sent, timeout=0)
                    sent += 1
            assert sub.recv_many(1000) == [b"%d" % i for i in range(1, sent)]
            assert message.data == b"first"
        assert sub.lost == 0


def test_borrowing_waits(in_thread):
    with rm.Publisher("x", contract="bus") as pub, rm.Subscriber("x") as sub:
        lease = in_thread(sub.borrow, 20)
        pub.send(b"here")
        with lease() as message:
            assert message.data == b"here"
