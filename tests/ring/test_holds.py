"""A writer that was refused for want of room is refused again, and writes over nothing; one that dies in the middle of
a large batch leaves a sound ring.

How: fill a waiting topic, try once too often and then again; then everything sent must come out, in order. And a child
that dies at a labelled point while it sends many times what the ring holds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

import ringmain as rm
from ringmain.testing import die_at
from tests import contracts
from tests.conftest import PATIENCE_S


@pytest.mark.parametrize("contract", contracts.WAITING_FOR_EACH)
def test_a_second_try_is_refused_too(contract: rm._publisher.Contract) -> None:
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


@pytest.mark.parametrize("nth", [20, 200, 999])
def test_a_death_in_the_middle_of_a_batch_larger_than_the_ring_leaves_a_sound_ring(nth: int) -> None:
    program = "import ringmain as rm; rm.Publisher('x').send_many([b'x' * 100] * 1000)"
    rm.Publisher("x", capacity=4096, persist=True).close()
    with rm.Subscriber("x", on_lap="oldest") as sub:
        environment = {**os.environ, **die_at("publish: written, not committed", nth)}
        died = subprocess.run([sys.executable, "-c", program], env=environment, timeout=PATIENCE_S, check=False)
        assert died.returncode == -signal.SIGKILL
        before = len(sub.recv_many(1000)) + sub.lost
        assert before < nth
        with rm.Publisher("x") as pub:
            assert pub.send(b"after") == before
            assert sub.recv(timeout=0) == b"after"
    rm.unlink("x")
