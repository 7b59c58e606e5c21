"""Puts the figures of the newest run in bench/results/ between the markers in README.md; `--check` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- numbers -->", "<!-- /numbers -->"


def newest() -> dict[str, Any]:
    """The names are times, so the last is the newest."""
    files = sorted((ROOT / "bench" / "results").glob("*.json"))
    if not files:
        raise SystemExit("bench/results/ has no figures: run `make bench` first")
    found: dict[str, Any] = json.loads(files[-1].read_text())
    return found


def amount(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value >= 1e4:
        return f"{value / 1e3:.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def render(run: dict[str, Any]) -> str:
    cells = {cell["name"]: cell for cell in run["cells"] if cell["median"] is not None}
    groups: dict[str, None] = {}
    rows: dict[str, dict[str, str]] = {}
    for name, cell in cells.items():
        group, bar, who = name.partition(" | ")
        if bar:
            groups[group] = None
            place = cell["placement"].split()[0]
            rows.setdefault(who, {})[group] = amount(cell["median"]) + ("" if place == "near" else f" ({place})")
    lines = [
        f"Measured on {run['machine']} ({run['cores']} cores, load {run['load']:.0f} when it began), "
        f"Linux {run['kernel']}, Python {run['python']}, {run['date'][:10]}, "
        f"by `{run['command']}`, commit {run['commit']}.",
        "Medians; within one process, of the fastest tenth of the bursts. Messages a second from one process to",
        "another by size, round trips at 32 B in µs. *far*: the two cores share no cache; *crowded*: others kept the",
        "two processes from running together. System calls are those beyond a run that sends nothing.",
        "",
    ]
    if rows:
        lines.append("| | " + " | ".join(groups) + " |")
        lines.append("|---|" + "---|" * len(groups))
        for who, row in rows.items():
            lines.append(f"| {who} | " + " | ".join(row.get(group, "") for group in groups) + " |")
        lines.append("")
    if own := [cell for name, cell in cells.items() if " | " not in name]:
        lines += ["| ringmain and its floors | median |", "|---|---|"]
        lines += [f"| {cell['name']} | {amount(cell['median'])} {cell['unit']} |" for cell in own]
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    readme = ROOT / "README.md"
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"README.md has no {BEGIN} … {END} to put the figures between")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    made = f"{head}{BEGIN}\n{render(newest())}{END}{tail}"
    if "--check" in sys.argv[1:]:
        if made != text:
            raise SystemExit("README.md is not up to date: run tools/readme_numbers.py")
        return 0
    readme.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
