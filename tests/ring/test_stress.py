"""Seeded stress: for each contract several real processes on a small ring, messages that carry their own checksum.

Every delivered message is whole and in order, and for every reader sent = received + lost, exactly; on the waiting
contracts nothing is lost. Sizes are mixed and the ring is small, so that its end is crossed all the time. Writers and
readers use every way of sending and receiving, at random.
"""

from __future__ import annotations

import json

import pytest

import ringmain as rm
from ringmain._contracts import CONTRACTS

WRITER = """
import random, zlib
contract, seed, who, count, largest = sys.argv[1], *map(int, sys.argv[2:])
chance = random.Random(seed * 31 + who)
def body(i):
    size = chance.choice((0, 1, 7, 40, 300, chance.randrange(largest)))
    data = chance.randbytes(size)
    head = b"%d %d %d " % (who, i, zlib.crc32(data))
    return head + data
with rm.Publisher("x", contract=contract, capacity=16384, sender=str(who)) as pub:
    say("ready"); hear()
    i = 0
    while i < count:
        way = chance.randrange(10)
        if way < 6:
            pub.send(body(i), kind="k" * (i % 4), timeout=60); i += 1
        elif way < 7:
            many = [body(i + k) for k in range(min(count - i, chance.randrange(1, 20)))]
            pub.send_many(many, timeout=60); i += len(many)
        elif way < 8:
            data = body(i)
            with pub.reserve(len(data) + 10, timeout=60) as buf:
                buf[:len(data)] = data
                buf.truncate(len(data))
            i += 1
        elif way < 9:
            data = body(i)
            with pub.stream(timeout=60) as out:
                out.write(data[:10]); out.write(data[10:])
            i += 1
        else:  # dropped, and never seen
            buf = pub.reserve(50, timeout=60); buf[:5] = b"DROP!"; buf.discard()
    say("done"); hear()
"""

READER = """
import json, random, zlib
import pyarrow
seed, on_lap, total, all_sent = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
chance, idle = random.Random(seed), False
def over():  # workers share them: there are none left if none came after all were sent
    return received + sub.lost >= total if total else idle and os.path.exists(all_sent)
received, told, last, following = 0, 0, {}, -1
def check(data, seq=None):
    global received, following
    received += 1
    who, i, crc, body = bytes(data).split(b" ", 3)
    assert zlib.crc32(body) == int(crc), "torn"
    assert int(i) > last.get(who, -1), "out of order"
    last[who] = int(i)
    if seq is not None:
        assert seq > following, "numbers go back"
        following = seq
with rm.Subscriber("x", on_lap=on_lap) as sub:
    say("ready")
    while not over():
        way, before = chance.randrange(6), received
        sent = os.path.exists(all_sent)
        try:
            if way == 0:
                check(sub.recv(timeout=0.2))
            elif way == 1:
                message = sub.recv_message(timeout=0.2)
                check(message.data, message.seq)
            elif way == 2:
                for data in sub.recv_many(chance.randrange(1, 50), timeout=0.2): check(data)
            elif way == 3:
                lease = sub.borrow(timeout=0.2)
                try:
                    copy = bytes(lease.data)
                    lease.release()
                except rm.Lapped:
                    received += 1  # delivered, and said to be worthless
                else:
                    check(copy, lease.seq)
            elif way == 4:
                batch = pyarrow.record_batch(sub.recv_batch(chance.randrange(1, 50), timeout=0.2))
                for seq, data in zip(batch["seq"].to_pylist(), batch["data"].to_pylist()): check(data, seq)
            else:
                buffer = bytearray(16384)
                size = sub.recv_into(buffer, timeout=0.2)
                check(buffer[:size])
        except rm.Timeout:
            pass  # the last ones were lost; or a writer hangs, and then the test times out
        idle = sent and received == before
    say(json.dumps([received, sub.lost]))
"""

COUNTS = {"one writer": 30_000, "several": 6_000}


@pytest.mark.parametrize("contract", CONTRACTS.values(), ids=lambda contract: contract.name)
def test_every_message_whole_in_order_and_accounted_for(contract, seed, child, tmp_path):
    writers, readers = (1 if contract.one_writer else 3), (1 if contract.one_reader else 3)
    count = COUNTS["one writer" if contract.one_writer else "several"]
    writing = [child(WRITER, contract.name, seed, who, count, 4000) for who in range(writers)]
    for writer in writing:
        writer.line()
    total, all_sent = writers * count, tmp_path / "all sent"
    each = 0 if contract.shared else total
    reading = [child(READER, seed + k, ("next", "oldest")[k % 2], each, all_sent) for k in range(readers)]
    for reader in reading:
        assert reader.line() == "ready"
    for writer in writing:
        writer.tell()
    for writer in writing:
        assert writer.line(timeout=100) == "done"
    all_sent.touch()
    assert rm.info("x").next_sequence == total
    found = [json.loads(reader.line(timeout=100)) for reader in reading]
    if contract.shared:
        assert sum(received for received, _ in found) == total
    else:
        assert [received + lost for received, lost in found] == [total] * readers
    if contract.writer_waits:
        assert {lost for _, lost in found} == {0}
    for reader in reading:
        reader.finish()
    for writer in writing:
        writer.tell()
        writer.finish()
