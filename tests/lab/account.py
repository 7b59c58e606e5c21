"""Runs the arena for all contracts side by side, and makes a table of what came out.

python tests/lab/account.py            everything: all points, all pairs, all stops; writes the table of the docs
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from ringmain.testing import crash_points

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "internals" / "killed.md"
CONTRACTS = ("broadcast", "pipe", "bus", "reliable")
BEGIN, END = "<!-- table: make lab -->\n", "<!-- end of table -->\n"


@dataclass(frozen=True)
class Scenario:
    """One scenario that was played: who was killed or stopped where, and what became of the others."""

    contract: str
    how: str
    points: tuple[tuple[str, str], ...]
    """(act, label) of each victim."""
    reached: tuple[bool, ...]
    resumed_ms: float | None
    must_go_on: bool
    error: str

    def __str__(self) -> str:
        victims = " and ".join(f"{act!r} at {label!r}" for act, label in self.points)
        return f"{self.contract}: {self.how}, {victims}: {self.error or self.reached}"


def play(what: str, *options: str, timeout_s: float = 280) -> list[Scenario]:
    """All contracts at the same time: they mostly wait."""
    environment = {**os.environ, "RINGMAIN_LAB": "1"}
    arenas = [
        subprocess.Popen(
            [sys.executable, str(HERE / "arena.py"), what, "--contract", contract, *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for contract in CONTRACTS
    ]
    found = []
    for arena in arenas:
        try:
            lines, errors = arena.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            arena.kill()
            lines, errors = arena.communicate()
            errors += f"\nno end within {timeout_s} s"
        if arena.returncode != 0:
            raise AssertionError(f"the arena ended with {arena.returncode}: {errors}")
        found += [scenario(json.loads(line)) for line in lines.splitlines()]
    return found


def scenario(data: dict[str, object]) -> Scenario:
    victims: list[dict[str, str]] = data["victims"]  # type: ignore[assignment]
    return Scenario(
        contract=str(data["contract"]),
        how=str(data["how"]),
        points=tuple((v["act"], v["label"]) for v in victims),
        reached=tuple(data["reached"]),  # type: ignore[arg-type]
        resumed_ms=data["resumed_ms"],  # type: ignore[arg-type]
        must_go_on=bool(data["must_go_on"]),
        error=str(data["error"]),
    )


def milliseconds(scenarios: list[Scenario]) -> str:
    took = sorted(s.resumed_ms for s in scenarios if s.resumed_ms is not None)
    if not took:
        return ""
    return f"{statistics.median(took):.1f} / {took[int(len(took) * 0.99)]:.0f} / {took[-1]:.0f}"


def table(singles: list[Scenario], pairs: list[Scenario], stops: list[Scenario]) -> str:
    """Markdown: deaths a point and contract, then the sums."""
    deaths: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for s in singles:
        deaths[s.points[0][1]][s.contract] += s.reached[0]
    lines = ["| died at | " + " | ".join(CONTRACTS) + " |", "|---" * 5 + "|"]
    for label in (point for point in crash_points() if not point.startswith("frame:")):
        lines.append(f"| {label} | " + " | ".join(str(deaths[label][c] or "") for c in CONTRACTS) + " |")
    both = sum(all(s.reached) for s in pairs)
    lines += [
        "",
        "| | scenarios | failed | until every survivor had its next message, ms (median / 99 % / most) |",
        "|---|---|---|---|",
        f"| one dies | {len(singles)} | {sum(bool(s.error) for s in singles)} | {milliseconds(singles)} |",
        f"| two die | {len(pairs)}, both died in {both} | {sum(bool(s.error) for s in pairs)} | "
        f"{milliseconds(pairs)} |",
        f"| one stops for a second | {len(stops)}, in {sum(s.must_go_on for s in stops)} nobody may wait | "
        f"{sum(bool(s.error) for s in stops)} | |",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    began = time.monotonic()
    singles = play("die", "--later", timeout_s=3600)
    stops = play("stop", "--every-act", timeout_s=3600)
    pairs = play("pair", "--seconds", os.environ.get("PAIR_SECONDS", "0"), timeout_s=7200)
    text = table(singles, pairs, stops)
    print(text)
    for s in singles + pairs + stops:
        if s.error:
            print(s)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + text + END + after)
    print(f"{time.monotonic() - began:.0f} s")
    return int(any(s.error for s in singles + pairs + stops))


if __name__ == "__main__":
    sys.exit(main())
