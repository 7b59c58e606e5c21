"""kill -9 of writers and readers at random, under load, on every contract: the others go on, nothing is corrupt,
nothing is left over.

How: one reader in this process checks every message (checksum, numbers that follow each other but for what was lost),
while children that write and read are killed and replaced in an order that comes from the seed.
"""

from __future__ import annotations

import os
import random
import time
import zlib

import pytest

import ringmain as rm
from ringmain._contracts import CONTRACTS
from tests import contracts

LOADED_S = float(os.environ.get("RINGMAIN_LOADED_S", "1.5"))
"""`make test-many` says 20."""

WRITER = """
import random, zlib
chance = random.Random()
while True:
    try:
        pub = rm.Publisher("x", contract=sys.argv[1], capacity=16384)
        break
    except rm.TopicBusy:
        time.sleep(0.001)
say("in")
while True:
    data = chance.randbytes(chance.choice((1, 50, 3000)))
    pub.send(zlib.crc32(data).to_bytes(4, "big") + data)
"""

READER = """
sub = rm.Subscriber("x")
say("in")
while True:
    with sub.borrow() as message: size = len(message.data)
"""


@pytest.mark.parametrize("contract", contracts.ALL)
def test_the_others_go_on(contract, seed, child, until):
    chance = random.Random(seed)
    traits = CONTRACTS[contract]
    checked = 0

    def check_some(sub, count):
        nonlocal checked
        for _ in range(count):
            message = sub.recv_message(timeout=30)  # a writer that waits for a dead process would fail here
            assert zlib.crc32(message.data[4:]).to_bytes(4, "big") == message.data[:4], "torn"
            expected = message.seq if checked == 0 or traits.shared else check_some.next + message.lost
            assert message.seq == expected, "a number was skipped or repeated in silence"
            check_some.next = message.seq + 1
            checked += 1

    with rm.Subscriber("x") as sub:
        writers = [child(WRITER, contract) for _ in range(1 if traits.one_writer else 2)]
        readers = [] if traits.one_reader else [child(READER), child(READER)]
        for one in writers:
            one.line()
        check_some(sub, 1)
        before = sub.lost  # while it had not joined yet
        end = time.monotonic() + LOADED_S
        while time.monotonic() < end:
            check_some(sub, chance.randrange(1, 300))
            side = chance.choice([writers, readers or writers])
            at = chance.randrange(len(side))
            side[at].kill()
            side[at] = child(WRITER, contract) if side is writers else child(READER)
        check_some(sub, 300)
        for one in (*writers, *readers):
            one.kill()
        with rm.Publisher("x", contract=contract) as last:  # the tasks of dead workers come back
            until(lambda: sub.recv_many(100_000) == [] and (last.all_read or not traits.shared))
        if traits.writer_waits:
            assert sub.lost == before
    assert checked > 300
    if traits.shared and rm.topics():
        assert [topic.name for topic in rm.topics()] == ["x.dead"], "a task that several workers died with"
        rm.unlink("x.dead")
    assert rm.topics() == [], "the last to leave removes the topic"
