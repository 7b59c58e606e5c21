"""Sizes: of messages, from empty to the largest, and of rings, from what a user writes to what is mapped."""

from __future__ import annotations

import re

import pytest

import ringmain as rm
from tests import contracts


@pytest.mark.parametrize("contract", contracts.UNSHARED)
def test_the_largest_message_fits_and_one_byte_more_does_not(contract):
    share = 2 if contract in contracts.LAPPING else 1
    with rm.Publisher("x", contract=contract, capacity=8192) as pub, rm.Subscriber("x") as sub:
        largest = pub.max_message_bytes
        assert 8192 // share - 64 <= largest < 8192 // share
        for _ in range(5):  # at every offset of the ring
            pub.send(b"small", timeout=0)
            assert sub.recv(timeout=0) == b"small"
            pub.send(b"x" * largest, timeout=0)
            assert sub.recv(timeout=0) == b"x" * largest
        with pytest.raises(rm.MessageTooLarge) as caught:
            pub.send(b"x" * (largest + 1))
        with pytest.raises(rm.MessageTooLarge):
            pub.send_many([b"fits", b"x" * (largest + 1)])
        with pytest.raises(rm.MessageTooLarge):
            pub.reserve(largest + 1)
        with pytest.raises(rm.MessageTooLarge), pub.stream() as out:
            for _ in range(100):
                out.write(b"x" * (largest // 10))
        assert sub.try_recv() is None
        assert str(largest) in str(caught.value)
    wanted = int(re.search(r"capacity=(\d+)", str(caught.value))[1])
    with rm.Publisher("x", contract=contract, capacity=wanted) as pub, rm.Subscriber("x") as sub:
        pub.send(b"x" * (largest + 1))
        assert len(sub.recv(timeout=0)) == largest + 1


def test_sender_and_kind_count():
    with rm.Publisher("x", contract="pipe", capacity=4096, sender="s" * 100) as pub, rm.Subscriber("x") as sub:
        with pytest.raises(rm.MessageTooLarge):
            pub.send(b"x" * pub.max_message_bytes, kind="k" * 100)
        size = pub.max_message_bytes - 200
        pub.send(b"x" * size, kind="k" * 100)
        message = sub.recv_message(timeout=0)
        assert (message.sender, message.kind, len(message.data)) == ("s" * 100, "k" * 100, size)


@pytest.mark.parametrize("contract", contracts.ALL)
def test_empty_messages_are_messages(contract):
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x") as sub:
        for i in range(500):
            assert pub.send(b"") == 3 * i
            pub.send_many([b"", b""])
            assert sub.recv(timeout=0) == b""
            assert sub.recv_message(timeout=0).seq == 3 * i + 1
            with sub.borrow(timeout=0) as message:
                assert bytes(message.data) == b""


@pytest.mark.parametrize("size", range(40))
def test_every_size_crosses_every_offset(size):
    with rm.Publisher("x", capacity=4096) as pub, rm.Subscriber("x") as sub:
        for i in range(4096 // 24):
            data = bytes((i + k) % 251 for k in range(size))
            pub.send(data)
            assert sub.recv(timeout=0) == data


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (1, 4096), (4096, 4096), (4097, 8192), ("1MiB", 1 << 20), ("1 MB", 1 << 20), ("64KiB", 65536),
        ("1.5MiB", 2 << 20), ("10000", 16384), ("2k", 4096), ("1GiB", 1 << 30),
    ],
)  # fmt: skip
def test_capacity_is_rounded_up(asked, given):
    if given == 1 << 30:
        assert rm._names.parse_capacity(asked) == given
        return
    with rm.Publisher("x", capacity=asked) as pub:
        assert pub.capacity == given == rm.info("x").capacity


@pytest.mark.parametrize("nonsense", [0, -1, "", "lots", "MiB", "-1MiB", "1 XiB", "nan", 1 << 41, "5TiB", "1e6"])
def test_nonsense_is_refused(nonsense):
    with pytest.raises(ValueError, match="capacity"):
        rm.Publisher("x", capacity=nonsense)


@pytest.mark.parametrize("nonsense", [1.5, True, b"1MiB", [4096]])
def test_a_capacity_of_the_wrong_type_is_refused(nonsense):
    with pytest.raises(TypeError, match="capacity"):
        rm.Publisher("x", capacity=nonsense)
