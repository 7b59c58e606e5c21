"""Crowds, sizes and bad weather: many participants, many topics, rings of any size, little memory.

How: real topics in /dev/shm, participants spread over processes. Clocks that jump are in tests/test_clock_steps.py.
/dev/shm that is full is in tests/ring/test_names_and_files.py; a thousand million messages and counters that wrap are
in native/tests/endurance.cpp. `make lab` goes up to 4 GiB.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack

import pytest

import ringmain as rm
from tests import contracts
from tests.conftest import Child

LARGEST = int(os.environ.get("RINGMAIN_LARGEST_RING", str(64 << 20)))
"""4 GiB in `make lab`: a ring takes all of its memory when it is made."""

CROWD = """
from contextlib import ExitStack
count = int(sys.argv[1])
with ExitStack() as stack:
    subs = [stack.enter_context(rm.Subscriber("crowd", start="oldest")) for _ in range(count)]
    for sub in subs:
        assert sub.attached
    say("ready")
    received = dict.fromkeys(subs, 0)
    reading = set(subs)
    while reading:
        for sub in rm.wait(list(reading), timeout=60):
            message = sub.try_recv_message()
            if message is None: continue
            received[sub] += 1
            if message.kind == "last": reading.remove(sub)
    say(*(f"{received[sub]}:{sub.lost}" for sub in subs))
    hear()
"""


@pytest.mark.parametrize("contract", contracts.TO_ALL)
def test_sixty_on_one_topic(contract: rm.Contract, child: Callable[..., Child]) -> None:
    """59 readers in six processes and a writer: each accounts for every message."""
    messages = 400
    with rm.Publisher("crowd", contract=contract, capacity=16384) as pub:
        crowds = [child(CROWD, 10 if i else 9) for i in range(6)]
        for crowd in crowds:
            assert crowd.line() == "ready"
        assert pub.wait_for_readers(59, timeout=60) == 59
        topic = rm.info("crowd")
        assert len(topic.writers) + len(topic.readers) == 60
        for i in range(messages):
            pub.send(bytes(i % 100), timeout=60)
        pub.send(b"", kind="last", timeout=60)
        for crowd in crowds:
            for word in crowd.line().split():
                received, lost = map(int, word.split(":"))
                assert received + lost == messages + 1
                assert lost == 0 or contract != "reliable"
        for crowd in crowds:
            crowd.tell("go")
            crowd.finish()


@pytest.mark.descriptors(5000)
def test_a_thousand_topics() -> None:
    names = [f"load/{i}" for i in range(1000)]
    with ExitStack() as stack:
        pubs = [stack.enter_context(rm.Publisher(name, capacity=4096)) for name in names]
        subs = [stack.enter_context(rm.Subscriber(name)) for name in names]
        for i, pub in enumerate(pubs):
            pub.send(b"%d" % i)
        assert [sub.recv(timeout=60) for sub in subs] == [b"%d" % i for i in range(1000)]
        assert {topic.name for topic in rm.topics()} == set(names)
        pubs[777].send(b"x")
        assert rm.wait(subs, timeout=60) == [subs[777]]
    assert rm.topics() == []


def sizes() -> list[int]:
    found = [4096]
    while found[-1] < LARGEST:
        found.append(found[-1] * 4)
    return [min(size, LARGEST) for size in found]


@pytest.mark.parametrize("capacity", sizes())
def test_rings_of_all_sizes(capacity: int) -> None:
    """The largest message the ring takes, twice, so that it crosses the end; the ring's memory comes and goes."""
    if shutil.disk_usage("/dev/shm").free < 2 * capacity:
        pytest.skip("not so much room in /dev/shm")
    with rm.Publisher("size", contract="pipe", capacity=capacity) as pub, rm.Subscriber("size") as sub:
        assert pub.capacity == capacity
        size = min(pub.max_message_bytes, 0xFFFF_0000)
        for mark in (b"a", b"b"):
            with pub.reserve(size, timeout=60) as room:
                room[:1] = room[size - 1 : size] = mark
            with sub.borrow(timeout=60) as message:
                assert (len(message.data), message.data[0], message.data[-1]) == (size, ord(mark), ord(mark))


def test_no_memory_for_the_mapping_is_an_error_that_says_so(child: Callable[..., Child]) -> None:
    """In a process whose address space is nearly used up; what was there before goes on."""
    script = """
import resource
with rm.Publisher("small", capacity=4096) as pub, rm.Subscriber("small") as sub:
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20), -1))
    for _ in range(3):
        try: rm.Publisher("large", capacity="64MiB")
        except (OSError, MemoryError) as error: say(type(error).__name__, error)
    pub.send(b"still here")
    say(sub.recv(timeout=60).decode(), *(topic.name for topic in rm.topics()))
"""
    *errors, last = child(script).finish()
    assert len(errors) == 3
    assert all("emory" in error for error in errors), errors
    assert last == "still here small"
