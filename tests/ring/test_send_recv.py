"""Sending and receiving, one call at a time: what goes in, what comes out, and what a timeout says."""

from __future__ import annotations

import array
import time

import numpy
import pytest

import ringmain as rm


@pytest.fixture
def pair():
    with rm.Publisher("x", contract="reliable", sender="camera", name="Kim") as pub, rm.Subscriber("x") as sub:
        yield pub, sub


@pytest.mark.parametrize(
    "data",
    [b"bytes", bytearray(b"bytearray"), memoryview(b"memoryview"), array.array("d", [1, 2]), numpy.arange(7), b""],
    ids=lambda d: type(d).__name__,
)
def test_any_buffer_is_sent(pair, data):
    pub, sub = pair
    pub.send(data)
    pub.send_many([data, data])
    assert sub.recv_many(9) == [bytes(memoryview(data).cast("B"))] * 3


@pytest.mark.parametrize("data", ["text", 7, None, memoryview(b"abcdef")[::2]], ids=["text", "7", "None", "strided"])
def test_what_is_no_buffer_is_refused_and_nothing_sent(pair, data):
    pub, sub = pair
    with pytest.raises((TypeError, BufferError)):
        pub.send(data)
    with pytest.raises((TypeError, BufferError)):
        pub.send_many([b"good", data])
    assert sub.try_recv() is None
    assert pub.send(b"fine") == 0


def test_a_message_knows_all_about_itself(pair):
    pub, sub = pair
    before = time.time_ns()
    pub.send(b"data", kind="frame")
    message = sub.recv_message(timeout=5)
    assert (message.data, message.seq, message.sender, message.kind, message.lost) == (b"data", 0, "camera", "frame", 0)
    assert before <= message.time_ns <= time.time_ns()


def test_try_recv_is_none_when_there_is_nothing(pair):
    _, sub = pair
    assert sub.try_recv() is None
    assert sub.try_recv_message() is None
    assert sub.recv_many(10) == []


@pytest.mark.parametrize("call", ["recv", "recv_message", "recv_into", "borrow"])
def test_a_timeout_names_the_writer(pair, call):
    _, sub = pair
    args = (bytearray(9),) if call == "recv_into" else ()
    with pytest.raises(TimeoutError, match=r"topic 'x'.*writer 'Kim' \(pid \d+\)") as caught:
        getattr(sub, call)(*args, timeout=0.001)
    assert isinstance(caught.value, rm.Timeout)


def test_timeouts_are_seconds_or_none(pair):
    pub, sub = pair
    pub.send(b"a")
    assert sub.recv() == b"a"
    pub.send(b"b")
    assert sub.recv(timeout=None) == b"b"
    for bad in (-1, float("nan")):
        with pytest.raises(ValueError, match="seconds"):
            sub.recv(timeout=bad)
        with pytest.raises(ValueError, match="seconds"):
            pub.send(b"", timeout=bad)
    with pytest.raises(TypeError):
        sub.recv(timeout="soon")
    with pytest.raises(TimeoutError):
        sub.recv(timeout=0)


def test_unknown_arguments_are_refused(pair):
    pub, sub = pair
    with pytest.raises(TypeError):
        pub.send(b"", colour="red")
    with pytest.raises(TypeError):
        pub.send()
    with pytest.raises(TypeError):
        sub.recv(1, 2)
    with pytest.raises(TypeError):
        pub.send(b"", kind=7)


def test_send_many_counts_and_recv_many_stops_at_its_limit(pair):
    pub, sub = pair
    assert pub.send_many(b"%d" % i for i in range(10)) == 10
    assert sub.recv_many(4) == [b"0", b"1", b"2", b"3"]
    assert sub.recv_many(0) == []
    assert sub.recv_many(100) == [b"4", b"5", b"6", b"7", b"8", b"9"]
    assert pub.send_many([]) == 0
    with pytest.raises(ValueError, match="0 or more"):
        sub.recv_many(-1)


