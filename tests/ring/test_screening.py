"""Screening by sender and kind: what is ignored is passed over before anything is copied, and is neither received
nor lost."""

from __future__ import annotations

import pickle

import pytest

import ringmain as rm
from tests import contracts

CONTRACTS = contracts.UNSHARED


@pytest.mark.parametrize("contract", CONTRACTS)
def test_kinds_are_passed_over(contract):
    with rm.Publisher("x", contract=contract) as pub, rm.Subscriber("x", ignore_kinds={"noise", "debug"}) as sub:
        for i in range(30):
            pub.send(b"%d" % i, kind=("noise", "signal", "debug")[i % 3])
        got = sub.recv_many(100)
        assert got == [b"%d" % i for i in range(1, 30, 3)]
        assert sub.lost == 0
        assert pub.all_read


@pytest.mark.parametrize("call", ["recv", "recv_message", "try_recv", "recv_many", "recv_into", "borrow", "recv_batch"])
def test_every_way_of_receiving_screens(call):
    with rm.Publisher("x", contract="bus", sender="me") as me, rm.Publisher("x", sender="you") as you:
        with rm.Subscriber("x", ignore_senders={"me"}) as sub:
            me.send(b"mine")
            you.send(b"yours")
            me.send(b"mine")
            buffer = bytearray(5)
            got = {
                "recv": lambda: sub.recv(timeout=0),
                "recv_message": lambda: sub.recv_message(timeout=0).data,
                "try_recv": sub.try_recv,
                "recv_many": lambda: sub.recv_many(9)[0],
                "recv_into": lambda: buffer[: sub.recv_into(buffer)],
                "borrow": lambda: bytes(sub.borrow(timeout=0).data),
                "recv_batch": lambda: b"yours" if len(sub.recv_batch()) == 1 else b"",
            }[call]()
            assert got == b"yours"
            assert sub.try_recv() is None
            assert rm.wait([sub], timeout=0) == []


def test_the_sets_may_change_at_any_time():
    with rm.Publisher("x", sender="me") as pub, rm.Subscriber("x") as sub:
        sub.ignore_kinds.add("k")
        pub.send(b"1", kind="k")
        assert sub.try_recv() is None
        sub.ignore_kinds.discard("k")
        pub.send(b"2", kind="k")
        assert sub.recv(timeout=0) == b"2"
        sub.ignore_senders |= {"me"}
        pub.send(b"3")
        assert sub.try_recv() is None
        sub.ignore_senders = ["other"]
        assert set(sub.ignore_senders) == {"other"}
        pub.send(b"4")
        assert sub.recv(timeout=0) == b"4"


def test_what_is_screened_is_not_copied(child):
    """A message that is screened out makes no object of its size; the same message makes one where it is received."""
    result = child("""
        import tracemalloc
        data = bytes(500_000)
        tracemalloc.start()
        def most_allocated(ignored):
            with (rm.Publisher("x", contract="pipe", capacity="2MiB") as pub,
                  rm.Subscriber("x", ignore_kinds=ignored) as sub):
                for _ in range(5):
                    pub.send(data, kind="k")
                    before, _ = tracemalloc.get_traced_memory()
                    tracemalloc.reset_peak()
                    sub.try_recv()
                    yield tracemalloc.get_traced_memory()[1] - before
        say(max(most_allocated({"k"})), min(most_allocated(set())))
    """).finish()
    screened, received = map(int, result[0].split())
    assert screened < 100_000 < 500_000 <= received


def test_messages_without_sender_or_kind_can_be_screened_too():
    with rm.Publisher("x") as pub, rm.Subscriber("x", ignore_kinds={""}) as sub:
        pub.send_many([b"a", b"b"])
        pub.send(b"c", kind="k")
        assert sub.recv_many(9) == [b"c"]


def test_names_are_any_text_up_to_255_bytes():
    with rm.Publisher("x", sender="É" * 127) as pub, rm.Subscriber("x") as sub:
        pub.send(b"", kind="ключ")
        message = sub.recv_message(timeout=0)
        assert (message.sender, message.kind) == ("É" * 127, "ключ")
        with pytest.raises(ValueError, match="255"):
            pub.send(b"", kind="k" * 256)
        with pytest.raises(ValueError, match="255"):
            pub.reserve(1, kind="k" * 256)
    for make in (lambda: rm.Publisher("x", sender="s" * 256), lambda: rm.Subscriber("x", ignore_kinds={"k" * 256})):
        with pytest.raises(ValueError, match="255"):
            make()
    with pytest.raises(TypeError, match="single str"):
        rm.Subscriber("x", ignore_senders="me")
    with pytest.raises(TypeError):
        rm.Subscriber("x", ignore_kinds={7})


def test_lost_and_screened_together():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x", ignore_kinds={"k"}, on_lap="oldest") as sub:
        for i in range(1000):
            pub.send(b"%d" % i, kind="k" if i % 2 else "")
        got = list(iter(sub.try_recv_message, None))
        assert [m.seq for m in got] == list(range(sub.lost + sub.lost % 2, 1000, 2))


@pytest.mark.parametrize("contract", CONTRACTS)
def test_only_what_is_wanted(contract):
    with rm.Publisher("x", contract=contract, sender="me") as pub, rm.Subscriber("x", only_kinds={"signal"}) as sub:
        for i in range(30):
            pub.send(b"%d" % i, kind=("noise", "signal", "")[i % 3])
        assert sub.recv_many(100) == [b"%d" % i for i in range(1, 30, 3)]
        assert sub.lost == 0
        assert pub.all_read
        sub.only_kinds = None
        sub.only_senders = {"other"}
        pub.send(b"mine", kind="signal")
        assert sub.try_recv() is None
        sub.only_senders.add("me")
        pub.send(b"mine", kind="any")
        assert sub.recv(timeout=0) == b"mine"


def test_wanted_and_ignored_together():
    with rm.Publisher("x", sender="me") as pub, rm.Subscriber("x", only_senders={"me"}, ignore_kinds={"k"}) as sub:
        pub.send(b"1", kind="k")
        pub.send(b"2")
        assert sub.recv(timeout=0) == b"2"
        sub.only_kinds = ()  # nothing, until something is added
        pub.send(b"3")
        assert sub.try_recv() is None
        again = pickle.loads(pickle.dumps(sub))
        with again:
            assert (set(again.only_senders), set(again.only_kinds), set(again.ignore_kinds)) == ({"me"}, set(), {"k"})


def test_what_is_both_wanted_and_ignored_is_refused():
    with pytest.raises(ValueError, match="ignore_kinds and only_kinds both have 'k'"):
        rm.Subscriber("x", only_kinds={"k", "l"}, ignore_kinds={"k"})
    with rm.Publisher("x") as pub, rm.Subscriber("x", only_kinds={"k"}) as sub:
        with pytest.raises(ValueError, match="both have 'k'"):
            sub.ignore_kinds.add("k")
        with pytest.raises(ValueError, match="both have 'k'"):
            sub.ignore_kinds = {"k"}
        assert not sub.ignore_kinds
        pub.send(b"1", kind="k")
        assert sub.recv(timeout=0) == b"1"
    with pytest.raises(TypeError, match="single str"):
        rm.Subscriber("x", only_kinds="k")
