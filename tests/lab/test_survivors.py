"""Who waits goes on, whatever it waits for and however: a few of the cases, once. `make lab` has all, and the times."""

from __future__ import annotations

import importlib
import inspect
import os
import random
import re
import subprocess
import sys
from pathlib import Path

from tests.project.test_private_modules import PUBLIC

sys.path.insert(0, str(Path(__file__).parent))

import shortages
import survivors
import system_calls
import waiting

SAMPLE = 8
FOUND = [("threads", "record")]
"""What once was answered wrongly."""
TIMES = re.compile(r"(^|_)timeout(_|$)|^wait_s$|^patience")
"""How a parameter is called that says how long to wait."""


def test_they_go_on(seed):
    """However long it took; but they did. One way for each obstacle."""
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / "survivors.py", "--sample", "1", "--seed", str(seed), "--runs", "1"],
        env={**os.environ, "RINGMAIN_LAB": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )
    print(done.stdout)
    assert "bars are met" in done.stdout, done.stderr
    assert " inf" not in done.stdout


def test_every_way_to_wait_is_among_them():
    played = {(case.by, case.way) for case in survivors.cases()}
    assert played == {(by, way) for by, ways in waiting.WAITING.items() for way in ways}
    assert {case.cause for case in survivors.cases()} == {"killed", "stopped"}


def waits(call) -> bool:
    """Has it a parameter that says how long?"""
    try:
        return any(TIMES.search(name) for name in inspect.signature(call).parameters)
    except (ValueError, TypeError, NameError):  # of a builtin, or with types that are imported for mypy alone
        return False


def calls_that_wait() -> set[str]:
    """All that is public, as `function`, `Class` (where it is made with a timeout) or `Class.method`."""
    found = set()
    for module in PUBLIC.keys() - waiting.ELSEWHERE_ALL.keys():
        there = importlib.import_module(module)
        for name in getattr(there, "__all__", None) or [name for name in vars(there) if not name.startswith("_")]:
            what = getattr(there, name)
            if not (getattr(what, "__module__", None) or "").startswith("ringmain"):
                continue
            if not inspect.isclass(what):
                found |= {name} if callable(what) and waits(what) else set()
            elif not issubclass(what, Exception):
                methods = (each for each in dir(what) if not each.startswith("_"))
                found |= {f"{name}.{each}" for each in methods if waits(getattr(what, each))}
                found |= {name} if waits(what) else set()
    return found


def test_no_public_call_with_a_timeout_is_left_out():
    """A new one has survivors that wait in it, or a reason for having none."""
    ways = {way for of in waiting.WAITING.values() for way in of}
    of_ways = ways | {f"{kind}.{way}" for kind in ("Publisher", "Subscriber") for way in ways}
    found = calls_that_wait()
    assert found - of_ways - waiting.ELSEWHERE.keys() == set(), "in which no survivor waits: see waiting.py"
    assert waiting.ELSEWHERE.keys() - found == set(), "no such call has a timeout"
    assert waiting.ELSEWHERE.keys() & ways == set()
    assert len(found) > 30


def test_no_call_of_the_c_face_that_waits_is_left_out():
    header = (Path(__file__).parents[2] / "native/include/ringmain/ringmain.h").read_text()
    found = set(re.findall(r"\b(ringmain_\w+)\([^()]*const ringmain_wait\* wait\b", header))
    assert len(found) >= 8
    assert found == {way for of in waiting.WAITING.values() for way in of if way.startswith("ringmain_")}


def all_shortages():
    every = [(of, what) for of in shortages.SHORTAGES for what in shortages.CALLS]
    return [one for one in every if one not in shortages.NOT_ANSWERED]


def test_a_process_that_has_run_out_of_something_answers_and_the_others_go_on(seed):
    can_refuse = system_calls.can_refuse()  # not under an emulator of another processor, or in a sandbox
    for of, what in FOUND + random.Random(seed).sample(all_shortages(), SAMPLE):
        if can_refuse or of not in shortages.FILTERED:
            answer = shortages.answer_to(of, what)
            print(f"{of}, {what}: {answer.text}")
            assert not answer.wrong, f"short of {of}, {what}: {answer.wrong}"
