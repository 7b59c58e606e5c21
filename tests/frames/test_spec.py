"""The spec of frames cannot lie: its tables are compared with the compiled offsets, its labels with the code. And what
the guide shows runs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from ringmain._native import FRAMES_LAYOUT
from ringmain.testing import crash_points

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs/spec/frames.md").read_text()
RING_SPEC = (ROOT / "docs/spec/shared-memory.md").read_text()
CODE = "\n".join(path.read_text() for path in (ROOT / "native/frames").glob("*.[ch]pp"))


def rows(title: str, spec: str = SPEC) -> list[list[str]]:
    section = spec.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("struct", ["PoolTable", "BufferState", "Descriptor"])
def test_tables_agree_with_the_compiled_layout(struct: str) -> None:
    written = {row[2].strip("`"): int(row[0]) for row in rows(struct)}
    compiled = {name.split(".")[1]: at for name, at in FRAMES_LAYOUT.items() if name.startswith(struct + ".")}
    assert written == compiled
    fields = sorted((int(row[0]), int(row[1])) for row in rows(struct))
    for (at, size), (following, _) in itertools.pairwise(fields):
        assert at + size <= following
    assert sum(fields[-1]) <= FRAMES_LAYOUT[struct]


def test_constants() -> None:
    assert f"version {FRAMES_LAYOUT['version']}" in SPEC.splitlines()[0]
    assert f"{FRAMES_LAYOUT['max_buffers']} states of {FRAMES_LAYOUT['BufferState']} bytes" in SPEC
    assert f"bit {FRAMES_LAYOUT['hold_shift']} + i" in SPEC


def test_every_ordering_label_is_in_the_table_and_in_the_code() -> None:
    listed = {row[0].strip("[]") for row in rows("Orders")}
    assert set(re.findall(r"\[([A-Z]{4,})\]", CODE)) == listed
    known = listed | {row[0].strip("[]") for row in rows("Orders", RING_SPEC)}
    assert set(re.findall(r"\[([A-Z]{4,})\]", SPEC)) <= known


def test_every_crash_point_is_in_the_table_in_the_code_and_in_a_test() -> None:
    labels = set(re.findall(r'CRASH_POINT\("([^"]+)"\)', CODE))
    assert labels == {row[0].strip("`") for row in rows("Crashes")}
    assert labels == {label for label in crash_points() if label.startswith("frame:")}
    tested = (Path(__file__).parent / "test_processes.py").read_text()
    assert [label for label in labels if label not in tested] == []


def test_every_relaxed_access_says_why() -> None:
    lines = CODE.splitlines()
    for number, line in enumerate(lines):
        if "memory_order_relaxed" in line and not line.startswith("using"):
            near = "\n".join(lines[max(0, number - 12) : number + 1])
            assert "relaxed" in near.replace("memory_order_relaxed", ""), line.strip()


def test_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs/guide/frames.md").read_text()
    names: dict[str, object] = {}
    for match in re.finditer(r"```python\n(.*?)```", text, re.S):
        line = text[: match.start()].count("\n") + 1
        exec(compile("\n" * line + match[1], "docs/guide/frames.md", "exec"), names)
    assert "camera/wide" in capsys.readouterr().out
