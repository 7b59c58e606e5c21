"""`reliable`: a message stays until every reader has read it, and a writer that must wait says for whom."""

from __future__ import annotations

import os

import pytest

import ringmain as rm


def test_readers_get_everything_from_the_moment_they_join():
    with rm.Publisher("x", contract="reliable") as pub:
        pub.send(b"before")
        with rm.Subscriber("x") as sub:
            pub.send_many([b"a", b"b"])
            with rm.Subscriber("x") as late:
                pub.send(b"c")
                assert late.recv_many(9) == [b"c"]
            assert sub.recv_many(9) == [b"a", b"b", b"c"]
            assert sub.lost == late.lost == 0


def test_full_names_the_slowest_reader_and_how_far_behind_it_is():
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
        with rm.Subscriber("x", name="quick") as quick, rm.Subscriber("x", name="slow"):
            sent = 0
            with pytest.raises(rm.Full) as caught:
                while True:
                    pub.send(b"x" * 100, timeout=0.01)
                    sent += 1
                    quick.recv(timeout=0)
            assert isinstance(caught.value, TimeoutError)
            assert "within 0.01 s" in str(caught.value)
            assert f"reader 'slow' (pid {os.getpid()}), {sent} messages ({sent * 128} bytes) behind" in str(
                caught.value
            )


def test_without_a_reader_the_writer_does_not_wait():
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
        for _ in range(1000):
            pub.send(b"x" * 100, timeout=0)
        with rm.Subscriber("x"), pytest.raises(rm.Full):
            for _ in range(1000):
                pub.send(b"x" * 100, timeout=0)
        pub.send(b"x" * 100, timeout=0)


def test_a_writer_waits_and_goes_on_when_the_reader_reads(in_thread):
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub, rm.Subscriber("x") as sub:
        sending = in_thread(lambda: [pub.send(b"%d" % i * 100, timeout=20) for i in range(500)])
        assert [sub.recv(timeout=20) for _ in range(500)] == [b"%d" % i * 100 for i in range(500)]
        assert sending() == list(range(500))


def test_a_dead_reader_is_not_waited_for(child):
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub, rm.Subscriber("x", name="alive") as sub:
        reader = child('sub = rm.Subscriber("x"); say("in"); hear()')
        reader.line()
        with pytest.raises(rm.Full, match=str(reader.pid)):
            while True:
                pub.send(b"x" * 100, timeout=0)
                sub.recv(timeout=0)
        reader.kill()
        for _ in range(100):
            pub.send(b"x" * 100, timeout=0)
            sub.recv(timeout=0)
        assert [r.name for r in rm.info("x").readers] == ["alive"]


@pytest.mark.parametrize("spin", [0, 0.01])
def test_a_waiting_writer_is_seen_from_outside(spin, in_thread, until):
    with (
        rm.Publisher("x", contract="reliable", capacity=4096, spin=spin) as pub,
        rm.Subscriber("x", name="slow") as sub,
    ):
        sending = in_thread(lambda: [pub.send(b"x" * 1000, timeout=20) for _ in range(10)])
        until(lambda: rm.info("x").writers[0].waits_for == "slow")
        # Also while it is awake, which is most of the time if it spins.
        assert {rm.info("x").writers[0].waits_for for _ in range(500)} == {"slow"}
        assert [sub.recv(timeout=20) for _ in range(10)] == [b"x" * 1000] * 10
        sending()
        assert rm.info("x").writers[0].waits_for is None
