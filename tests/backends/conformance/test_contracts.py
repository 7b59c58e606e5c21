"""What the contracts promise about slow readers, second writers and dead participants, on every backend that has them.

How: readers that do not read while the ring goes round, in one thread, so that every number is exact.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

import ringmain as rm
from tests import contracts
from tests.backends.conformance.conftest import PATIENCE_S, Setting

BYTES = "what fits is counted in bytes"


def fill(pub: rm.Publisher, data: bytes = b"x" * 100) -> int:
    """Send until there is no more room; how many went in."""
    sent = 0
    with suppress(rm.Full):
        while sent < 1000:
            pub.send(data, timeout=0)
            sent += 1
    return sent


@pytest.mark.contracts(*contracts.LAPPING)
@pytest.mark.needs(BYTES)
@pytest.mark.parametrize("on_lap", ["next", "oldest"])
def test_a_slow_reader_is_lapped_and_knows_how_much_it_lost(setting: Setting, on_lap: str) -> None:
    pub, sub = setting.pair(pub={"capacity": 4096}, on_lap=on_lap)
    for i in range(300):
        pub.send(b"%03d" % i)
    received = sub.recv_many(1000)
    assert sub.lost + len(received) == 300
    assert received == [b"%03d" % i for i in range(sub.lost, 300)]
    assert (received == []) == (on_lap == "next")
    with pytest.raises(rm.Timeout) as caught:
        sub.recv(timeout=0)
    said = "300 messages were lost since the last one received" in str(caught.value)
    assert said == (on_lap == "next"), "where the next message does not say it"
    pub.send(b"next")
    assert sub.recv_message(timeout=0).seq == 300
    with pytest.raises(rm.Timeout) as again:
        sub.recv(timeout=0)
    assert "lost" not in str(again.value)


@pytest.mark.contracts(*contracts.LAPPING)
@pytest.mark.needs(BYTES)
def test_what_is_left_in_the_ring_is_received_after_a_lap(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"capacity": 4096})
    for i in range(300):
        pub.send(b"%03d" % i)
    first = sub.recv_message(timeout=0)
    assert first.lost == first.seq == sub.lost > 0
    assert sub.recv_many(1000) == [b"%03d" % i for i in range(first.seq + 1, 300)]


@pytest.mark.contracts(*contracts.WAITING_FOR_EACH)
@pytest.mark.needs(BYTES)
def test_a_writer_waits_for_the_slowest_and_names_it(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"capacity": 4096}, name="the-slow-one")
    sent = fill(pub)
    assert 20 < sent < 40
    with pytest.raises(rm.Full, match=rf"waiting for reader 'the-slow-one' \(pid \d+\), {sent} messages"):
        pub.send(b"x" * 100, timeout=0)
    with pytest.raises(rm.Full) as caught:
        pub.send_many([b"x" * 100] * 3, timeout=0)
    assert caught.value.sent == 0
    assert not pub.all_read
    assert len(sub.recv_many(1000)) == sent
    assert pub.all_read
    assert pub.send(b"again", timeout=0) == sent
    assert sub.recv(timeout=0) == b"again"
    assert sub.lost == 0


@pytest.mark.contracts("pipe")
def test_a_pipe_waits_for_a_reader_that_has_not_come(setting: Setting) -> None:
    pub = setting.publisher(capacity=4096)
    sent = fill(pub)
    with pytest.raises(rm.Full, match="its reader, who has not come yet"):
        pub.send(b"x" * 100, timeout=0.01)
    sub = setting.subscriber()
    received: list[bytes] = []
    while len(received) < sent:
        received += sub.recv_many(100, timeout=PATIENCE_S)
    pub.wait_for_readers(1, timeout=PATIENCE_S)
    pub.send(b"last", timeout=PATIENCE_S)
    assert sub.recv(timeout=PATIENCE_S) == b"last"
    assert sub.lost == 0


@pytest.mark.contracts("pipe")
def test_a_pipe_has_one_reader(setting: Setting) -> None:
    setting.pair(name="the-first")
    with pytest.raises(rm.TopicBusy, match="the-first"):
        setting.subscriber()


@pytest.mark.contracts("pipe")
@pytest.mark.needs("a pipe's next reader goes on")
def test_the_next_reader_of_a_pipe_goes_on(setting: Setting) -> None:
    pub, sub = setting.pair()
    pub.send_many([b"0", b"1", b"2", b"3"])
    assert sub.recv_many(2) == [b"0", b"1"]
    sub.close()
    pub.send(b"4")
    assert setting.subscriber().recv_many(10) == [b"2", b"3", b"4"]


@pytest.mark.contracts(*contracts.WAITING_FOR_EACH)
@pytest.mark.needs(BYTES, "observers of pipe and work")
def test_an_observer_blocks_no_writer(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"capacity": 4096})
    watcher = setting.subscriber(observe="always", on_lap="oldest", name="watcher")
    assert pub.wait_for_readers(1, timeout=0) == 1
    for i in range(300):
        pub.send(b"%03d" % i, timeout=0)
        assert sub.recv(timeout=0) == b"%03d" % i
    seen = watcher.recv_many(1000)
    assert seen == [b"%03d" % i for i in range(watcher.lost, 300)]
    assert watcher.lost > 0
    assert [reader.role for reader in rm.info("t").readers if reader.name == "watcher"] == ["observer"]


@pytest.mark.contracts(*contracts.ONE_WRITER)
def test_a_second_writer_is_refused_by_name(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"name": "the-first"})
    with pytest.raises(rm.TopicBusy, match="the-first"):
        setting.publisher()
    pub.send(b"still here")
    assert sub.recv(timeout=PATIENCE_S) == b"still here"


@pytest.mark.contracts(*contracts.ONE_WRITER)
@pytest.mark.needs("takeover")
def test_a_takeover_stops_the_old_writer(setting: Setting) -> None:
    old, sub = setting.pair()
    old.send(b"old")
    new = setting.publisher(takeover=True)
    assert new.send(b"new") == 1
    with pytest.raises(rm.TakenOver):
        old.send(b"too late")
    assert sub.recv_many(10) == [b"old", b"new"]


@pytest.mark.contracts(*contracts.MANY_TO_ALL)
def test_writers_take_turns_and_share_the_numbers(setting: Setting) -> None:
    one, sub = setting.pair(pub={"sender": "one"})
    two = setting.publisher(sender="two")
    assert [one.send(b"a"), two.send(b"b"), one.send(b"c")] == [0, 1, 2]
    with one.reserve(3) as buffer:
        with pytest.raises(rm.Full, match="whose turn it is to write"):
            two.send(b"not now", timeout=0)
        buffer[:] = b"ddd"
    assert [sub.recv_message(0).sender for _ in range(4)] == ["one", "two", "one", "one"]


@pytest.mark.contracts("bus")
def test_on_a_bus_a_borrowed_message_stays(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"capacity": 4096}, name="borrower")
    pub.send(b"precious")
    with sub.borrow(timeout=0) as message:
        assert 20 < fill(pub) < 40
        with pytest.raises(rm.Full, match="borrower"):
            pub.send(b"x" * 100, timeout=0)
        assert bytes(message.data) == b"precious"
        with pytest.raises(rm.InUse):
            sub.close()
    assert fill(pub) == 1000


@pytest.mark.contracts("broadcast")
@pytest.mark.needs(BYTES)
def test_on_a_broadcast_a_borrowed_message_may_go(setting: Setting) -> None:
    pub, sub = setting.pair(pub={"capacity": 4096})
    pub.send(b"precious")
    with pytest.raises(rm.Lapped, match="message 0"), sub.borrow(timeout=0):
        pub.send_many([b"x" * 100] * 100)


@pytest.mark.needs("start='oldest' and 'newest' find earlier messages")
def test_where_a_newcomer_starts(setting: Setting) -> None:
    pub = setting.publisher()
    pub.send_many([b"0", b"1"])
    late = setting.subscriber(start="oldest")
    assert late.recv_many(10) == [b"0", b"1"]
    late.close()
    assert setting.subscriber(start="next").recv_many(10) == []


@pytest.mark.needs("persist")
def test_a_topic_that_persists_outlives_its_participants(setting: Setting) -> None:
    with rm.Publisher("p", contract=setting.contract, persist=True, backend=setting.backend) as pub:
        pub.send(b"kept")
    sub = setting.subscriber("p", start="oldest")
    assert sub.recv(timeout=0) == b"kept"
    sub.close()
    if setting.backend == "shm":
        rm.unlink("p")


@pytest.mark.needs("topics and info")
@pytest.mark.contracts(*contracts.UNSHARED)
def test_info_knows_the_participants(setting: Setting) -> None:
    pub, _ = setting.pair(pub={"name": "w", "capacity": 4096}, name="r")
    pub.send_many([b"123", b"4567"])
    info = rm.info("t")
    assert (info.contract, info.capacity, info.next_sequence, info.backend) == (
        setting.contract, 4096, 2, setting.backend,
    )  # fmt: skip
    assert [(w.name, w.messages, w.bytes) for w in info.writers] == [("w", 2, 7)]
    assert [(r.name, r.lag_messages) for r in info.readers] == [("r", 2)]
    assert [topic.name for topic in rm.topics()] == ["t"]
    with pytest.raises(rm.TopicBusy):
        rm.unlink("t")
    rm.unlink("t", force=True)
    with pytest.raises(rm.TopicNotFound):
        pub.send(b"")
    with pytest.raises(rm.TopicNotFound):
        rm.info("t")


EARLY = "a reader takes part before its topic exists"


@pytest.mark.needs(EARLY)
def test_a_reader_that_waits_takes_part_from_the_first_message(setting: Setting) -> None:
    sub = setting.subscriber(name="early")
    pub = setting.publisher(capacity=4096)
    assert pub.wait_for_readers(1, timeout=0) == 1
    pub.send(b"first")
    assert not pub.all_read
    assert sub.recv(timeout=0) == b"first"
    assert pub.wait_for_readers(1, timeout=0) == 1


@pytest.mark.contracts(*contracts.WAITING_FOR_EACH)
@pytest.mark.needs(EARLY, BYTES)
def test_a_writer_waits_for_a_reader_that_waited_for_the_topic(setting: Setting) -> None:
    sub = setting.subscriber(name="early")
    pub = setting.publisher(capacity=4096)
    sent = fill(pub)
    with pytest.raises(rm.Full, match="waiting for reader 'early'"):
        pub.send(b"x" * 100, timeout=0)
    assert (len(sub.recv_many(1000)), sub.lost) == (sent, 0)


@pytest.mark.contracts("reliable")
@pytest.mark.needs(EARLY)
def test_a_reader_that_stops_waiting_is_not_waited_for(setting: Setting) -> None:
    sub = setting.subscriber()
    pub = setting.publisher(capacity=4096)
    sub.close()
    assert fill(pub) == 1000


@pytest.mark.needs("min_readers")
def test_a_writer_waits_until_enough_readers_take_part(setting: Setting) -> None:
    pub = setting.publisher(min_readers=2)
    first = setting.subscriber()
    for send in (
        lambda: pub.send(b"x", timeout=0),
        lambda: pub.send_many([b"x"], timeout=0),
        lambda: pub.reserve(1, timeout=0),
        lambda: pub.stream(timeout=0),
    ):
        with pytest.raises(rm.Full, match=r"'t' had [01] of 2 readers within 0 s"):
            send()
    if setting.contract == "pipe":  # has one reader
        return
    second = setting.subscriber()
    assert pub.send(b"a", timeout=0) == 0
    first.close()
    with pytest.raises(rm.Full, match="1 of 2 readers"):
        pub.send(b"b", timeout=0)
    with setting.subscriber():
        pub.send(b"c", timeout=0)
    assert second.recv_many(9) == [b"a", b"c"]


@pytest.mark.needs("min_readers")
def test_asend_waits_for_readers(setting: Setting) -> None:
    pub = setting.publisher(min_readers=1)

    async def main() -> None:
        with pytest.raises(rm.Full, match=r"0 of 1 readers within 0.01 s"):
            await pub.asend(b"x", timeout=0.01)
        sending = asyncio.create_task(pub.asend(b"a", timeout=PATIENCE_S))
        await asyncio.sleep(0)
        sub = setting.subscriber(start="oldest")
        await sending
        assert sub.recv(timeout=0) == b"a"

    asyncio.run(main())


@pytest.mark.needs("persist")
def test_an_existing_topic_can_be_told_to_persist(setting: Setting) -> None:
    with setting.publisher():
        pass
    with pytest.raises(rm.TopicNotFound):
        rm.unlink("t")
    with setting.subscriber() as sub, setting.publisher() as pub:
        assert sub.try_recv() is None
        pub.close()
        with setting.publisher(persist=True) as pub:
            pub.send(b"kept")
        assert sub.recv(timeout=0) == b"kept"
    with setting.publisher() as pub:
        assert pub.next_sequence == 1
    rm.unlink("t")


@pytest.mark.parametrize("bad", [-1, 128, 10**20])
def test_min_readers_is_a_number_of_readers(setting: Setting, bad: int) -> None:
    with pytest.raises(ValueError, match="min_readers is from 0 to 127"):
        setting.publisher(min_readers=bad)
    with pytest.raises(TypeError):
        setting.publisher(min_readers=True)


@pytest.mark.contracts(*contracts.LAPPING)
def test_a_topic_takes_as_many_as_it_was_created_for(setting: Setting) -> None:
    """On zmq there is no limit."""
    with setting.publisher(max_participants=2), setting.subscriber():
        limit = rm.info("t").max_participants
        assert limit in (2, None)
        if limit:
            with pytest.raises(rm.RosterFull, match=r"2 slots.*max_participants"):
                setting.subscriber()
    with pytest.raises(ValueError, match="max_participants is from 2 to 4096"):
        setting.publisher(max_participants=5000)


@pytest.mark.contracts(*contracts.SHARED)
@pytest.mark.needs("all_read")
def test_who_asks_for_no_message_is_not_done_with_the_last(setting: Setting) -> None:
    pub, sub = setting.pair()
    pub.send(b"")
    assert sub.recv(timeout=PATIENCE_S) == b""
    assert sub.recv_many(0) == []
    assert not pub.all_read
    assert sub.try_recv() is None
    assert pub.all_read
