"""`keep_last_per_kind`: a reader that begins with start="newest" gets the last message of every kind, however long ago
the ring dropped it, and then goes on without a gap or a duplicate."""

from __future__ import annotations

import asyncio
import itertools
import pickle
import random
import select
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pytest

import ringmain as rm
from ringmain import _extension
from ringmain._native import LAYOUT
from ringmain.testing import fake
from tests import contracts

CONTRACTS: Any = contracts.TO_ALL


@pytest.fixture(params=["shm", "fake"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with fake():
        yield request.param


def keeper(contract: Any = "broadcast", backend: Any = "shm", **options: Any) -> rm.Publisher:
    options = {"capacity": 4096, "keep_last_per_kind": True} | options
    return rm.Publisher("prices", contract=contract, backend=backend, **options)


def late(backend: Any = "shm", **options: Any) -> rm.Subscriber:
    return rm.Subscriber("prices", start="newest", backend=backend, **options)


def fill(pub: rm.Publisher, messages: int = 200, kind: str = "filler") -> None:
    """So many that a ring of 4 KiB has nothing older."""
    for i in range(messages):
        pub.send(b"%d" % i, kind)


@pytest.mark.parametrize("contract", CONTRACTS)
def test_the_last_of_each_kind_comes_first_and_then_all(contract: Any, backend: Any) -> None:
    with keeper(contract, backend, sender="feed") as pub:
        for symbol, price in [("A", b"1"), ("B", b"2"), ("A", b"3"), ("C", b"4")]:
            pub.send(price, symbol)
        fill(pub)
        pub.send(b"5", "B")
        with late(backend) as sub:
            pub.send(b"6", "A")
            got = [sub.recv_message(timeout=0) for _ in range(5)]
            assert [(m.kind, m.data, m.seq) for m in got] == [
                ("A", b"3", 2),
                ("C", b"4", 3),
                ("filler", b"199", 203),
                ("B", b"5", 204),
                ("A", b"6", 205),
            ]
            assert {(m.sender, m.topic, m.lost) for m in got} == {("feed", "prices", 0)}
            assert sub.lost == 0
            assert sub.try_recv() is None
            pub.send(b"7", "D")
            assert sub.recv(timeout=0) == b"7"


def test_it_is_only_for_start_last(backend: Any) -> None:
    with keeper(backend=backend) as pub:
        pub.send(b"1", "A")
        fill(pub)
        with rm.Subscriber("prices", backend=backend) as latest:
            assert latest.try_recv() is None
        with rm.Subscriber("prices", backend=backend, start="oldest") as oldest:
            assert oldest.recv_message(timeout=0).kind == "filler"
        with late(backend, conflate=True) as newest:
            assert newest.recv_many(9) == [b"199"]


def test_nothing_sent_nothing_kept(backend: Any) -> None:
    with keeper(backend=backend) as pub, late(backend) as sub:
        assert sub.try_recv() is None
        pub.send(b"1", "A")
        assert sub.recv(timeout=0) == b"1"


@pytest.mark.parametrize("way", ["send", "send_many", "reserve", "stream", "asend"])
def test_every_way_to_send_is_kept(way: str, backend: Any) -> None:
    with keeper(backend=backend) as pub:
        if way == "send_many":
            pub.send_many([b"old", b"last"], "A")
        elif way == "reserve":
            with pub.reserve(4, kind="A") as buffer:
                buffer[:] = b"last"
        elif way == "stream":
            with pub.stream(kind="A") as file:
                file.write(b"last")
        elif way == "asend" and backend == "shm":
            asyncio.run(pub.asend(b"last", "A"))
        else:
            pub.send(b"last", "A")
        fill(pub)
        with late(backend) as sub:
            assert sub.recv_message(timeout=0).data == b"last"


@pytest.mark.parametrize("way", ["recv", "for", "recv_many", "recv_into", "borrow", "recv_batch", "wait", "fileno"])
@pytest.mark.parametrize("contract", CONTRACTS)
def test_every_way_to_receive_gives_them(contract: Any, way: str) -> None:
    with keeper(contract) as pub:
        pub.send(b"1", "A")
        pub.send(b"2", "B")
        fill(pub, kind="A")
        with late() as sub:
            pub.send(b"3", "C")
            got: list[bytes] = []
            if way == "wait":
                assert rm.wait([sub], timeout=0) == [sub]
            if way == "fileno":
                assert select.select([sub], [], [], 0)[0]
            while len(got) < 3:
                if way == "for":
                    got.append(next(sub))
                elif way == "recv_many":
                    got += sub.recv_many(9)
                elif way == "recv_into":
                    buffer = bytearray(8)
                    got.append(bytes(buffer[: sub.recv_into(buffer, timeout=0)]))
                elif way == "borrow":
                    with sub.borrow(timeout=0) as lease:
                        got.append(bytes(lease.data))
                elif way == "recv_batch":
                    got += pyarrow.record_batch(sub.recv_batch())["data"].to_pylist()
                else:
                    got.append(sub.recv(timeout=0))
            assert got == [b"2", b"199", b"3"]
            assert sub.try_recv() is None
            if way == "fileno":
                assert not select.select([sub], [], [], 0)[0]


@pytest.mark.parametrize("contract", CONTRACTS)
def test_borrowed_ones_outlive_the_ring(contract: Any) -> None:
    """They are copies: an array of one stays as it is, blocks no writer, and is not lapped."""
    with keeper(contract) as pub:
        pub.send(bytes(range(8)), "A")
        fill(pub)
        with late() as sub:
            lease = sub.borrow(timeout=0)
            array = numpy.frombuffer(lease, "u1")
            assert sub.recv(timeout=0) == b"199"
            for i in range(300):  # on a waiting contract it must not wait for the array
                pub.send(b"%d" % i, "A", timeout=0)
                assert sub.recv(timeout=0) == b"%d" % i
            assert array.tolist() == list(range(8))
            lease.release()
            del array, lease


def test_asyncio_gives_them() -> None:
    async def receive() -> list[bytes]:
        with late() as sub:
            return [await sub.arecv(timeout=1) for _ in range(2)]

    with keeper() as pub:
        pub.send(b"1", "A")
        fill(pub)
        assert asyncio.run(receive()) == [b"1", b"199"]


def test_screens_apply(backend: Any) -> None:
    with keeper(backend=backend) as pub:
        for kind in "ABC":
            pub.send(kind.encode(), kind)
        fill(pub)
        with late(backend, only_kinds={"B", "C"}) as sub:
            assert sub.recv_many(9) == [b"B", b"C"]
            pub.send(b"b", "B")
            assert sub.recv(timeout=0) == b"b"


def test_a_trace_context_is_no_kind_of_its_own(backend: Any) -> None:
    with keeper(backend=backend, keep_last_per_kind=2) as pub:
        for i in range(300):
            pub._send_as(b"%d" % i, -1, 0, _extension.with_trace("A", f"00-{i:032x}-{i:016x}-01"), 0)
        pub.send(b"x", "B")
        with late(backend) as sub:
            assert sub.recv_many(9) == [b"299", b"x"]
        assert rm.backends.get(backend).info("prices").not_kept == 0


def test_beyond_the_limit_is_counted_and_named(backend: Any) -> None:
    with keeper(backend=backend, keep_last_per_kind=3) as pub:
        for kind in "ABCDE":
            pub.send(kind.encode(), kind)
        fill(pub, kind="A")
        with late(backend) as sub:
            assert sub.recv_many(9) == [b"B", b"C", b"199"]
        info = rm.backends.get(backend).info("prices")
        assert (info.kept_kinds, info.max_kept_kinds, info.not_kept) == (3, 3, 2)


def test_1000_symbols() -> None:
    with keeper(capacity="64KiB") as pub:
        for i in range(3000):
            pub.send(b"%d" % i, f"SYM{i % 1000}")
        with late() as sub:
            got: list[Any] = []
            while many := sub.recv_many(5000):
                got += many
            assert got == [b"%d" % i for i in range(2000, 3000)]


def test_a_message_must_fit_an_entry(backend: Any) -> None:
    with keeper(backend=backend) as pub:
        assert pub.max_message_bytes == 984
        pub.send(bytes(976), "A")
        with pytest.raises(rm.MessageTooLarge, match=r"capacity=2097152 or more, since a topic with"):
            pub.send(bytes(977), "A")
        with pytest.raises(rm.MessageTooLarge):
            pub.reserve(1000, kind="A")
        fill(pub)
        with late(backend) as sub:
            assert sub.recv(timeout=0) == bytes(976)
    with keeper(backend=backend, capacity="2MiB") as pub:
        pub.send(bytes(977), "A")


@pytest.mark.parametrize("contract", contracts.KEEPING_UNREAD)
def test_not_for_contracts_that_keep_what_is_unread(contract: Any, backend: Any) -> None:
    with pytest.raises(ValueError, match=f"not for a {contract} topic: its readers get every message"):
        keeper(contract, backend)


@pytest.mark.parametrize("wrong", [-1, 16385, "yes", None])
def test_what_it_may_be(wrong: Any, backend: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="keep_last_per_kind is True"):
        keeper(backend=backend, keep_last_per_kind=wrong)


def test_it_belongs_to_the_topic(backend: Any) -> None:
    plain = rm.Publisher("prices", contract="bus", backend=backend)
    with plain, pytest.raises(rm.TopicMismatch, match=r"keep_last_per_kind 0.*keep_last_per_kind 1024"):
        keeper("bus", backend, capacity=None)
    with keeper("bus", backend, persist=True) as first:
        first.send(b"1", "A")
        with rm.Publisher("prices", backend=backend, contract="bus") as second:  # keeps as well
            second.send(b"2", "B")
            fill(second)
    # It stays with the topic when all have left.
    with late(backend) as sub:
        assert sub.recv_many(9) == [b"1", b"2", b"199"]
    rm.backends.get(backend).unlink("prices", force=True)


def test_a_new_life_begins_empty(backend: Any) -> None:
    with keeper(backend=backend) as pub:
        pub.send(b"1", "A")
        fill(pub)
    with keeper(backend=backend), late(backend) as sub:
        assert sub.try_recv() is None


def test_a_subscriber_that_was_first_gets_each_message_once(backend: Any) -> None:
    with late(backend) as sub, keeper(backend=backend) as pub:
        for kind in "AAB":
            pub.send(kind.encode(), kind)
        assert sub.recv_many(9) == [b"A", b"A", b"B"]


def test_what_was_found_is_received_although_the_topic_goes() -> None:
    pub = keeper()
    pub.send(b"1", "A")
    fill(pub)
    with late() as sub:
        pub.close()
        rm.unlink("prices", force=True)
        assert sub.recv_many(9) == [b"1", b"199"]
        with keeper() as again:
            again.send(b"2", "A")
            assert sub.recv(timeout=0) == b"2"


def test_a_publisher_that_is_passed_on_keeps() -> None:
    with keeper("bus") as pub, pickle.loads(pickle.dumps(pub)) as copy:
        copy.send(b"1", "A")
        fill(copy)
        with late() as sub:
            assert sub.recv(timeout=0) == b"1"


def test_zmq_says_why_not() -> None:
    pytest.importorskip("zmq")
    with pytest.raises(rm.Unsupported, match="keep_last_per_kind"):
        rm.Publisher("prices", backend="zmq", keep_last_per_kind=True)


def test_latest_has_the_newest() -> None:
    with keeper() as pub:
        pub.send(b"1", "A")
        fill(pub)
        with rm.Latest({"prices": None}, start="newest") as latest:
            assert latest.update(0)
            assert latest["prices"] == b"199"


KINDS = 40


def kind_of(number: int) -> str:
    """Some come seldom, and some every third message."""
    return f"k{number * number % 97 % KINDS}"


WRITER = """
import itertools, select
with rm.Publisher("prices", contract=sys.argv[1], capacity=8192, keep_last_per_kind=True) as pub:
    say("ready")
    for i in itertools.count():
        pub.send(b"%d" % i, f"k{i * i % 97 % 40}")
        if i % 64 == 0:  # else the ring is lapped in microseconds, and a reader that is held up is never in time
            time.sleep(0.0001)
        if i % 1000 == 0 and select.select([sys.stdin], [], [], 0)[0]:
            break
"""


@pytest.mark.parametrize("contract", CONTRACTS)
def test_no_gap_and_no_duplicate_while_another_process_writes(contract: Any, child: Any) -> None:
    """Readers join again and again while the writer laps the ring. Each gets the last message of every kind before it
    joined, and then each message once, or counts it as lost."""
    writer = child(WRITER, contract)
    assert writer.line() == "ready"
    for _ in range(100):
        with late() as sub:
            got = [sub.recv_message(timeout=30) for _ in range(60)]
        assert all((int(m.data), kind_of(m.seq)) == (m.seq, m.kind) for m in got)
        check_one_joining([(m.seq, m.kind, m.lost) for m in got])
    writer.tell()
    writer.finish()


def check_one_joining(received: list[tuple[int, str, int]]) -> None:
    """There is a place in the list where the kept messages end and the ring goes on."""
    for end in range(len(received) + 1):
        after = received[end:]
        whole = all(b[0] == a[0] + 1 + b[2] for a, b in itertools.pairwise(after))
        joined = after[0][0] - after[0][2] if after else received[-1][0] + 1
        kept = {kind: seq for seq, kind, _ in received[:end]}
        if whole and kept == {kind_of(i): i for i in range(max(0, joined - 200), joined)}:
            return
    raise AssertionError(received)


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_table_is_an_error_or_another_message_never_a_crash(seed: int, runtime_dir: Path) -> None:
    """Any bytes in the table and in its words of the header: a reader and a writer go on, or raise."""
    random_bytes = random.Random(seed)
    with keeper(keep_last_per_kind=16) as pub:
        for i in range(300):
            pub.send(b"%d" % i, f"k{i % 12}")
        with (runtime_dir / "prices.ring").open("r+b") as file:
            header = file.read(LAYOUT["Header"])
            (data_offset,) = struct.unpack_from("<Q", header, LAYOUT["Header.data_offset"])
            schema_offset, schema_bytes = struct.unpack_from("<QQ", header, LAYOUT["Header.schema_offset"])
            table = schema_offset + schema_bytes
            for _ in range(random_bytes.randrange(1, 200)):
                file.seek(random_bytes.randrange(table, data_offset - 8))
                file.write(random_bytes.choice([random_bytes.randbytes(8), b"\xff" * 8, bytes(8), b"\2" + bytes(7)]))
        with late() as sub:
            got = [message.data for message in iter(sub.try_recv_message, None)]
            assert len(got) <= 16 + 12
        for i in range(300):
            pub.send(b"%d" % i, f"k{i % 12}")
        with late() as sub:
            assert sub.try_recv() is not None


def test_an_impossible_table_is_refused(runtime_dir: Path) -> None:
    with keeper(), (runtime_dir / "prices.ring").open("r+b") as file:
        impossible = [("kept_kinds", 1000), ("kept_kinds", 0), ("kept_kinds", 0xFFFFFFFF), ("kept_entry_bytes", 1)]
        for field, value in impossible:
            at = LAYOUT[f"Header.{field}"]
            file.seek(at)
            before = file.read(4)
            file.seek(at)
            file.write(struct.pack("<I", value))
            file.flush()
            with pytest.raises(rm.Corrupt, match="impossible"):
                late()
            file.seek(at)
            file.write(before)
            file.flush()


OWN = "A;00-" + "front-left-" * 4 + "upper-ab"  # where a trace context begins, this kind has what one begins with


def test_a_kind_that_only_looks_like_a_trace_context_is_a_kind(backend: Any) -> None:
    assert len(OWN) == 1 + 56
    with keeper(backend=backend) as pub:
        pub.send(b"1", "A")
        pub.send(b"2", OWN)
        fill(pub)
        with late(backend, only_kinds={"A", OWN}) as sub, late(backend, ignore_kinds={"A"}) as others:
            assert sub.recv_many(9) == [b"1", b"2"]
            assert others.recv_many(9)[0] == b"2"
