"""Observers: they see what is published, but writers do not wait for them, they do not count as readers, and no reader
loses a message to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

import ringmain as rm
from tests import contracts
from tests.conftest import PATIENCE_S, Child


def test_an_observer_of_a_pipe_leaves_the_readers_slot_and_messages_alone() -> None:
    with rm.Publisher("p", contract="pipe") as pub, rm.Subscriber("p", observe="always", start="oldest") as observer:
        for i in range(10):
            pub.send(b"%d" % i)
        assert [observer.recv(timeout=PATIENCE_S) for _ in range(10)] == [b"%d" % i for i in range(10)]
        with rm.Subscriber("p") as reader:
            assert [reader.recv(timeout=PATIENCE_S) for _ in range(10)] == [b"%d" % i for i in range(10)]
            roles = {p.role for p in rm.info("p").readers}
            assert roles == {"reader", "observer"}
            with pytest.raises(rm.TopicBusy, match="has its one reader"):
                rm.Subscriber("p")


@pytest.mark.parametrize("contract", contracts.WAITING_FOR_EACH)
def test_a_writer_does_not_wait_for_an_observer_which_counts_what_it_missed(
    contract: Literal["pipe", "reliable"],
) -> None:
    with (
        rm.Publisher("t", contract=contract, capacity=4096) as pub,
        rm.Subscriber("t", observe="always", on_lap="oldest") as observer,
        rm.Subscriber("t") as reader,
    ):
        for i in range(1000):
            pub.send(b"%03d" % i, timeout=PATIENCE_S)
            assert reader.recv(timeout=PATIENCE_S) == b"%03d" % i
        seen = []
        while (message := observer.try_recv_message()) is not None:
            seen.append(message)
        assert 0 < len(seen) < 1000
        assert sum(1 + m.lost for m in seen) == 1000
        assert seen[-1].data == b"999"


def test_an_observer_is_not_among_the_readers_that_are_waited_for() -> None:
    with rm.Publisher("t", contract="reliable") as pub, rm.Subscriber("t", observe="always"):
        with pytest.raises(TimeoutError):
            pub.wait_for_readers(1, timeout=0)
        pub.send(b"x")
        assert pub.all_read


def test_observing_pipes_only_is_reading_elsewhere() -> None:
    with rm.Publisher("r", contract="reliable") as pub, rm.Subscriber("r", observe="pipes"):
        assert pub.wait_for_readers(1, timeout=PATIENCE_S) == 1
        assert [p.holding for p in rm.info("r").readers] == [True]
    with rm.Publisher("p", contract="pipe"), rm.Subscriber("p", observe="pipes"):
        assert [(p.role, p.holding) for p in rm.info("p").readers] == [("observer", False)]


def test_what_an_observer_borrows_is_not_held() -> None:
    with (
        rm.Publisher("t", contract="reliable", capacity=4096) as pub,
        rm.Subscriber("t", observe="always", start="oldest") as observer,
    ):
        pub.send(b"first")
        with pytest.raises(rm.Lapped):
            with observer.borrow(timeout=PATIENCE_S) as message:
                assert bytes(message.data) == b"first"
                for _ in range(100):
                    pub.send(b"x" * 100, timeout=0)


def test_a_dead_observer_of_a_full_ring_blocks_no_writer(child: Callable[..., Child]) -> None:
    with rm.Publisher("t", contract="pipe", capacity=4096) as pub, rm.Subscriber("t") as reader:
        process = child("sub = rm.Subscriber('t', observe='always'); say(sub.attached); hear()")
        assert process.line() == "True"
        process.kill()
        for i in range(1000):
            pub.send(b"%d" % i, timeout=PATIENCE_S)
            assert reader.recv(timeout=PATIENCE_S) == b"%d" % i


def test_a_batch_never_mixes_two_lives_of_a_topic() -> None:
    with rm.Subscriber("t") as sub:
        with rm.Publisher("t", capacity=4096) as first:
            assert sub.try_recv() is None, "it joins the first life"
            first.send_many([b"0", b"1", b"2"])
            epoch = first.epoch
        with rm.Publisher("t", capacity=8192) as second:  # another capacity makes the topic anew
            second.send_many([b"0", b"1"])
            batches = [sub.recv_batch(), sub.recv_batch(), sub.recv_batch()]
            assert [(b.epoch, len(b), b.lost) for b in batches] == [(epoch, 3, 0), (second.epoch, 2, 0), (0, 0, 0)]


def test_observe_is_checked() -> None:
    with pytest.raises(ValueError, match="'never', 'pipes' or 'always'"):
        rm.Subscriber("t", observe="sometimes")  # type: ignore[arg-type]
