"""A process dies at every step of the protocol at which one can die, and the others go on.

How: `arena.py` runs real processes that do everything there is to do on each contract, and logs which crash points each
passes. Then it runs each again with the process killed (SIGKILL) at that point, while a writer and readers run. They
check every message; they must receive the next one; and when they have left, no file may be left. Then two processes
die in one scenario, and one is stopped (SIGSTOP) for a second. `make lab` runs all pairs; here a seeded sample.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringmain.testing import crash_points, die_at, stop_at

from .run_all import CONTRACTS, Scenario, play, ring_points

pytestmark = pytest.mark.long

# Whether a process sleeps, keeps the turn or reaps depends on the pace of the others, so an act may miss these points;
# no contract may.
DEPENDS_ON_PACE = (
    "turn: asked for, not taken",
    "publish: turn taken",
    "publish: at rest, turn kept",
    "reap: message given back, hold kept",
    "publish: about to sleep",
    "read: about to sleep",
    "work: about to sleep",
    "bell: rung, sleepers not woken",
)


@pytest.fixture(scope="module")
def deaths() -> list[Scenario]:
    return play("die")


def seeded() -> str:
    seed = os.environ.get("RINGMAIN_SEED", str(time.time_ns() % 1_000_000))
    print(f"sampled with RINGMAIN_SEED={seed}")
    return seed


def failures(scenarios: list[Scenario]) -> str:
    return "\n".join(str(s) for s in scenarios if s.error)


def missed(scenarios: list[Scenario]) -> str:
    return "\n".join(str(s) for s in scenarios if not all(s.reached) and not depends_on_pace(*s.points[0]))


def depends_on_pace(act: str, label: str) -> bool:
    # "create" removes the topic only if it leaves before the others have come; "leave as the last" always does.
    return label in DEPENDS_ON_PACE or (act == "create" and label.startswith("retire:"))


def test_the_others_go_on_wherever_a_process_dies(deaths: list[Scenario]) -> None:
    assert not failures(deaths)
    assert {s.contract for s in deaths} == set(CONTRACTS)


def test_every_act_dies_at_every_point_it_passes(deaths: list[Scenario]) -> None:
    assert not missed(deaths)


def test_no_crash_point_is_left_out(deaths: list[Scenario]) -> None:
    reached = {label for s in deaths for (_, label), died in zip(s.points, s.reached, strict=True) if died}
    assert reached >= set(ring_points())  # more, where the pace let a process pass one that it may miss


def test_programs_of_cpp_die_at_every_point() -> None:
    """On each contract, each point in one act that passes it; `make lab` has all of these."""
    seed = seeded()
    deaths = play("die", "--cpp", "victims", "--once", "--seed", seed)
    assert not failures(deaths), f"RINGMAIN_SEED={seed}\n{failures(deaths)}"
    assert not missed(deaths), f"RINGMAIN_SEED={seed}\n{missed(deaths)}"
    assert {label for s in deaths for _, label in s.points} >= set(ring_points()) - set(DEPENDS_ON_PACE)


def test_programs_of_cpp_go_on_where_one_of_python_dies() -> None:
    """A few seconds of it; `make lab` has them all."""
    seed = seeded()
    deaths = play("die", "--cpp", "survivors", "--once", "--seed", seed, "--parallel", "2", "--seconds", "10")
    assert not failures(deaths), f"RINGMAIN_SEED={seed}\n{failures(deaths)}"
    assert any(all(s.reached) for s in deaths)


def test_the_others_go_on_when_two_die() -> None:
    seed = seeded()
    pairs = play("pair", "--seed", seed, "--seconds", "10")
    assert not failures(pairs), f"RINGMAIN_SEED={seed}\n{failures(pairs)}"
    assert sum(all(s.reached) for s in pairs) > len(pairs) / 2


def test_a_stopped_process_is_named_or_not_waited_for() -> None:
    stops = play("stop", "--parallel", "6")
    assert not failures(stops)
    assert not missed(stops)
    assert any(s.must_go_on for s in stops)


PUBLISH = (
    "import ringmain as rm\nwith rm.Publisher('t') as p:\n for i in range(9): p.send(b'x'); print(i, flush=True)\n"
)


def test_the_injector_kills_a_program_of_ones_own(tmp_path: Path) -> None:
    label = "publish: written, not committed"
    environment = {**os.environ, "RINGMAIN_DIR": str(tmp_path), **die_at(label, nth=3)}
    child = subprocess.run([sys.executable, "-c", PUBLISH], env=environment, capture_output=True, text=True, timeout=60)
    assert child.returncode == -signal.SIGKILL
    assert child.stdout.split() == ["0", "1"]


def test_the_injector_stops_a_program_until_it_is_told_to_go_on(tmp_path: Path) -> None:
    environment = {**os.environ, "RINGMAIN_DIR": str(tmp_path), **stop_at("publish: claimed, not written")}
    with subprocess.Popen([sys.executable, "-c", PUBLISH], env=environment, stdout=subprocess.PIPE, text=True) as child:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        child.send_signal(signal.SIGCONT)
        assert child.communicate(timeout=60)[0].split() == [str(i) for i in range(9)]


def test_the_ring_ignores_a_plan_for_the_recorder(tmp_path: Path) -> None:
    lab = {"RINGMAIN_LAB": "1", **die_at("record: batch half written")}
    environment = {**os.environ, "RINGMAIN_DIR": str(tmp_path), **lab}
    child = subprocess.run([sys.executable, "-c", PUBLISH], env=environment, capture_output=True, text=True, timeout=60)
    assert child.returncode == 0
    assert len(child.stdout.split()) == 9


def test_the_injector_knows_its_labels() -> None:
    with pytest.raises(ValueError, match="crash_points"):
        die_at("somewhere")
    with pytest.raises(ValueError, match="from 1"):
        die_at(crash_points()[0], nth=0)
