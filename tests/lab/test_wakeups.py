"""Wake-ups, for a tenth of a second: none is lost. That none is late is for quiet cores: `make cores`."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import system_calls
import wakeups


@pytest.mark.parametrize("hunt", [False, True], ids=["as fast as it goes", "hunt"])
def test_no_wake_up_is_lost(runtime_dir, hunt):
    pairs = list(wakeups.HUNTS if hunt else wakeups.PAIRS)
    if not system_calls.can_refuse():  # under an emulator of another processor, or in a sandbox
        pairs = [pair for pair in pairs if not any(pair.refused)]
    found = wakeups.run(pairs, 0.1, hunt)
    shutil.rmtree(runtime_dir)  # who was woken left without a word
    print(*zip((pair.name for pair in pairs), found, strict=True), sep="\n")
    assert [pair.name for pair, counts in zip(pairs, found, strict=True) if counts.lost] == []


def test_a_call_that_gives_up_is_a_lost_wake_up():
    answers = iter([True, False, True])

    def call():
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    counts = wakeups.work(call, time.monotonic() + 60, False, 0)
    assert (counts.calls, counts.lost) == (3, 1)
