"""Inspecting from outside: `info`, `topics`, `unlink`. It takes no slot, and shows each participant's progress."""

from __future__ import annotations

import os
import time

import pytest

import ringmain as rm
from ringmain._contracts import CONTRACTS
from tests import contracts


def test_info_tells_all():
    before = time.time_ns()
    with rm.Publisher("a/b", contract="reliable", capacity="64KiB", name="Wes") as pub:
        with rm.Subscriber("a/b", name="Rob") as sub:
            pub.send_many([b"x" * 100] * 5)
            sub.recv(timeout=0)
            sub.recv(timeout=0)
            info = rm.info("a/b")
    assert (info.name, info.contract, info.capacity, info.next_sequence) == ("a/b", "reliable", 65536, 5)
    assert (info.persist, info.schema) == (False, None)
    assert before <= info.epoch <= time.time_ns()
    assert info.used == 3 * 128
    (writer,), (reader,) = info.writers, info.readers
    assert (writer.pid, writer.name, writer.role, writer.alive) == (os.getpid(), "Wes", "writer", True)
    assert (writer.messages, writer.bytes, writer.user, writer.holding) == (5, 500, os.geteuid(), False)
    assert (reader.pid, reader.name, reader.role, reader.alive) == (os.getpid(), "Rob", "reader", True)
    assert (reader.messages, reader.bytes, reader.lost, reader.holding) == (2, 200, 0, True)
    assert (reader.position, reader.lag_messages, reader.lag_bytes) == (2 * 128, 3, 3 * 128)
    assert before <= reader.joined_ns <= time.time_ns()


def test_a_lapped_reader_is_seen_when_it_notices():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x", on_lap="next") as sub:
        for _ in range(1000):
            pub.send(b"x")
        assert rm.info("x").readers[0].lag_messages == 1000
        sub.try_recv()
        pub.send(b"y")
        sub.recv(timeout=0)
        reader = rm.info("x").readers[0]
        assert (reader.lost, reader.lag_messages, reader.messages) == (1000, 0, 1)


def test_the_dead_are_shown_as_dead(child):
    with rm.Publisher("x"):
        reader = child('sub = rm.Subscriber("x", name="Joe"); say("in"); hear()')
        reader.line()
        reader.kill()
        (dead,) = rm.info("x").readers
        assert (dead.name, dead.pid, dead.alive) == ("Joe", reader.pid, False)


def test_topics_are_listed_by_name(runtime_dir):
    assert rm.topics() == []
    with rm.Publisher("b"), rm.Publisher("a/z"), rm.Publisher(".hidden", contract="pipe"):
        (runtime_dir / "garbage.ring").write_bytes(b"garbage")
        (runtime_dir / "not a topic").write_bytes(b"")
        assert [(t.name, t.contract) for t in rm.topics()] == [
            (".hidden", "pipe"),
            ("a/z", "broadcast"),
            ("b", "broadcast"),
        ]
        (runtime_dir / "garbage.ring").unlink()


def test_there_is_no_such_topic():
    for call in (rm.info, rm.unlink):
        with pytest.raises(FileNotFoundError, match="no topic 'x'"):
            call("x")
        with pytest.raises(ValueError, match="not a topic's name"):
            call("../x")


def test_without_a_directory_there_are_no_topics(monkeypatch, runtime_dir):
    monkeypatch.setenv("RINGMAIN_DIR", str(runtime_dir / "none"))
    assert rm.topics() == []
    assert rm.clean() == []
    with pytest.raises(rm.TopicNotFound):
        rm.info("x")
    assert not (runtime_dir / "none").exists()


@pytest.mark.parametrize("contract", contracts.UNSHARED)
def test_unlink_refuses_while_there_are_participants_unless_forced(contract):
    with rm.Publisher("x", contract=contract, name="Zoe") as pub, rm.Subscriber("x") as sub:
        with pytest.raises(rm.TopicBusy, match=r"in use by (writer 'Zoe'|reader '.*') \(pid.*force=True"):
            rm.unlink("x")
        pub.send(b"unread")
        rm.unlink("x", force=True)
        assert rm.topics() == []
        with pytest.raises(rm.TopicNotFound, match="was removed; open it again"):
            pub.send(b"nowhere")
        assert sub.recv(timeout=0) == b"unread"
        with rm.Publisher("x", contract=contract) as new:
            new.send(b"new life")
            assert sub.recv(timeout=0) == b"new life"
            assert sub.lost == 0


def test_a_full_roster_refuses_the_newcomer_and_keeps_the_rest():
    with rm.Publisher("x") as pub:
        subs = [rm.Subscriber("x") for _ in range(127)]
        with pytest.raises(rm.RosterFull, match="128 slots") as caught:
            rm.Subscriber("x")
        assert isinstance(caught.value, OSError)
        pub.send(b"all")
        assert all(sub.recv(timeout=0) == b"all" for sub in subs)
        subs.pop().close()
        subs.append(rm.Subscriber("x"))
        for sub in subs:
            sub.close()


@pytest.mark.parametrize("backend", ["shm", "fake"])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_where_the_writer_waits_what_is_finished_is_not_used(contract, backend):
    with rm.Publisher("x", contract=contract, capacity=65536, backend=backend) as pub:
        with rm.Subscriber("x", backend=backend) as sub:

            def used():
                return rm.backends.get(backend).info("x").used

            for _ in range(1000):
                pub.send(bytes(104))
                sub.recv(timeout=0)
            sub.try_recv()  # a worker is done with a message when it asks for the next
            waits = CONTRACTS[contract].writer_waits
            assert used() == 0 if waits else used() > 50_000
            pub.send_many([bytes(104)] * 3)
            assert used() == 3 * 128 if waits else used() > 50_000
            assert len(sub.recv_many(9)) == 3
            sub.try_recv()
