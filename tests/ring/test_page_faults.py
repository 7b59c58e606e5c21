"""Messages meet no page fault: not on the first lap of a ring, and not when large ones are taken in batches.

How: a child counts the faults of its process (getrusage) while it sends and receives one lap, page by page; and while
it takes batches of large messages, after the first. Each page that were not there would be one fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

FIRST_LAP = """
import resource
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
data = bytes(4000)
with rm.Publisher("lap", contract="pipe", capacity="1MiB") as pub, rm.Subscriber("lap") as sub:
    before = faults()
    for _ in range(256):
        pub.send(data)
        sub.recv()
    say(faults() - before)
"""

LARGE_BATCHES = """
import resource
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
data = [bytes(65536)] * 12
with rm.Publisher("large", contract="pipe", capacity="1MiB") as pub, rm.Subscriber("large") as sub:
    def batch():
        pub.send_many(data)
        return sub.recv_many(100)
    for _ in range(3):
        assert len(batch()) == 12  # and freed
    before = faults()
    for _ in range(10):
        assert len(batch()) == 12
    say(faults() - before)
"""


def test_the_first_lap_of_a_ring_has_its_pages(child: Callable[..., Any]) -> None:
    assert int(child(FIRST_LAP).finish()[-1]) < 64  # 256 pages


def test_large_batches_use_the_same_memory_again(child: Callable[..., Any]) -> None:
    assert int(child(LARGE_BATCHES).finish()[-1]) < 500  # ten batches of 192 pages
