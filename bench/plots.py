"""Draws a run of bench/results/ as SVG files next to it: `python -m bench.plots [FILE]`. Needs matplotlib; without it,
it says so and draws nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import runs

PLOTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "throughput": ("messages a second, one process to another", ("32 B", "1 KB", "64 KB", "1 MB", "6 MB")),
    "fans": (
        "messages a second, several processes",
        ("one → three, 32 B", "one → three, 64 KB", "three → one, 32 B", "three → one, 64 KB"),
    ),
    "objects": ("a second, one process to another", ("typed", "numpy frame, 6 MB")),
    "round-trips-by-default": (
        "round trip, µs",
        tuple(f"round trip {p}, by default" for p in ("p50", "p99", "p99.9")),
    ),
    "round-trips-spinning": ("round trip, µs", tuple(f"round trip {p}, spinning" for p in ("p50", "p99", "p99.9"))),
    "round-trips-sleeping": ("round trip, µs", tuple(f"round trip {p}, sleeping" for p in ("p50", "p99", "p99.9"))),
    "publish": ("ns a publish", tuple(f"publish to {count} readers" for count in (1, 4, 15, 60))),
    "costs": ("", ("CPU of a second's wait", "memory of a pair")),
}
OURS, THEIRS = "#c8102e", "#8a8d91"


def groups_of(run: Mapping[str, Any]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """The cells in which several libraries were measured, by group and library."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for cell in run["cells"]:
        group, bar, who = cell["name"].partition(" | ")
        if bar:
            found.setdefault(group, {})[who] = cell
    return found


def draw(run: Mapping[str, Any]) -> list[Path]:
    try:
        import matplotlib
    except ImportError:
        print("plots: skipped, there is no matplotlib here (pip install 'ringmain[bench]')")
        return []
    matplotlib.use("svg")
    # The same run gives the same file; letters stay letters, so that it is small.
    matplotlib.rcParams.update({"svg.hashsalt": "ringmain", "svg.fonttype": "none"})
    groups = groups_of(run)
    drawn = []
    for name, (label, wanted) in PLOTS.items():
        there = [group for group in wanted if group in groups]
        if there:
            drawn.append(_draw(name, label, {group: groups[group] for group in there}))
    return drawn


def _draw(name: str, label: str, groups: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Path:
    from matplotlib import pyplot

    tallest = max(len(cells) for cells in groups.values())
    figure, axes = pyplot.subplots(1, len(groups), figsize=(4.2 * len(groups), 0.6 + 0.26 * tallest), squeeze=False)
    for axis, (group, cells) in zip(axes[0], groups.items(), strict=True):
        there = [(who, cell) for who, cell in cells.items() if cell["median"] is not None]
        best_last = sorted(there, key=lambda one: one[1]["median"], reverse=there[0][1]["lower_is_better"])
        for at, (who, cell) in enumerate(best_last):
            low, high = cell["spread"]
            median = max(cell["median"], 1e-3)
            around = [[max(0.0, median - low)], [max(0.0, high - median)]]
            axis.barh(at, median, xerr=around, color=OURS if who.startswith("ringmain") else THEIRS, height=0.7)
            axis.text(max(median, high), at, f" {runs.amount(cell['median'])}", va="center", fontsize=7)
        axis.set_yticks(range(len(best_last)), [who for who, _ in best_last], fontsize=7)
        axis.set_xscale("log")
        axis.margins(x=0.2)
        axis.set_title(group, fontsize=9)
        axis.set_xlabel(label or best_last[0][1]["unit"], fontsize=7)
        axis.tick_params(axis="x", labelsize=7)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = runs.DIRECTORY / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else runs.newest()
    if path is None:
        raise SystemExit("bench/results/ has no figures: run `make bench` first")
    print("\n".join(map(str, draw(runs.load(path)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
