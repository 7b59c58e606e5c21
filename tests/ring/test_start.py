"""Where a new reader begins: with the next message, the oldest, or the newest that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

import ringmain as rm
from ringmain._native import LAYOUT
from ringmain.testing import fake
from tests import contracts

TO_ALL: Any = contracts.TO_ALL
KEEPING: Any = contracts.KEEPING_UNREAD


@pytest.mark.parametrize("contract", TO_ALL)
def test_last_gives_the_newest_at_once_and_then_all(contract: Any) -> None:
    with rm.Publisher("x", contract=contract) as pub:
        with rm.Subscriber("x", start="newest") as sub:
            assert sub.try_recv() is None  # there is none yet
            pub.send(b"0")
            assert sub.recv(timeout=0) == b"0"
        pub.send_many([b"1", b"2"])
        with rm.Subscriber("x", start="newest") as sub:
            pub.send(b"3")
            first = sub.recv_message(timeout=0)
            assert (first.data, first.seq, first.lost) == (b"2", 2, 0)
            assert sub.recv(timeout=0) == b"3"
            assert sub.lost == 0


@pytest.mark.parametrize("contract", TO_ALL)
@pytest.mark.parametrize("size", [0, 100, 1500, 2000])
def test_last_in_a_ring_that_was_lapped(contract: Any, size: int) -> None:
    with rm.Publisher("x", contract=contract, capacity=4096) as pub:
        for i in range(50):
            pub.send(b"%02d" % i + bytes(size))
            with rm.Subscriber("x", start="newest") as sub:
                assert sub.recv(timeout=0)[:2] == b"%02d" % i


def test_last_when_a_message_as_large_as_the_ring_was_dropped() -> None:
    """Room was made for it, which dropped all others, and it was not sent."""
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub:
        pub.send(b"1")
        pub.reserve(pub.max_message_bytes).discard()
        with rm.Subscriber("x", start="newest") as sub:
            assert sub.try_recv() is None
            pub.send(b"2")
            assert sub.recv(timeout=0) == b"2"


@pytest.mark.parametrize("contract", TO_ALL)
def test_last_when_the_hint_is_of_a_message_that_was_not_committed(contract: Any, runtime_dir: Path) -> None:
    """As a writer leaves it that dies in between. The newest that was committed is found all the same."""
    with rm.Publisher("x", contract=contract) as pub:
        pub.send_many([b"1", b"2"])
        with (runtime_dir / "x.ring").open("r+b") as file:
            file.seek(LAYOUT["Header.commit"])
            commit = file.read(8)
            file.seek(LAYOUT["Header.newest"])
            file.write(commit)
        with rm.Subscriber("x", start="newest") as sub:
            assert sub.recv(timeout=0) == b"2"


@pytest.mark.parametrize("contract", KEEPING)
@pytest.mark.parametrize("backend", ["shm", "fake"])
def test_last_is_not_for_what_is_kept_for_a_reader(contract: Any, backend: Any) -> None:
    with fake(), rm.Publisher("x", contract=contract, backend=backend) as pub:
        pub.send_many([b"1", b"2"])
        with pytest.raises(rm.TopicMismatch, match="start='newest', which skips them, is not for it"):
            rm.Subscriber("x", start="newest", backend=backend)
        with rm.Subscriber("x", start="newest", observe="always", backend=backend) as sub:
            assert sub.recv(timeout=0) == b"2"
        with rm.Subscriber("x", backend=backend) as sub:
            assert sub.recv_many(9) == [b"1", b"2"]


def test_frames_and_latest_begin_with_the_newest() -> None:
    with rm.Publisher("x") as pub, rm.Latest({"x": None}, start="newest") as none_yet:
        pub.send_many([b"1", b"2"])
        assert none_yet.update(0)
        with rm.Latest({"x": None}, start="newest") as latest:
            assert latest.update(0)
            assert latest["x"] == b"2"
    with rm.FramePublisher("f", (2,), "u1") as frames:
        for value in (1, 2, 3):
            frames.send(numpy.full(2, value, "u1"))
        with rm.FrameSubscriber("f", start="newest") as sub, sub.recv(timeout=0) as frame:
            assert frame.array.tolist() == [3, 3]


def test_other_words_are_refused() -> None:
    with pytest.raises(ValueError, match="start is 'next', 'oldest' or 'newest', not 'latest'"):
        rm.Subscriber("x", start="latest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="on_lap is 'next' or 'oldest', not 'newest'"):
        rm.Subscriber("x", on_lap="newest")  # type: ignore[arg-type]
