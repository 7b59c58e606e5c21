"""Each system call fails once: an answer, and nothing lost, hung or left. `make failing-calls` has all."""

from __future__ import annotations

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import failing_calls as calls

SAMPLES = {name: 1 if name in ("record and seal", "upload", "replay") else 2 for name in calls.PROGRAMS}
"""So many failures of each program. Each starts two processes; those with recordings take seconds to begin."""
FOUND = [
    calls.Failure("send on reliable", "fallocate", "EINTR", 2),
    calls.Failure("send on reliable", "pread64", "EINTR", 2),
    calls.Failure("send on reliable", "pread64", "EIO", 2),
]
"""What once was answered wrongly."""

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@pytest.fixture(scope="module", autouse=True)
def may_trace():
    try:
        calls.uses_of("send on work")
    except PermissionError as error:
        pytest.skip(f"this system allows no tracing: {error}")


@pytest.mark.parametrize("failure", FOUND, ids=str)
def test_what_once_was_wrong(failure):
    answer, wrong = calls.answer_to(failure)
    assert not wrong, f"{failure}: {answer}"


@pytest.mark.parametrize("program", calls.PROGRAMS)
def test_a_call_that_fails_is_answered(program):
    chosen = random.Random(os.environ["RINGMAIN_SEED"])
    every = list(calls.failures_of(program))
    for failure in chosen.sample(every, min(SAMPLES[program], len(every))):
        answer, wrong = calls.answer_to(failure)
        assert not wrong, f"{failure}: {answer}: {wrong}"
