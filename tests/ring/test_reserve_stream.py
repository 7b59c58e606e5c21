"""Writing in place: `reserve` for a size that is known, `stream` for one that is not.

Sent at the end of the block, dropped on an exception, and no view survives the block to write over another message.
"""

from __future__ import annotations

import gc
import io
import json

import numpy
import pytest

import ringmain as rm
from tests import contracts

CONTRACTS = contracts.UNSHARED


@pytest.fixture(params=CONTRACTS)
def pair(request):
    with rm.Publisher("x", contract=request.param, capacity=8192) as pub, rm.Subscriber("x") as sub:
        yield pub, sub


def test_reserve_sends_at_the_end_of_the_block(pair):
    pub, sub = pair
    for i in range(50):  # around the ring several times
        with pub.reserve(1000, kind="k") as buf:
            assert len(buf) == 1000
            buf[:5] = b"hello"
            buf[5:1000] = bytes([i]) * 995
            assert sub.try_recv() is None
        message = sub.recv_message(timeout=0)
        assert (message.data, message.kind, message.seq) == (b"hello" + bytes([i]) * 995, "k", i)


def test_truncate_sends_what_was_used(pair):
    pub, sub = pair
    with pub.reserve(4000) as buf:
        buf[:5] = b"hello"
        buf.truncate(5)
        assert len(buf) == 5
        with pytest.raises(ValueError, match="4000"):
            buf.truncate(4001)
    assert sub.recv(timeout=0) == b"hello"
    with pub.reserve(10) as buf:
        buf.truncate(0)
    assert sub.recv(timeout=0) == b""


def test_an_exception_drops_it(pair):
    pub, sub = pair
    with pytest.raises(KeyError), pub.reserve(100) as buf:
        buf[:5] = b"never"
        raise KeyError
    with pytest.raises(KeyError), pub.stream() as out:
        out.write(b"never")
        raise KeyError
    assert pub.send(b"next") == 0
    assert sub.recv(timeout=0) == b"next"


def test_commit_and_discard_by_hand(pair):
    pub, sub = pair
    buf = pub.reserve(3)
    buf[:] = b"abc"
    assert buf.commit() == 0
    with pytest.raises(ValueError, match="ended"):
        buf.commit()
    buf.discard()
    pub.reserve(3).discard()
    assert sub.recv_many(9) == [b"abc"]


def test_views_taken_by_slicing_are_released_with_the_block(pair):
    pub, sub = pair
    with pub.reserve(16) as buf:
        whole, part = buf[:], buf[2:4]
        part[:] = b"hi"
        whole[0:2] = b"<<"
        buf.truncate(4)
    assert sub.recv(timeout=0) == b"<<hi"
    for view in (whole, part):
        with pytest.raises(ValueError, match="released"):
            view[0] = 1
    with pytest.raises(ValueError, match="ended"):
        buf[0] = 1
    with pytest.raises(ValueError, match="ended"):
        memoryview(buf)
    with pytest.raises(ValueError, match="ended"):
        buf.truncate(1)


def test_an_array_that_survives_is_an_error_and_stops_the_publisher_until_it_is_gone(pair):
    pub, sub = pair
    with pytest.raises(rm.InUse, match="still alive") as caught, pub.reserve(16) as buf:
        kept = numpy.frombuffer(buf, "u1")
    assert isinstance(caught.value, BufferError)
    kept[:] = 7  # must hit nothing that anybody will read
    with pytest.raises(rm.InUse):
        pub.send(b"not now")
    with pytest.raises(BufferError):
        pub.close()
    assert sub.try_recv() is None
    del kept, caught, buf
    gc.collect()
    assert pub.send(b"now") == 0
    assert sub.recv(timeout=0) == b"now"


def test_numpy_writes_in_place(pair):
    pub, sub = pair
    with pub.reserve(80) as buf:
        numbers = numpy.frombuffer(buf, "f8")
        numbers[:] = numpy.arange(10)
        del numbers
    assert numpy.frombuffer(sub.recv(timeout=0)).tolist() == list(range(10))


def test_a_forgotten_reservation_is_dropped(pair):
    pub, sub = pair
    pub.reserve(100)[:5] = b"never"
    out = pub.stream()
    out.write(b"forgotten")
    with pytest.raises(rm.InUse):
        pub.send(b"not while the stream is open")
    del out
    gc.collect()
    assert pub.send(b"sent") == 0
    assert sub.recv(timeout=0) == b"sent"


def test_the_publisher_lives_as_long_as_its_reservation():
    buf = rm.Publisher("x").reserve(4)
    buf[:] = b"abcd"
    with rm.Subscriber("x") as sub:
        buf.commit()
        assert sub.recv(timeout=0) == b"abcd"
    with pytest.warns(ResourceWarning, match="unclosed"):
        del buf


def test_stream_grows_to_the_largest_message(pair):
    pub, sub = pair
    for size in (0, 1, 100, pub.max_message_bytes):
        data = bytes(i % 251 for i in range(size))
        with pub.stream() as out:
            for start in range(0, size, 7):
                assert out.write(data[start : start + 7]) == len(data[start : start + 7])
            assert out.tell() == size
        message = sub.recv_message(timeout=0)
        assert message.data == data


def test_stream_is_a_file(pair):
    pub, sub = pair
    with pub.stream() as out:
        assert out.writable()
        assert not out.readable()
        with io.TextIOWrapper(io.BufferedWriter(out)) as text:
            json.dump({"a": list(range(100))}, text)
    assert json.loads(sub.recv(timeout=0)) == {"a": list(range(100))}
    with pytest.raises(ValueError):
        out.write(b"finished")


@pytest.mark.parametrize("contract", contracts.WAITING_FOR_EACH)
def test_a_stream_waits_for_room_as_it_grows(contract, in_thread):
    with rm.Publisher("x", contract=contract, capacity=8192) as pub, rm.Subscriber("x") as sub:
        pub.send(b"a" * 4000)
        with pytest.raises(rm.Full), pub.stream(timeout=0.05) as out:
            for _ in range(7):
                out.write(b"b" * 1000)

        def write():
            with pub.stream(timeout=20) as out:
                for _ in range(7):
                    out.write(b"c" * 1000)

        written = in_thread(write)
        assert sub.recv(timeout=20) == b"a" * 4000
        assert sub.recv(timeout=20) == b"c" * 7000
        written()


@pytest.mark.parametrize("contract", contracts.MANY_TO_ALL)
def test_while_one_reserves_another_waits_its_turn(contract):
    with rm.Publisher("x", contract=contract, name="slow") as a, rm.Publisher("x") as b, rm.Subscriber("x") as sub:
        with a.reserve(3) as buf:
            with pytest.raises(rm.Full, match=r"'slow'.*turn"):
                b.send(b"b", timeout=0.01)
            buf[:] = b"aaa"
        b.send(b"b", timeout=0)
        assert sub.recv_many(9) == [b"aaa", b"b"]


def test_reserving_nonsense(pair):
    pub, _ = pair
    for bad in (-1, 1 << 64, 1 << 70):
        with pytest.raises((ValueError, OverflowError)):
            pub.reserve(bad)
    with pytest.raises(TypeError):
        pub.reserve("much")
    pub.send(b"still works")
    assert pub.next_sequence == 1
    pair[1].recv(timeout=0)
