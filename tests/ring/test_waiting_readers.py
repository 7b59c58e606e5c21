"""A process that opens a subscriber is a reader from that moment, also of a topic that does not exist yet."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import ringmain as rm
from tests import contracts

CONTRACTS = contracts.UNSHARED


def waiting_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.waiting"))


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_subscriber_that_waits_is_a_reader_once_the_topic_is_there(contract, runtime_dir):
    with rm.Subscriber("x", name="early") as sub:
        assert rm.topics() == []
        assert waiting_files(runtime_dir) == ["x.waiting"]
        with rm.Publisher("x", contract=contract) as pub:
            assert pub.wait_for_readers(1, timeout=0) == 1
            (reader,) = rm.info("x").readers
            assert (reader.name, reader.pid, reader.alive, reader.lag_messages) == ("early", os.getpid(), True, 0)
            pub.send(b"first")
            assert not pub.all_read
            assert sub.recv(timeout=0) == b"first"
            assert waiting_files(runtime_dir) == []
            assert len(rm.info("x").readers) == 1
            assert pub.wait_for_readers(1, timeout=0) == 1
    assert list(runtime_dir.glob("x.*")) == []


@pytest.mark.parametrize("contract", contracts.WAITING_FOR_EACH)
def test_nothing_is_lost_to_a_reader_that_waits(contract):
    with rm.Subscriber("x", name="early") as sub, rm.Publisher("x", contract=contract, capacity=4096) as pub:
        sent = 0
        with pytest.raises(rm.Full, match=r"reader 'early' \(pid"):
            while True:
                sent = pub.send(b"%d" % sent, timeout=0) + 1
        received = sub.recv_many(1000)
        assert received == [b"%d" % i for i in range(sent)]
        assert sub.lost == 0
        pub.send(b"next", timeout=1)
        assert sub.recv(timeout=0) == b"next"


def test_two_readers_that_wait_both_hold():
    with rm.Subscriber("x") as one, rm.Subscriber("x") as two, rm.Publisher("x", contract="reliable") as pub:
        assert pub.wait_for_readers(2, timeout=0) == 2
        pub.send(b"a")
        assert [one.recv(timeout=0), two.recv(timeout=0)] == [b"a", b"a"]


def test_a_pipe_is_for_the_first_that_waits():
    with rm.Subscriber("x") as first, rm.Subscriber("x") as second, rm.Publisher("x", contract="pipe") as pub:
        pub.send(b"a")
        with pytest.raises(rm.TopicBusy):
            second.recv(timeout=0)
        assert first.recv(timeout=0) == b"a"


@pytest.mark.parametrize("observe", ["always", "pipes"])
def test_an_observer_of_a_pipe_is_not_its_reader(observe):
    with rm.Subscriber("x", observe=observe) as sub, rm.Publisher("x", contract="pipe") as pub:
        with pytest.raises(rm.Timeout):
            pub.wait_for_readers(1, timeout=0)
        pub.send(b"a")
        assert sub.recv(timeout=0) == b"a"
        with rm.Subscriber("x") as reader:
            assert reader.recv(timeout=0) == b"a"


def test_what_observes_pipes_reads_other_topics_from_the_start():
    with rm.Subscriber("x", observe="pipes") as sub, rm.Publisher("x", contract="reliable") as pub:
        assert pub.wait_for_readers(1, timeout=0) == 1
        pub.send(b"a")
        assert sub.recv(timeout=0) == b"a"


@pytest.mark.parametrize("contract", CONTRACTS)
def test_a_reader_that_died_waiting_blocks_no_writer(contract, child, runtime_dir):
    reader = child("sub = rm.Subscriber('x'); say('waits'); hear()")
    assert reader.line() == "waits"
    reader.kill()
    with rm.Publisher("x", contract=contract, capacity=4096) as pub:
        assert waiting_files(runtime_dir) == []
        if contract == "pipe":  # keeps unread messages for its next reader
            return
        for _ in range(100):
            pub.send(bytes(100), timeout=1)


def test_a_reader_that_dies_enrolled_blocks_no_writer(child, runtime_dir):
    reader = child("sub = rm.Subscriber('x'); say('waits'); hear()")
    assert reader.line() == "waits"
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
        assert pub.wait_for_readers(1, timeout=0) == 1
        reader.kill()
        for _ in range(100):
            pub.send(bytes(100), timeout=10)
        assert rm.info("x").readers == []
    assert list(runtime_dir.glob("x.*")) == []


def test_an_enrolled_reader_that_closes_gives_its_slot_back(runtime_dir):
    sub = rm.Subscriber("x")
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
        sub.close()
        assert rm.info("x").readers == []
        for _ in range(100):
            pub.send(bytes(100), timeout=0)
    assert list(runtime_dir.glob("x.*")) == []


def test_an_enrolled_reader_keeps_the_topic(runtime_dir):
    with rm.Subscriber("x") as sub:
        with rm.Publisher("x", contract="reliable") as pub:
            pub.send(b"only")
        assert sub.recv(timeout=0) == b"only"
    assert list(runtime_dir.glob("x.*")) == []


def test_a_topic_is_not_replaced_while_an_enrolled_reader_has_messages_in_it():
    with rm.Subscriber("x", name="early") as sub:
        with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
            pub.send(b"a")
        with pytest.raises(rm.TopicMismatch, match=r"'early' .*has yet to receive"):
            rm.Publisher("x", contract="reliable", capacity=8192)
        assert sub.recv(timeout=0) == b"a"
        with rm.Publisher("x", contract="reliable", capacity=8192) as pub:
            pub.send(b"b")
            assert sub.recv(timeout=0) == b"b"


def test_a_reader_between_two_lives_waits_for_the_next():
    with rm.Subscriber("x") as sub:
        with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
            pub.send(b"a")
            assert sub.recv(timeout=0) == b"a"
        rm.unlink("x", force=True)
        assert sub.try_recv() is None
        with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
            assert pub.wait_for_readers(1, timeout=0) == 1


def test_clean_removes_the_waiting_files_of_processes_that_died(child, runtime_dir):
    reader = child("subs = [rm.Subscriber(name) for name in 'ab']; say('waits'); hear()")
    with rm.Subscriber("b"):
        assert reader.line() == "waits"
        reader.kill()
        assert rm.clean() == []
        assert waiting_files(runtime_dir) == ["b.waiting"]
    assert waiting_files(runtime_dir) == []


def test_a_waiting_file_that_is_garbage_is_replaced(runtime_dir):
    (runtime_dir / "x.waiting").write_bytes(b"garbage" * 9999)
    with rm.Subscriber("x"), rm.Publisher("x") as pub:
        assert pub.wait_for_readers(1, timeout=0) == 1


@pytest.mark.parametrize(("directory_mode", "mode"), [(0o700, 0o600), (0o770, 0o660)])
def test_the_group_may_enrol_where_it_may_create(directory_mode, mode, runtime_dir):
    runtime_dir.chmod(directory_mode)
    with rm.Subscriber("x"):
        assert stat.S_IMODE((runtime_dir / "x.waiting").stat().st_mode) == mode


def test_where_no_waiting_file_can_be_opened_all_goes_on_without(runtime_dir):
    """Another user's file, or here one that is a link: refused, as a topic would be."""
    (runtime_dir / "x.waiting").symlink_to(runtime_dir / "elsewhere")
    with rm.Subscriber("x") as sub, rm.Publisher("x") as pub:
        with pytest.raises(rm.Timeout):
            pub.wait_for_readers(1, timeout=0)
        pub.send(b"a")
        assert sub.recv(timeout=0) == b"a"


def test_a_child_does_not_leave_for_its_parent(runtime_dir):
    with rm.Subscriber("x") as sub:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                sub.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        with rm.Publisher("x", contract="reliable") as pub:
            assert pub.wait_for_readers(1, timeout=0) == 1
