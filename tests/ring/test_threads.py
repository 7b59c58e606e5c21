"""Threads share an endpoint without harm: a call waits for the one before, or raises."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest

import ringmain as rm
from tests.ring.test_waiting import bell_of


def test_many_threads_send_on_one_publisher(in_thread):
    with rm.Publisher("x", contract="reliable", capacity=65536) as pub, rm.Subscriber("x") as sub:
        count, size = 300, 30_000  # large copies are made without the GIL

        def send(letter):
            for i in range(count):
                pub.send(letter * (size if i % 10 == 0 else 10), timeout=20)

        senders = [in_thread(send, letter) for letter in (b"a", b"b", b"c", b"d")]
        got = [sub.recv_message(timeout=20) for _ in range(4 * count)]
        for sender in senders:
            sender()
        assert [m.seq for m in got] == list(range(4 * count))
        for letter in b"abcd":
            assert sum(m.data[0] == letter for m in got) == count
        assert all(m.data == m.data[:1] * len(m.data) for m in got)


def test_many_threads_receive_from_one_subscriber(in_thread):
    with rm.Publisher("x", contract="reliable", capacity=65536) as pub, rm.Subscriber("x") as sub:

        def receive():
            got = []
            while (data := sub.recv(timeout=20)) != b"end":
                got.append(data)
            return got

        receivers = [in_thread(receive) for _ in range(4)]
        sent = [b"%d" % i * (1 if i % 50 else 8000) for i in range(2000)]
        for data in sent:
            pub.send(data, timeout=20)
        for _ in receivers:
            pub.send(b"end", timeout=20)
        got = [data for receiver in receivers for data in receiver()]
        assert sorted(got) == sorted(sent)


def test_closing_a_subscriber_ends_the_wait_of_another_thread(in_thread, until):
    with rm.Publisher("x"):
        for wait in ("recv", "recv_message", "borrow"):
            sub = rm.Subscriber("x")
            result = in_thread(getattr(sub, wait))
            sub.close()
            with pytest.raises(rm.Closed):
                result()
            assert sub.closed
        sub = rm.Subscriber("x")
        loop = in_thread(list, sub)
        sub.close()
        assert loop() == []
        assert rm.info("x").readers == []


def test_closing_a_subscriber_before_its_topic_exists(in_thread):
    sub = rm.Subscriber("x")
    result = in_thread(sub.recv)
    sub.close()
    with pytest.raises(rm.Closed):
        result()


def test_closing_a_publisher_ends_the_wait_of_another_thread(in_thread, until):
    with rm.Subscriber("x"):
        pub = rm.Publisher("x", contract="pipe", capacity=4096)
        pub.send(b"x" * 4000)
        result = in_thread(pub.send, b"x" * 4000)
        until(lambda: rm.info("x").writers[0].waits_for is not None)
        pub.close()
        with pytest.raises(rm.Closed):
            result()
    rm.unlink("x")


def test_those_that_queue_behind_a_close_are_told(in_thread):
    """Several wait for the endpoint itself when it is closed: none may go on with what is no longer there."""
    for _ in range(20):
        with rm.Publisher("x", contract="reliable", capacity=4096) as keep:
            sub = rm.Subscriber("x")
            pub = rm.Publisher("x")
            results = [in_thread(sub.recv) for _ in range(4)]
            results += [in_thread(lambda p=pub: [p.send(b"y" * 1000) for _ in range(10)]) for _ in range(4)]
            sub.close()
            pub.close()
            for result in results:
                with contextlib.suppress(rm.Closed):
                    result()
            assert rm.info("x").readers == []
            assert len(rm.info("x").writers) == 1
            keep.send(b"a", timeout=0)


def test_a_reservation_keeps_other_threads_out(in_thread):
    with rm.Publisher("x", contract="broadcast") as pub, rm.Subscriber("x") as sub:
        stop = threading.Event()

        def send():
            refused = 0
            while not stop.is_set():
                try:
                    pub.send(b"s" * 100)
                except rm.InUse:
                    refused += 1
            return refused

        sending = in_thread(send)
        for _ in range(300):
            try:
                with pub.reserve(100) as buf:
                    buf[:] = b"r" * 50 + b"q" * 50
                    time.sleep(0)
                    buf[50:] = b"r" * 50
            except rm.InUse:
                pass
        stop.set()
        sending()
        assert set(sub.recv_many(100_000)) <= {b"s" * 100, b"r" * 100}


def test_two_threads_write_one_stream(in_thread):
    with rm.Publisher("x", contract="pipe", capacity=65536) as pub, rm.Subscriber("x") as sub:
        pub.send(b"x" * 60_000)  # so that the stream must wait
        out = pub.stream(timeout=20)
        writers = [in_thread(lambda c=c: [out.write(c * 1000) for _ in range(20)]) for c in (b"a", b"b")]
        assert sub.recv(timeout=20) == b"x" * 60_000
        for writer in writers:
            writer()
        out.close()
        data = sub.recv(timeout=20)
        assert sorted(data[i : i + 1000] for i in range(0, 40_000, 1000)) == [b"a" * 1000] * 20 + [b"b" * 1000] * 20


def test_a_signal_handler_may_close_what_waits():
    """The handler runs inside the wait, in the same thread: it must not wait for itself."""
    with rm.Publisher("x"):
        sub = rm.Subscriber("x")
        before = signal.signal(signal.SIGALRM, lambda *_: sub.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(rm.Closed):
                sub.recv(timeout=20)
            assert rm.info("x").readers == []
        finally:
            signal.signal(signal.SIGALRM, before)
        assert sub.closed


def test_a_signal_handler_that_uses_what_waits_is_told_so():
    with rm.Publisher("x"), rm.Subscriber("x") as sub:
        before = signal.signal(signal.SIGALRM, lambda *_: sub.try_recv())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(rm.InUse, match="signal handler"):
                sub.recv(timeout=20)
        finally:
            signal.signal(signal.SIGALRM, before)


def test_leases_are_given_back_by_whichever_thread_drops_them(in_thread):
    with rm.Publisher("x", contract="bus", capacity=65536) as pub, rm.Subscriber("x") as sub:
        pub.send_many([b"%d" % i for i in range(100)])
        leases = [sub.borrow(timeout=0) for _ in range(100)]
        droppers = [in_thread(lambda part=leases[i::4]: [lease.release() for lease in part]) for i in range(4)]
        for dropper in droppers:
            dropper()
        del leases
        assert not rm.info("x").readers[0].holding


@pytest.mark.parametrize(
    ("call", "late"),
    [
        ("recv", rm.Timeout),
        ("recv_message", rm.Timeout),
        ("borrow", rm.Timeout),
        ("recv_many", []),
        ("recv_batch", 0),
        ("recv_into", rm.Timeout),
        ("wait", []),
        ("try_recv", None),
    ],
)
def test_a_call_beside_another_threads_keeps_its_timeout(call, late, in_thread, until, runtime_dir):
    """The other waits for as long as it likes."""
    with rm.Publisher("x") as pub, rm.Subscriber("x") as sub:
        other = in_thread(sub.recv, 60)
        until(lambda: bell_of(runtime_dir, "x").armed)
        calls = {
            "recv_many": lambda: sub.recv_many(1, timeout=0.05),
            "recv_batch": lambda: sub.recv_batch(1, timeout=0.05).nbytes,
            "recv_into": lambda: sub.recv_into(bytearray(9), timeout=0.05),
            "wait": lambda: rm.wait([sub], timeout=0.05),
            "try_recv": sub.try_recv,
        }
        act = calls.get(call, lambda: getattr(sub, call)(timeout=0.05))
        if late is rm.Timeout:
            with pytest.raises(rm.Timeout, match="another thread was in a call to the same subscriber"):
                act()
        else:
            assert act() == late
        pub.send(b"x")
        assert other() == b"x"


@pytest.mark.parametrize("call", ["send", "send_many", "reserve", "stream"])
def test_a_send_beside_another_threads_keeps_its_timeout(call, in_thread):
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub, rm.Subscriber("x") as sub:
        assert sub.try_recv() is None
        pub.send(bytes(3000))
        entered = threading.Event()
        other = in_thread(lambda: (entered.set(), pub.send(bytes(3000), timeout=60)))
        entered.wait()
        time.sleep(0.02)  # until it is most likely inside; if it is not, this sends first, and is as late
        calls = {
            "send": lambda: pub.send(bytes(3000), timeout=0.05),
            "send_many": lambda: pub.send_many([bytes(3000)], timeout=0.05),
            "reserve": lambda: pub.reserve(3000, timeout=0.05),
            "stream": lambda: pub.stream(timeout=0.05).write(bytes(3000)),
        }
        with pytest.raises(rm.Full):
            calls[call]()
        sub.recv()
        other()
