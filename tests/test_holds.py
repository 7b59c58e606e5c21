"""A writer that was refused for want of room is refused again, and writes over nothing.

How: fill a waiting topic, try once too often and then again; then everything sent must come out, in order.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

import ringmain as rm


@pytest.mark.parametrize("contract", ["pipe", "reliable"])
def test_a_second_try_is_refused_too(contract: rm.publisher.Contract) -> None:
    with rm.Publisher("x", contract=contract, capacity=4096) as pub, rm.Subscriber("x") as sub:
        sent = 0
        with suppress(rm.Full):
            while True:
                pub.send(b"%d" % sent * 50, timeout=0)
                sent += 1
        for _ in range(3):
            with pytest.raises(rm.Full):
                pub.send(b"one too many" * 10, timeout=0)
        assert sub.recv_many(1000) == [b"%d" % i * 50 for i in range(sent)]
        assert sub.lost == 0
