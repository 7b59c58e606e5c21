"""Every frame's pixels are checked against its id while readers hold frames for random times and are killed at random.

One publisher fills buffers in place as fast as it can. Readers look at every pixel when a frame comes and again when
they have held it for a while, and some keep arrays beyond the block; a frame that changed under a reader's eyes, or
mixes two ids, ends the test. Readers are killed with SIGKILL in the middle of it and replaced. RINGMAIN_STRESS_KILLS
asks for more.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

import ringmain as rm

KILLS = int(os.environ.get("RINGMAIN_STRESS_KILLS", "10"))
PATIENCE_S = 120.0

PUBLISHER = """
import numpy as np
pub = rm.FramePublisher("s", 8192, "u8", buffers=int(sys.argv[1]), when_full=sys.argv[2])
until = rm.Subscriber("until")
number = 0
while until.try_recv() is None:
    with pub.frame(timeout=60) as f:
        f.id = number
        f.array[:] = number
    number += 1
until.close()
say("sent", number)
pub.close()
"""

READER = """
import numpy as np, random
chance = random.Random(int(sys.argv[1]))
conflate = chance.random() < 0.3
sub = rm.FrameSubscriber("s", conflate=conflate)
until = rm.Subscriber("until")
say("ready")
def check(array, number):
    low, high = int(array.min()), int(array.max())
    if low != number or high != number:
        say("TORN", number, low, high)
        os._exit(1)
kept, last, seen = [], -1, 0
while True:
    try:
        f = sub.recv(timeout=0.2)
    except TimeoutError:  # on a busy machine nothing may come for a while
        if until.try_recv() is None:
            continue
        break
    with f:
        array, number = f.array, f.id
        check(array, number)
        if f.seq <= last or (not conflate and last >= 0 and f.seq != last + 1 + f.lost):
            say("MISCOUNTED", last, f.seq, f.lost)
            os._exit(1)
        last = f.seq
        hold = chance.random()
        if hold < 0.05:
            time.sleep(chance.random() * 0.01)
        elif hold < 0.5:
            for _ in range(chance.randrange(2000)): pass
        check(array, number)
    if chance.random() < 0.02:
        kept.append((array, number))
    if len(kept) > 1 or (kept and chance.random() < 0.1):
        check(*kept.pop(0))
    del array
    seen += 1
for array, number in kept:
    check(array, number)
say("saw", seen)
"""


@pytest.mark.parametrize(("buffers", "when_full"), [(2, "drop"), (4, "wait"), (12, "drop")])
def test_no_torn_frame_ever(child: Callable[..., Any], seed: int, buffers: int, when_full: str) -> None:
    chance = random.Random(seed + buffers)
    start = lambda: child(READER, chance.randrange(1 << 30))  # noqa: E731
    with rm.Publisher("until", contract="reliable") as until:
        publisher = child(PUBLISHER, buffers, when_full)
        until.wait_for_readers(1, timeout=PATIENCE_S)
        living = [start() for _ in range(3)]
        dead: list[Any] = []
        for _ in range(KILLS):
            victim = living.pop(0)
            victim.line(PATIENCE_S)  # it reads
            threading.Event().wait(chance.random() * 0.1)
            victim.kill()
            dead.append(victim)
            living.append(start())
        for reader in living:
            reader.line(PATIENCE_S)
        until.send(b"now")
        sent = int(publisher.finish(PATIENCE_S)[-1].split()[1])
    seen = 0
    for reader in living:
        verdict = reader.line(PATIENCE_S)
        assert verdict.startswith("saw"), verdict
        seen += int(verdict.split()[1])
        reader.finish(PATIENCE_S)
    for reader in dead:
        assert reader._lines.get(timeout=PATIENCE_S) is None, "a reader complained before it was killed"
    assert sent > KILLS
    assert seen > 0
    assert rm.frame_topics() == []
