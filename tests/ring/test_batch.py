"""`recv_batch`: messages as Arrow columns, taken by pyarrow without a copy and without an object for each."""

from __future__ import annotations

import gc
import time

import pyarrow
import pytest

import ringmain as rm


@pytest.fixture
def pair():
    with rm.Publisher("x", contract="reliable", sender="s") as pub, rm.Subscriber("x") as sub:
        yield pub, sub


def test_the_columns(pair):
    pub, sub = pair
    before = time.time_ns()
    pub.send(b"a", kind="k")
    pub.send(b"")
    pub.send(b"ccc", kind="ключ")
    batch = sub.recv_batch(100)
    assert (len(batch), batch.nbytes) == (3, 4)
    table = pyarrow.record_batch(batch)
    table.validate(full=True)
    assert table.schema.names == ["seq", "time_ns", "sender", "kind", "lost", "extension", "data"]
    assert [str(t) for t in table.schema.types] == ["uint64", "int64", *["string"] * 2, "uint64", *["binary"] * 2]
    assert table["seq"].to_pylist() == [0, 1, 2]
    assert table["sender"].to_pylist() == ["s"] * 3
    assert table["kind"].to_pylist() == ["k", "", "ключ"]
    assert table["lost"].to_pylist() == [0, 0, 0]
    assert table["data"].to_pylist() == [b"a", b"", b"ccc"]
    assert all(before <= t <= time.time_ns() for t in table["time_ns"].to_pylist())


def test_an_empty_batch_is_a_batch(pair):
    _, sub = pair
    table = pyarrow.record_batch(sub.recv_batch(100))
    assert table.num_rows == 0
    assert pyarrow.record_batch(sub.recv_batch(0)).num_rows == 0
    with pytest.raises(ValueError, match="0 or more"):
        sub.recv_batch(-1)


def test_limits(pair):
    pub, sub = pair
    pub.send_many([b"x" * 100] * 10)
    assert len(sub.recv_batch(3)) == 3
    assert len(sub.recv_batch(100, max_bytes=250)) == 2
    assert len(sub.recv_batch(100, max_bytes=1)) == 1, "one always fits, or nothing would ever come"
    assert len(sub.recv_batch()) == 4


def test_it_waits_for_the_first(pair, in_thread):
    pub, sub = pair
    result = in_thread(lambda: sub.recv_batch(10, timeout=20))
    pub.send(b"a")
    assert pyarrow.record_batch(result())["data"].to_pylist() == [b"a"]
    assert len(sub.recv_batch(10, timeout=0.01)) == 0


def test_the_data_outlives_everything():
    with rm.Publisher("x", contract="reliable", capacity=4096) as pub, rm.Subscriber("x") as sub:
        pub.send_many([b"%d" % i for i in range(100)])
        batch = sub.recv_batch()
        one, two = pyarrow.record_batch(batch), pyarrow.record_batch(batch)
        assert one["data"].buffers()[2].address == two["data"].buffers()[2].address, "not copied"
        column = one["data"]
        for _ in range(100):
            pub.send(b"z" * 100)
            sub.recv(timeout=0)
    batch.__arrow_c_array__()  # a capsule that is never consumed
    batch.__arrow_c_schema__()
    del batch, one, two, pub, sub
    gc.collect()
    assert column.to_pylist() == [b"%d" % i for i in range(100)]


def test_loss_is_in_the_columns():
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x", on_lap="oldest") as sub:
        for i in range(1000):
            pub.send(b"%d" % i)
        table = pyarrow.record_batch(sub.recv_batch())
        assert table["lost"][0].as_py() == sub.lost == table["seq"][0].as_py()
        assert sum(table["lost"].to_pylist()) + table.num_rows == 1000


def test_large_messages(pair):
    with rm.Publisher("big", contract="pipe", capacity="4MiB") as pub, rm.Subscriber("big") as sub:
        bodies = [bytes([i]) * 1_000_000 for i in range(3)]
        pub.send_many(bodies)
        assert pyarrow.record_batch(sub.recv_batch())["data"].to_pylist() == bodies
