"""The spec cannot lie: its tables are compared with the offsets the module exports, its labels with the code."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from ringmain._native import LAYOUT

ROOT = Path(__file__).parents[2]
SPEC = (ROOT / "docs/spec/shared-memory.md").read_text()
# Frames have a spec of their own: docs/spec/frames.md, tests/frames/test_spec.py.
NATIVE = {
    path.name: path.read_text()
    for room in ("base", "format", "rule", "topic", "waiting")
    for path in (ROOT / "native" / room).glob("*.[ch]pp")
    if path.name != "pool_layout.hpp"
}


def section(title: str) -> str:
    return SPEC.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(("title", "struct"), [("Header", "Header"), ("Slot", "Slot"), ("Message", "MessageHeader")])
def test_tables_agree_with_the_compiled_layout(title: str, struct: str) -> None:
    written = {row[2].strip("`"): int(row[0]) for row in rows(title)}
    compiled = {name.split(".")[1]: at for name, at in LAYOUT.items() if name.startswith(struct + ".")}
    assert written == compiled


@pytest.mark.parametrize(("title", "struct"), [("Header", "Header"), ("Slot", "Slot"), ("Message", "MessageHeader")])
def test_no_field_overlaps_the_next(title: str, struct: str) -> None:
    fields = sorted((int(row[0]), int(row[1])) for row in rows(title))
    for (at, size), (following, _) in itertools.pairwise(fields):
        assert at + size <= following
    assert sum(fields[-1]) <= LAYOUT[struct]


def test_the_entry_of_a_kept_kind() -> None:
    written = {row[2].strip("`"): int(row[0]) for row in rows("Kept kinds")}
    assert written == {name.split(".")[1]: at for name, at in LAYOUT.items() if name.startswith("KeptEntry.")}


def test_constants() -> None:
    assert f"version {LAYOUT['version']}" in SPEC.splitlines()[0]
    assert f"{LAYOUT['slot_count']} unless the creator asks for more" in SPEC
    assert str(LAYOUT["schema_offset"]) in SPEC
    assert f"of {LAYOUT['Slot']} bytes" in SPEC


def test_every_ordering_label_is_in_the_table_and_in_the_code() -> None:
    code = "\n".join(NATIVE.values())
    named = set(re.findall(r"\[([A-Z][A-Z-]{3,})\]", code))
    listed = {row[0].strip("[]") for row in rows("Orders")}
    assert named == listed
    for row in rows("Orders"):
        for partner in re.findall(r"\[([A-Z-]+)\]", row[3]):
            assert partner in listed


def test_every_crash_point_is_in_the_table_and_in_the_code() -> None:
    code = "\n".join(NATIVE.values())
    labels = re.findall(r'CRASH_POINT\("([^"]+)"\)', code)
    assert set(labels) == {row[0].strip("`") for row in rows("Crashes")}


def test_every_relaxed_access_says_why() -> None:
    """Each relaxed order in the rule has a comment on its line or in the lines just above."""
    for name in ("ring.hpp", "writer.hpp", "reader.hpp", "worker.hpp", "work_queue.hpp"):
        lines = NATIVE[name].splitlines()
        for number, line in enumerate(lines):
            if "memory_order_relaxed" in line:
                near = "\n".join(lines[max(0, number - 8) : number + 1])
                assert "relaxed" in near.replace("memory_order_relaxed", ""), f"{name}:{number + 1}: {line.strip()}"