def test_recv_many_waits_for_the_first_only(pair, in_thread):
    pub, sub = pair
    result = in_thread(sub.recv_many, 10, 20)
    pub.send(b"first")
    assert result()[0] == b"first"


def test_send_many_that_is_full_says_how_many_went_out():
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub, rm.Subscriber("x") as sub:
        with pytest.raises(rm.Full) as caught:
            pub.send_many([b"x" * 1000] * 10, timeout=0)
        assert len(sub.recv_many(10)) == caught.value.sent > 0


def test_recv_into_copies_and_says_how_much(pair):
    pub, sub = pair
    pub.send(b"hello")
    buffer = bytearray(b"........")
    assert sub.recv_into(buffer, timeout=5) == 5
    assert buffer == b"hello..."
    target = numpy.zeros(4, "u1")
    pub.send(b"1234")
    assert sub.recv_into(target) == 4
    assert target.tobytes() == b"1234"


def test_recv_into_a_small_buffer_takes_nothing(pair):
    pub, sub = pair
    pub.send(b"too long")
    with pytest.raises(ValueError, match="8 bytes and the buffer 3"):
        sub.recv_into(bytearray(3), timeout=5)
    with pytest.raises((BufferError, TypeError, ValueError)):
        sub.recv_into(b"read-only")
    assert sub.recv(timeout=5) == b"too long"


def test_iteration_gives_what_comes(pair):
    pub, sub = pair
    pub.send_many([b"a", b"b", b"c"])
    got = []
    for data in sub:
        got.append(data)
        if data == b"c":
            break
    assert got == [b"a", b"b", b"c"]


def test_all_read_and_wait_for_readers():
    with rm.Publisher("x", contract="reliable") as pub:
        assert pub.all_read
        with pytest.raises(TimeoutError, match="0 of 1 readers"):
            pub.wait_for_readers(1, timeout=0.01)
        with rm.Subscriber("x") as one, rm.Subscriber("x"):
            assert pub.wait_for_readers(2, timeout=5) == 2
            pub.send(b"a")
            assert not pub.all_read
            one.recv(timeout=5)
            assert not pub.all_read
        assert pub.all_read


def test_wait_for_readers_is_woken_by_one_that_comes(in_thread, child):
    with rm.Publisher("x") as pub:
        reader = child("sub = rm.Subscriber('x'); say('in'); hear(); sub.close()")
        assert pub.wait_for_readers(1, timeout=20) == 1
        reader.line()
        reader.tell()
        reader.finish()


def test_wait_gives_those_that_have_something(in_thread):
    with rm.Publisher("a") as a, rm.Publisher("b") as b:
        subs = [rm.Subscriber("a"), rm.Subscriber("b"), rm.Subscriber("later")]
        assert rm.wait(subs, timeout=0) == []
        assert rm.wait(subs, timeout=0.01) == []
        b.send(b"1")
        assert rm.wait(subs, timeout=5) == [subs[1]]
        a.send(b"2")
        assert rm.wait(subs, timeout=5) == subs[:2]
        for sub in subs[:2]:
            sub.recv(timeout=0)
        woken = in_thread(rm.wait, subs, 20)
        with rm.Publisher("later") as c:
            c.send(b"3")
            assert woken() == [subs[2]]
            for sub in subs:
                sub.close()
        with pytest.raises(rm.Closed):
            rm.wait(subs)
        with pytest.raises(TypeError, match="subscribers"):
            rm.wait([7])


def test_wait_on_more_topics_than_the_kernel_takes():
    publishers = [rm.Publisher(f"t{i}", capacity=4096) for i in range(130)]
    subs = [rm.Subscriber(f"t{i}") for i in range(130)]
    publishers[129].send(b"x")
    assert rm.wait(subs, timeout=5) == [subs[129]]
    subs[129].recv()
    assert rm.wait(subs, timeout=0.01) == []
    for endpoint in (*publishers, *subs):
        endpoint.close()
