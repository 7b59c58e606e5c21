"""Who waits goes on, whatever it waits for and however: a few of the cases, once. `make lab` has all, and the times."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import shortages
import survivors
import system_calls

SAMPLE = 12


@pytest.mark.parametrize("by", survivors.OBSTACLES)
def test_they_go_on(by, seed):
    """However long it took; but they did."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / "survivors.py", "--by", by, "--sample", "3", "--seed", str(seed), "--runs", "1"],
        env={**os.environ, "RINGMAIN_LAB": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    print(done.stdout)
    assert "bars are met" in done.stdout, done.stderr
    assert " inf" not in done.stdout


def test_every_way_to_wait_is_among_them():
    ways = {(case.by, case.way) for case in survivors.cases()}
    assert {way for by, way in ways if by == "turn"} == set(survivors.WAYS)
    assert {way for by, way in ways if by == "message"} == set(survivors.RECEIVING)
    assert {case.cause for case in survivors.cases()} == {"killed", "stopped"}


def all_shortages():
    return [(of, what) for of in shortages.SHORTAGES for what in shortages.CALLS]


def test_a_process_that_has_run_out_of_something_answers_and_the_others_go_on(seed):
    can_refuse = system_calls.can_refuse()  # not under an emulator of another processor, or in a sandbox
    for of, what in random.Random(seed).sample(all_shortages(), SAMPLE):
        if can_refuse or of not in shortages.FILTERED:
            answer = shortages.answer_to(of, what)
            print(f"{of}, {what}: {answer.text}")
            assert not answer.wrong, f"short of {of}, {what}: {answer.wrong}"
