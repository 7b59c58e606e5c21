"""One writer at a time on `broadcast` and `pipe`: a second is told of the first, a dead one makes way, and
`takeover=True` makes a living one stop without harm."""

from __future__ import annotations

import os
import zlib

import pytest

import ringmain as rm
from tests import contracts


@pytest.mark.parametrize("contract", contracts.ONE_WRITER)
def test_a_second_writer_is_told_of_the_first(contract, child):
    writer = child(f"pub = rm.Publisher('x', contract='{contract}', name='Ada'); say('in'); hear(); pub.close()")
    writer.line()
    with pytest.raises(rm.TopicBusy, match=rf"'x'.*writer 'Ada' \(pid {writer.pid}\).*takeover=True") as caught:
        rm.Publisher("x")
    assert "this very process" not in str(caught.value)
    assert isinstance(caught.value, OSError)
    writer.tell()
    writer.finish()
    with rm.Publisher("x"), pytest.raises(rm.TopicBusy, match=rf"pid {os.getpid()}\), in this very process"):
        rm.Publisher("x")


@pytest.mark.parametrize("contract", contracts.ONE_WRITER)
def test_a_dead_one_makes_way_at_once(contract, child):
    with rm.Subscriber("x") as sub:
        writer = child(f"""
            pub = rm.Publisher("x", contract="{contract}")
            pub.send(b"0")
            buf = pub.reserve(100)
            buf[:] = b"x" * 100
            say("in the middle"); hear()
        """)
        writer.line()
        assert sub.recv(timeout=0) == b"0"
        writer.kill()
        with rm.Publisher("x") as pub:
            assert pub.send(b"1") == 1
            assert sub.recv_many(9) == [b"1"]


@pytest.mark.parametrize("contract", contracts.ONE_WRITER)
def test_takeover_from_a_living_one(contract, child):
    with rm.Subscriber("x") as sub:
        writer = child(f"""
            pub = rm.Publisher("x", contract="{contract}")
            pub.send(b"0")
            say("sent"); hear()
            for call in (lambda: pub.send(b"no"), lambda: pub.send_many([b"no"]), lambda: pub.reserve(1), pub.stream):
                try:
                    call()
                except rm.TakenOver as error:
                    say(isinstance(error, ConnectionAbortedError), error)
            pub.close()
        """)
        writer.line()
        with rm.Publisher("x", takeover=True) as pub:
            assert pub.send(b"1") == 1
            writer.tell()
            for _ in range(4):
                assert writer.line().startswith("True another writer has taken over topic 'x'")
            writer.finish()
            assert pub.send(b"2") == 2
            assert sub.recv_many(9) == [b"0", b"1", b"2"]


def test_takeover_waits_for_a_message_under_way_and_gives_up_if_it_does_not_end():
    with rm.Publisher("x", name="old") as old, rm.Subscriber("x") as sub:
        with old.reserve(3) as buf:
            with pytest.raises(rm.TopicBusy, match=r"'old'.*in the middle of a message"):
                rm.Publisher("x", takeover=True)
            buf[:] = b"abc"
        assert sub.recv(timeout=0) == b"abc"
        old.send(b"still the writer")
        with rm.Publisher("x", takeover=True) as new:
            assert new.send(b"new") == 2
        assert sub.recv_many(9) == [b"still the writer", b"new"]


def test_takeover_without_another_writer_is_opening():
    with rm.Publisher("x", takeover=True) as pub:
        assert pub.send(b"a") == 0


def test_takeovers_under_load_corrupt_nothing(child):
    """Two processes snatch the topic from each other; the reader sees every number once, in order, whole."""
    script = """
        import zlib
        end = time.monotonic() + 2
        while time.monotonic() < end:
            with rm.Publisher("x", contract="pipe", capacity=8192, takeover=True) as pub:
                try:
                    while time.monotonic() < end:
                        body = os.urandom(100)
                        pub.send(zlib.crc32(body).to_bytes(4, "big") + body, timeout=5)
                except rm.TakenOver:
                    pass
    """
    with rm.Subscriber("x") as sub:
        writers = [child(script), child(script)]
        expected = 0
        while True:
            try:
                message = sub.recv_message(timeout=0.1)
            except rm.Timeout:
                if all(writer.process.poll() is not None for writer in writers):
                    break
                continue
            assert message.seq == expected
            assert zlib.crc32(message.data[4:]).to_bytes(4, "big") == message.data[:4]
            expected += 1
        for writer in writers:
            writer.finish()
        assert expected > 0
