"""What runs long or elsewhere is called by targets that exist, and says so where it cannot run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from bench import bars

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# What `make long` does not run, and why.
NOT_LONG = {
    **dict.fromkeys(("help", "setup", "clean", "format", "pages", "docs"), "shows nothing"),
    **dict.fromkeys(("check", "demo", "bench-quick"), "are short, or part of `test`"),
    "bench": "figures, which want a quiet machine",
    "recovery": "part of `cores`",
    **dict.fromkeys(("abi", "release"), "are asked at a release"),
    "long": "itself",
}

long, cores, numbers = load("tools/long.py"), load("tests/lab/cores.py"), load("tools/readme_numbers.py")


@pytest.mark.parametrize("target", long.TARGETS)
def test_everything_that_runs_long_is_a_target(target):
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


def test_every_target_runs_long_or_says_why_not():
    listed = re.findall(r"^([a-z0-9-]+):.*##", MAKEFILE, re.MULTILINE)
    assert set(listed) - {"test-native"} == {*long.TARGETS, *NOT_LONG}
    assert not NOT_LONG.keys() & long.TARGETS.keys()


def test_the_table_says_what_failed_and_what_was_not_run():
    table = long.table(
        {
            "test": {"rc": 0, "seconds": 9, "last": "fine"},
            "lab": {"rc": 2, "seconds": 1, "last": "no"},
            "cores": {"rc": 0, "seconds": 1, "last": "not run: this needs 8 CPUs"},
        }
    )
    lines = {line.split()[0]: line for line in table.splitlines()}
    assert "passed" in lines["test"]
    assert "failed (2)" in lines["lab"]
    assert "not run" in lines["soak"]
    assert "passed" not in lines["cores"]


@pytest.mark.parametrize("part", cores.PARTS, ids=lambda part: part.name)
def test_every_part_of_the_run_on_quiet_cores_is_a_program_that_is_there(part):
    words = part.command[1:]
    program = ROOT / (f"{words[1].replace('.', '/')}.py" if words[0] == "-m" else words[0])
    assert program.is_file() or words[:2] == ("-m", "pytest")


def test_the_run_on_quiet_cores_fits_into_its_time():
    assert sum(part.seconds for part in cores.PARTS) < cores.BUDGET_S
    parts = {part.name for part in cores.PARTS if part.has_bars}
    assert parts - {"rates", "figures"} == {bar.partition(":")[0] for bar in bars.QUIET} - {"shortages"}


def test_a_part_that_takes_too_long_is_ended_with_its_children(tmp_path, capsys):
    left = tmp_path / "left"
    program = f"(sleep 60; touch {left}) & echo begun; wait"
    found = cores.run(cores.Part("slow", "nothing", ("sh", "-c", program), 1, has_bars=False), 0.5)
    assert (found.rc != 0, found.last_lines) == (True, ["begun", "ended after 0.5 s"])
    assert "begun" in capsys.readouterr().out


def test_the_table_has_a_line_for_each_bar_with_the_worst_row():
    rows = [
        {"what": "wakeups: lost (recv)", "found": 0, "limit": 0, "at_most": True, "met": True},
        {"what": "wakeups: lost (wait)", "found": 3, "limit": 0, "at_most": True, "met": False},
    ]
    found = cores.table(cores.worst_rows([cores.Outcome("wakeups", "", 1, 1.0, [], rows, [])]))
    assert found.split() == ["wakeups:", "lost", "3", "≤", "0", "NOT", "MET", "in", "1", "of", "2:", "wait"]


def test_what_quiet_cores_show_is_written_into_the_docs():
    rows = [
        {"what": "wakeups: lost (recv)", "found": 0, "limit": 0, "at_most": True, "met": True},
        {"what": "unrung: ms (a call)", "found": 20.2, "limit": 20, "at_most": True, "met": False},
    ]
    outcome = cores.Outcome("wakeups", "", 1, 20.4, ["much"], rows, ["hunts: why"])
    about = {"date": "2026-11-19T20:00", "command": "make cores", "commit": "0123abc", "machine": "a Xeon", "cores": 16}
    run = {**about, "load": 0.1, "kernel": "6", "python": "3.12", "placements": ["far: CPUs 0, 1"], "not run": ["soak"]}
    run |= {"bars": cores.worst_rows([outcome]), "parts": [vars(outcome)]}
    written = "\n".join(numbers.quiet_cores(numbers.summary_of_cores(run)))
    assert "Measured on 2026-11-19 with `make cores` at commit 0123abc, on a Xeon" in written
    assert "| wakeups: lost | 0 | 1 | ≤ 0 |  |" in written
    assert "| unrung: ms | 20.2 | 1 | ≤ 20 | **not met in 1**: a call |" in written
    assert "| wakeups | **failed (1)**; hunts: why | 20 |" in written
    assert written.endswith("Not run, for want of time: soak.")


def test_on_a_machine_without_such_cores_it_says_so():
    done = subprocess.run(
        ["taskset", "--cpu-list", "0", sys.executable, "tests/lab/cores.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (
        0,
        "not run: this needs 8 CPUs with an L2 each, and this machine has 0",
    )
