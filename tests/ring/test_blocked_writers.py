"""A writer behind another one: it sleeps, hears signals, outlives the other, and with timeout=0 waits for the message
of a writer that is at it, and for no more.

How: where many write, a reservation keeps the turn for as long as its block lasts. Whether a wait sleeps is asked of
the kernel. What it costs is measured by `tests/lab/recovery.py`, in hundreds of runs.
"""

from __future__ import annotations

import asyncio
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import ringmain as rm
from ringmain._native import LAYOUT
from tests import asleep, contracts
from tests.conftest import PATIENCE_S
from tests.interrupts import Interrupted, interrupted_after
from tests.lab.ways import SPINS, WAYS

MANY = contracts.MANY_WRITERS
every_kind = pytest.mark.parametrize(("contract", "spin"), [(name, spin) for name in MANY for spin in SPINS])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """A topic with unread messages outlives its publishers."""
    yield
    for topic in rm.topics():
        rm.unlink(topic.name, force=True)


@every_kind
def test_a_writer_behind_one_that_stays_in_its_message_sleeps(contract, spin):
    """The first wait of each way starts what it needs, such as a loop and a thread; the second is looked at."""
    with rm.Publisher("t", contract=contract) as owner, rm.Publisher("t", spin=spin) as pub, owner.reserve(1):
        for name, way in WAYS.items():
            with pytest.raises(rm.Full, match="whose turn it is to write"):
                way(pub, 0.002)
            assert asleep.least_asleep_in(lambda way=way: way(pub, PATIENCE_S)) >= asleep.ENOUGH, name


def test_threads_behind_one_that_is_blocked_in_the_same_publisher_sleep(in_thread):
    with rm.Publisher("t", contract="bus") as owner, rm.Publisher("t") as pub:
        message = owner.reserve(1)
        waits = [in_thread(pub.send, b"x", "", PATIENCE_S) for _ in range(4)]
        time.sleep(0.1)  # so that they are asleep, or ought to be
        assert asleep.least_asleep(os.getpid()) >= asleep.ENOUGH
        message.discard()
        for result in waits:
            result()


@every_kind
def test_a_writer_behind_one_that_stays_in_its_message_hears_signals(contract, spin):
    with rm.Publisher("t", contract=contract) as owner, rm.Publisher("t", spin=spin) as pub, owner.reserve(1):
        for way in WAYS.values():
            with pytest.raises(Interrupted), interrupted_after(0.03):
                way(pub, 3.0)


@every_kind
def test_writers_go_on_when_the_one_whose_turn_it_is_is_killed(contract, spin, child, in_thread):
    """All ways to send wait at once, without a limit; the first to notice frees the turn for all."""
    victim = child("pub = rm.Publisher('t', contract=sys.argv[1]); r = pub.reserve(1); say('in'); hear()", contract)
    assert victim.line() == "in"

    def send(way: Callable[[rm.Publisher, float | None], object]) -> None:
        with rm.Publisher("t", spin=spin) as pub:
            way(pub, None)

    with rm.Publisher("t"), rm.Subscriber("t") as sub:
        sub.try_recv()
        waits = [in_thread(send, way) for way in WAYS.values()]
        time.sleep(0.05)  # so that most are asleep, and some perhaps about to be
        victim.kill()
        for result in waits:
            result()
        assert len(sub.recv_many(100)) == len(WAYS)


@pytest.mark.parametrize("spin", [None, 0, 60.0])
def test_a_spin_ends_with_the_death_of_the_reader_that_holds(spin, child):
    """It spins for a minute if asked to, but not for the dead: else the send would end with its timeout."""
    reader = child("sub = rm.Subscriber('t'); say('in'); hear()")
    with rm.Publisher("t", contract="reliable", capacity=4096, spin=spin) as pub:
        assert reader.line() == "in"
        pub.wait_for_readers(1, timeout=20)
        with suppress(rm.Full):
            while True:
                pub.send(bytes(500), timeout=0)
        with pytest.raises(Interrupted), interrupted_after(0.05):
            pub.send(bytes(500), timeout=20)
        reader.kill()
        pub.send(bytes(500), timeout=20)


def asks_for_the_turn(runtime_dir: Path) -> bool:
    with (runtime_dir / "t.ring").open("rb") as file:
        file.seek(LAYOUT["Header.turn"])
        return bool(struct.unpack("<Q", file.read(8))[0] & 1 << 31)


def sends_without_time(way: Callable[..., object], owner: rm.Publisher, pub: rm.Publisher, runtime_dir: Path) -> bool:
    """While the owner is in the middle of a message, which it ends as soon as it is asked for the turn."""
    message, over = owner.reserve(1), threading.Event()

    def end_when_asked() -> None:
        while not over.is_set() and not asks_for_the_turn(runtime_dir):
            time.sleep(0)
        message.commit()

    ending = threading.Thread(target=end_when_asked)
    ending.start()
    try:
        way(pub, 0.0)
    except rm.Full:
        return False
    finally:
        over.set()
        ending.join()
    return True


@every_kind
def test_no_time_is_enough_where_the_message_of_another_ends_soon(contract, spin, runtime_dir):
    """With timeout=0, `Full` says that there is no room, not that another writer was at it. On a busy machine the other
    may come too late for the millisecond that it has, so it has many."""
    with rm.Publisher("t", contract=contract) as owner, rm.Publisher("t", spin=spin) as pub:
        for name, way in WAYS.items():
            assert any(sends_without_time(way, owner, pub, runtime_dir) for _ in range(200)), name


@every_kind
def test_no_time_ends_soon_behind_one_that_stays_in_its_message(contract, spin):
    """A millisecond for the message that is under way, where a wait would go on: a hundred of them, not one of 30 s."""
    with rm.Publisher("t", contract=contract) as owner, rm.Publisher("t", spin=spin) as pub, owner.reserve(1):
        for way in WAYS.values():
            for _ in range(20):
                with pytest.raises(rm.Full, match=r"within 0 s: .* whose turn it is to write"):
                    way(pub, 0.0)


def test_asend_without_time_does_not_wait_for_room():
    with rm.Publisher("t", contract="pipe", capacity=4096) as pub:
        with suppress(rm.Full):
            while True:
                pub.send(bytes(500), timeout=0)
        with pytest.raises(rm.Full):
            asyncio.run(pub.asend(b"x" * 500, timeout=0))
