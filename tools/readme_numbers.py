"""Write the figures of bench/figures.json into README.md (five rows) and into docs/internals/performance.md (every
table), and there those of bench/cores.json, between the markers of each.

python tools/readme_numbers.py RUN      first take those of a run, bench/results/TIME.json, into bench/figures.json;
                                        or those of `make cores`, build/cores.json, into bench/cores.json
python tools/readme_numbers.py          write them
python tools/readme_numbers.py --check  fail if a page does not have the figures
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "bench" / "figures.json"
CORES = ROOT / "bench" / "cores.json"
SIZES = ("32 B", "1 KB", "64 KB", "1 MB", "6 MB")
TABLES: dict[str, tuple[str, ...]] = {
    "Messages per second, one process to another": SIZES,
    "Messages per second, one process to another, CPUs with an L2 each": tuple(f"{size}, far" for size in SIZES),
    "Messages per second that arrive, where they may be lost, and % lost": tuple(
        f"{size}, {what}{at}" for at in ("", ", far") for size in ("32 B", "64 KB") for what in ("loss allowed", "lost")
    ),
    "Round trips at 32 B, µs": tuple(
        f"round trip {centile}, {way}"
        for way in ("by default", "spinning", "sleeping")
        for centile in ("p50", "p99", "p99.9")
    ),
    "Round trips at 32 B, CPUs with an L2 each, µs": tuple(
        f"round trip {centile}, {way}, far"
        for way in ("by default", "spinning", "sleeping")
        for centile in ("p50", "p99")
    ),
    "Several processes, messages per second": tuple(
        f"{way}, {size}{at}"
        for at in ("", ", far")
        for way in ("one → three", "three → one")
        for size in ("32 B", "64 KB")
    ),
    "Work: messages per second, each to one worker, and µs from one task of 1 ms to the next": (
        "work 1 → 3, 32 B",
        "work 3 → 3, 32 B",
        "work, hand-over of 1 ms tasks",
    ),
    "Requests: µs of a call at the median, and calls per second": (
        *(f"request p50, {way}" for way in ("by default", "spinning", "sleeping")),
        "64 clients of a batching server",
    ),
    "Objects per second: typed structs and numpy frames": ("typed", "numpy frame, 6 MB"),
    "Windows of 16 steps with a picture of 224 × 224, for each second of a processor": (
        "16-step windows",
        "16-step windows of JPEG",
        "16-step windows in batches of 8",
    ),
    "Time of one publish, ns, by number of readers": tuple(f"publish to {count} readers" for count in (1, 4, 15, 60)),
    "Cost: ms of processor time, KB of memory, ms until others continue": (
        "CPU of a second's wait",
        "CPU of 1,000 idle subscribers, one process",
        "CPU of 1,000 idle subscribers, 100 processes",
        "memory of a pair",
        "standstill, writer killed in mid-message",
        "standstill, blocking reader killed",
    ),
}
# The README's five rows: what they say, the group of cells, and the way of ringmain that is compared.
README_ROWS: tuple[tuple[str, str, str], ...] = (
    ("32 B messages, one at a time", "32 B", "ringmain"),
    ("64 KB messages", "64 KB", "ringmain"),
    ("6 MB numpy frames", "numpy frame, 6 MB", "ringmain, frames"),
    ("round trip of 32 B, median", "round trip p50, by default", "ringmain"),
    ("one publish to 60 readers", "publish to 60 readers", "ringmain"),
)


def summary(run: dict[str, Any]) -> dict[str, Any]:
    """What the pages show of a run: of each cell one figure, and none of its samples."""
    cells = [
        {
            "name": cell["name"],
            "unit": cell["unit"],
            "median": _rounded(cell["median"]),
            "placement": cell["placement"],
            **({"error": _last_error(cell)} if cell["median"] is None else {}),
        }
        for cell in run["cells"]
    ]
    compared = ("group", "ours", "our_median", "rival", "their_median", "unit", "found", "limit", "met")
    alone = ("what", "found", "at_most", "limit", "met")
    bars = [{key: _rounded(bar[key]) for key in (compared if bar["group"] else alone)} for bar in run["bars"]]
    return {**run, "bars": bars, "cells": cells}


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _last_error(cell: dict[str, Any]) -> str:
    errors: list[str] = [sample["error"] for sample in cell["samples"] if sample["error"]]
    return errors[-1].rpartition(": ")[2] if errors else ""


def summary_of_cores(run: dict[str, Any]) -> dict[str, Any]:
    """The same of a run of `make cores`, and how each of its parts ended."""
    shown = ("what", "found", "at_most", "limit", "rows", "missed", "case")
    bars = [{key: _rounded(bar[key]) for key in shown} for bar in run["bars"]]
    parts = [{key: _rounded(part[key]) for key in ("name", "rc", "seconds", "not_run")} for part in run["parts"]]
    return {**run, "bars": bars, "parts": parts}


def write_figures(run: dict[str, Any], to: Path) -> None:
    """A line for each cell, so that a change of the figures reads as one."""
    lists = {key: run[key] for key in ("bars", "cells", "parts") if key in run}
    lines = json.dumps({**run, **dict.fromkeys(lists)}, indent=1, ensure_ascii=False)
    for key, rows in lists.items():
        text = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in rows)
        lines = lines.replace(f'"{key}": null', f'"{key}": [\n{text}\n ]')
    to.write_text(lines + "\n")


def amount(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value >= 1e4:
        return f"{value / 1e3:.0f}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def about(run: dict[str, Any]) -> list[str]:
    return [
        f"Measured on {run['date'][:10]} with `{run['command']}` at commit {run['commit']}, on {run['machine']}",
        f"({run['cores']} cores, load {run['load']:.0f} at the start), Linux {run['kernel']}, Python {run['python']}.",
        *(f"{line}." for line in run.get("placements", [])),
    ]


def shown(cell: dict[str, Any]) -> str:
    if cell["median"] is None:
        return f"failed: {cell['error']}"
    place = cell["placement"].split()[0] if cell["placement"] else "near"
    return amount(cell["median"]) + ("" if place == "near" else f" ({place})")


def tables(run: dict[str, Any], titles: Iterable[str]) -> list[str]:
    """One row for each library, one column for each group."""
    cells = {cell["name"]: cell for cell in run["cells"]}
    lines = []
    for title in titles:
        rows: dict[str, dict[str, str]] = {}
        for name, cell in cells.items():
            group, bar, who = name.partition(" | ")
            if bar and group in TABLES[title]:
                rows.setdefault(who, {})[group] = shown(cell)
        rows = dict(sorted(rows.items(), key=lambda one: not one[0].startswith("ringmain")))  # ours first, else as run
        groups = [group for group in TABLES[title] if any(group in row for row in rows.values())]
        if groups:
            shared = _shared_start(groups)
            lines += [f"| {title} | " + " | ".join(group[len(shared) :] for group in groups) + " |"]
            lines += ["|---|" + "---|" * len(groups)]
            lines += [
                f"| {who} | " + " | ".join(row.get(group, "") for group in groups) + " |" for who, row in rows.items()
            ]
            lines.append("")
    return lines


def _shared_start(groups: list[str]) -> str:
    """Whole words that all begin with: "round trip", "publish to"."""
    words = [group.split(" ") for group in groups]
    count = 0
    while len(groups) > 1 and all(len(one) > count + 1 and one[count] == words[0][count] for one in words):
        count += 1
    return "".join(f"{word} " for word in words[0][:count])


def floors(run: dict[str, Any]) -> list[str]:
    own = [cell for cell in run["cells"] if " | " not in cell["name"] and cell["median"] is not None]
    if not own:
        return []
    lines = ["| baselines | median |", "|---|---|"]
    return [*lines, *(f"| {cell['name']} | {amount(cell['median'])} {cell['unit']} |" for cell in own), ""]


def factors(run: dict[str, Any]) -> list[str]:
    """Every group in which ringmain and another library were measured, with the factor to the best of them."""
    lines = ["| | ringmain | | best other | | factor | target | |", "|---|---|---|---|---|---|---|---|"]
    for bar in run["bars"]:
        if not bar.get("group"):
            continue
        ours, theirs = amount(bar["our_median"]), amount(bar["their_median"])
        way = bar["ours"].removeprefix("ringmain").strip(", ") or "send, recv"
        lines.append(
            f"| {bar['group']} | {ours} {bar['unit']} | {way} | {theirs} | {bar['rival']} | {bar['found']:.2f} "
            f"| {bar['limit']:g} | {'' if bar['met'] else '**behind**'} |"
        )
    lines += ["", "| compared with its baselines | | target | |", "|---|---|---|---|"]
    for bar in run["bars"]:
        if not bar.get("group"):
            sign = "≤" if bar["at_most"] else "≥"
            met = "" if bar["met"] else "**not met**"
            lines.append(f"| {bar['what']} | {amount(bar['found'])} | {sign} {amount(bar['limit'])} | {met} |")
    return [*lines, ""]


def readme(run: dict[str, Any]) -> list[str]:
    """One table of five rows: ringmain, multiprocessing.Queue, and the best of all other libraries."""
    cells = {cell["name"]: cell for cell in run["cells"]}
    lines = ["| | ringmain | `multiprocessing.Queue` | best other |", "|---|---|---|---|"]
    for what, group, way in README_ROWS:
        if f"{group} | {way}" not in cells:  # on a machine without CPUs that share an L2
            group = f"{group}, far"
        ours = cells[f"{group} | {way}"]
        unit = ours["unit"]
        queue = cells.get(f"{group} | multiprocessing.Queue")
        others = {
            cell["median"]: name.partition(" | ")[2]
            for name, cell in cells.items()
            if name.startswith(f"{group} | ") and " | ringmain" not in name and cell["median"] is not None
        }
        best = min(others) if unit in ("ns", "µs", "ms") else max(others)
        row = (ours["median"], queue["median"] if queue else None)
        shown = [f"{amount(value)} {unit}" if value is not None else "" for value in row]
        lines.append(f"| {what} | {' | '.join(shown)} | {amount(best)} {unit} ({others[best]}) |")
    return [*lines, "", *about(run)]


def performance(run: dict[str, Any]) -> list[str]:
    notes = [
        "Figures are medians; within one process, medians of the fastest tenth of the bursts.",
        "*far*: the two cores share no cache. *crowded*: other load kept the two processes from running together.",
        "",
    ]
    return [*about(run), *notes, *factors(run), *tables(run, TABLES), *floors(run)]


def quiet_cores(run: dict[str, Any]) -> list[str]:
    """Of each bar the row that is nearest to it, or misses it most."""
    lines = [*about(run), "", "| asked of quiet cores | at worst | of | target | |", "|---|---|---|---|---|"]
    for bar in run["bars"]:
        sign = "≤" if bar["at_most"] else "≥"
        missed = f"**not met in {bar['missed']}**: {bar['case']}" if bar["missed"] else ""
        found, limit = amount(bar["found"]), amount(bar["limit"])
        lines.append(f"| {bar['what']} | {found} | {bar['rows']} | {sign} {limit} | {missed.rstrip(': ')} |")
    lines += ["", "| part | | seconds |", "|---|---|---|"]
    for part in run["parts"]:
        ended = "; ".join([f"**failed ({part['rc']})**" if part["rc"] else "passed", *part["not_run"]])
        lines.append(f"| {part['name']} | {ended} | {part['seconds']:.0f} |")
    return [*lines, *(f"\nNot run, for want of time: {name}." for name in run["not run"])]


PAGES: tuple[tuple[str, str, Path, Callable[[dict[str, Any]], list[str]]], ...] = (
    ("README.md", "numbers", FIGURES, readme),
    ("docs/internals/performance.md", "numbers", FIGURES, performance),
    ("docs/internals/performance.md", "cores", CORES, quiet_cores),
)


def take(run: Path) -> None:
    found = json.loads(run.read_text())
    if "parts" in found:
        write_figures(summary_of_cores(found), CORES)
    else:
        write_figures(summary(found), FIGURES)


def main() -> int:
    for run in sys.argv[1:]:
        if run != "--check":
            take(Path(run))
    for name, mark, figures, render in PAGES:
        page, begin, end = ROOT / name, f"<!-- {mark} -->", f"<!-- /{mark} -->"
        text = page.read_text()
        if begin not in text or end not in text:
            raise SystemExit(f"{name} has no {begin} … {end} to put the figures between")
        if not figures.exists():
            continue
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        body = "\n".join(render(json.loads(figures.read_text()))).rstrip()
        made = f"{head}{begin}\n{body}\n{end}{tail}"
        if "--check" not in sys.argv[1:]:
            page.write_text(made)
        elif made != text:
            raise SystemExit(f"{name} is not up to date: run tools/readme_numbers.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
