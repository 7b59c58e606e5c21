"""Who comes first does not matter: subscribers before topics, publishers that restart, topics made anew."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import ringmain as rm
from tests import contracts

CONTRACTS = contracts.UNSHARED


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_subscriber_may_come_before_its_topic(contract):
    with rm.Subscriber("x") as sub:
        assert not sub.attached
        assert sub.contract is None
        assert sub.try_recv() is None
        with pytest.raises(rm.Timeout, match="there is no such topic"):
            sub.recv(timeout=0.01)
        with rm.Publisher("x", contract=contract) as pub:
            pub.send_many([b"first", b"second"])
            assert sub.recv_many(9) == [b"first", b"second"]
            assert sub.attached
            assert sub.contract == contract
            assert sub.lost == 0


def test_what_is_gone_before_it_could_attach_counts_as_lost():
    with rm.Subscriber("x", on_lap="oldest") as sub, rm.Publisher("x", capacity=4096) as pub:
        for i in range(1000):
            pub.send(b"%d" % i)
        message = sub.recv_message(timeout=0)
        assert message.seq == message.lost == sub.lost > 0


def test_a_waiting_subscriber_is_woken_when_the_topic_appears(child):
    reader = child("""
        with rm.Subscriber("x") as sub:
            say("ready")
            say(sub.recv(timeout=20))
    """)
    assert reader.line() == "ready"
    with rm.Publisher("x") as pub:
        pub.send(b"hello")
        assert reader.line() == "b'hello'"
        reader.finish()


def test_a_publisher_that_restarts_takes_its_topic_up_again():
    with rm.Publisher("x", capacity=8192) as pub:
        sub = rm.Subscriber("x")
        assert [pub.send(b"a"), pub.send(b"b")] == [0, 1]
        epoch = pub.epoch
    with rm.Publisher("x", capacity=8192) as pub:
        assert pub.epoch == epoch
        assert pub.next_sequence == 2
        assert pub.send(b"c") == 2
    with rm.Publisher("x") as pub:  # takes what is there
        assert pub.capacity == 8192
        assert pub.send(b"d") == 3
        assert sub.recv_many(9) == [b"a", b"b", b"c", b"d"]
    sub.close()


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_publisher_that_was_killed_is_followed_by_the_next(contract, child):
    with rm.Subscriber("x") as sub:
        writer = child(
            f"pub = rm.Publisher('x', contract='{contract}'); pub.send(b'0'); pub.send(b'1'); say('sent'); hear()"
        )
        writer.line()
        assert sub.recv(timeout=20) == b"0"
        writer.kill()
        with rm.Publisher("x", contract=contract) as pub:
            assert pub.send(b"2") == 2
            assert sub.recv_many(9) == [b"1", b"2"]
            assert sub.lost == 0
            assert len(rm.info("x").writers) == 1 or contract in contracts.MANY_WRITERS


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_topic_made_anew_is_found_by_its_old_subscribers(contract):
    other = CONTRACTS[CONTRACTS.index(contract) - 1]
    with rm.Subscriber("x") as sub:
        with rm.Publisher("x", contract=contract, capacity=4096) as pub:
            pub.send(b"old")
            assert sub.recv(timeout=0) == b"old"
        for new, capacity in ((contract, 8192), (other, 8192)):
            with rm.Publisher("x", contract=new, capacity=capacity) as pub:
                assert pub.send(b"new") == 0
                message = sub.recv_message(timeout=0)
                assert (message.data, message.seq, message.lost) == (b"new", 0, 0)
                assert sub.contract == new


def test_what_was_unread_in_the_old_life_comes_before_the_new():
    with rm.Subscriber("x") as sub:
        with rm.Publisher("x", capacity=4096) as pub:
            pub.send_many([b"0", b"1", b"2"])
            assert sub.recv(timeout=0) == b"0"
        with rm.Publisher("x", capacity=8192) as pub:
            pub.send_many([b"a", b"b"])
            assert sub.recv_many(9) == [b"1", b"2"], "a list is of one life"
            assert sub.recv_many(9) == [b"a", b"b"]
            assert sub.lost == 0


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_life_that_came_and_went_meanwhile_is_gone_and_the_one_before_is_not(contract):
    lives = []
    with rm.Subscriber("x") as sub:
        for data in (b"first", b"second", b"third"):
            if lives:
                rm.unlink("x", force=True)
            lives.append(rm.Publisher("x", contract=contract))
            if len(lives) == 1:
                assert sub.try_recv() is None  # takes part from here on
            assert lives[-1].send(data) == 0
        assert [sub.recv(timeout=0), sub.epoch] == [b"first", lives[0].epoch]
        message = sub.recv_message(timeout=0)
        assert (message.data, message.seq, message.lost, sub.epoch) == (b"third", 0, 0, lives[2].epoch)
        for pub in lives:
            pub.close()


def test_a_topic_in_use_as_it_is_is_not_replaced(child):
    writer = child("pub = rm.Publisher('x', contract='bus', name='Eve'); say('in'); hear(); pub.close()")
    writer.line()
    for asked in ({"contract": "reliable"}, {"capacity": "2MiB"}):
        with pytest.raises(rm.TopicMismatch, match=rf"'x' is a bus of 1048576.*writer 'Eve' \(pid {writer.pid}\)"):
            rm.Publisher("x", **asked)
    writer.tell()
    writer.finish()


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_topic_whose_participants_have_all_died_is_replaced(contract, child):
    dead = child("""
        pub = rm.Publisher("x", contract="reliable", capacity=65536)
        sub = rm.Subscriber("x")
        pub.send(b"old"); say("sent"); hear()
    """)
    dead.line()
    dead.kill()
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x") as sub:
        assert (pub.contract, pub.capacity) == (contract, 4096)
        assert pub.send(b"new") == 0
        assert (sub.recv(timeout=20), sub.lost) == (b"new", 0)


def test_a_pipe_with_unread_messages_is_not_replaced():
    with rm.Publisher("x", contract="pipe") as pub:
        pub.send(b"unread")
    with pytest.raises(rm.TopicMismatch, match="unread"):
        rm.Publisher("x", contract="bus")
    rm.unlink("x")
    rm.Publisher("x", contract="bus").close()


def test_a_subscriber_waiting_in_the_old_life_is_woken_by_the_new(child):
    with rm.Publisher("x", capacity=4096) as pub:
        reader = child("""
            with rm.Subscriber("x") as sub:
                say("in")
                say(sub.recv(timeout=20))
                say(sub.recv(timeout=20), sub.lost)
        """)
        reader.line()
        pub.send(b"old")
        reader.line()
    with rm.Publisher("x", contract="reliable", capacity=8192) as pub:
        pub.send(b"new")
        assert reader.line() == "b'new' 0"
        reader.finish()


@pytest.mark.parametrize(
    "wait", [lambda sub: sub.recv(timeout=20), lambda sub: rm.wait([sub], timeout=20)], ids=["recv", "wait"]
)
def test_a_subscriber_between_two_lives_is_woken_by_the_next(wait, in_thread, until):
    """It must sleep on the directory's bell, and never for a fixed time in which it cannot be woken."""
    futex = {"202", "98", "449"}  # on x86_64 and aarch64, and futex_waitv on both
    for _ in range(5):
        with rm.Subscriber("x") as sub, rm.Publisher("x") as old:
            assert sub.try_recv() is None
            who = []
            waiting = in_thread(lambda sub=sub, who=who: (who.append(threading.get_native_id()), wait(sub)))
            until(lambda who=who: who and doing(who[0]) not in ("", "running"))
            rm.unlink("x", force=True)
            # Before that it may nap for 0.2 ms, while the process that removes the topic has the roster lock.
            until(lambda sub=sub, who=who: not sub.attached and doing(who[0]) in futex)
            assert {doing(who[0]) for _ in range(200)} <= futex | {"running"}
            with rm.Publisher("x") as pub:
                pub.send(b"new")
                waiting()
            old.close()


def doing(thread):
    """The number of the system call that a thread of ours is in."""
    return Path(f"/proc/self/task/{thread}/syscall").read_text().split()[0]
