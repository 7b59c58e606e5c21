"""Reads docs/internals/promises.md: the table of runs, and that of the promises."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/internals/promises.md"
FIRST_PROMISES = "\n## What can be lost\n"


@dataclass(frozen=True)
class Promise:
    sentence: str
    page: str
    checks: str
    runs: str


@dataclass(frozen=True)
class Run:
    target: str
    when: str
    seen: str


def _rows(text: str) -> list[list[str]]:
    found = [re.split(r" \| ", line[2:-2]) for line in text.splitlines() if line.startswith("| ")]
    return [row for row in found if len(row) == 4]


def promises() -> list[Promise]:
    body = PAGE.read_text().partition(FIRST_PROMISES)[2]
    return [Promise(row[0], row[1].strip("`"), row[2], row[3]) for row in _rows(body) if row[0] != "promise"]


def runs() -> dict[str, Run]:
    """By the names that the promises have for them."""
    head = PAGE.read_text().partition(FIRST_PROMISES)[0]
    return {row[0]: Run(row[1].strip("`"), row[2], row[3]) for row in _rows(head) if row[0] != "run"}


def not_in_make_test() -> dict[str, str]:
    """Each target that runs what `make test` does not, and when that is run."""
    return {
        run.target: f"{name}: {run.when}"
        for name, run in runs().items()
        if "`make test`" not in (run.when, f"`{run.target}`")
    }
