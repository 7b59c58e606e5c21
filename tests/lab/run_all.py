"""Runs the lab's scenarios for all contracts, and writes a table of the results.

    python tests/lab/run_all.py                 all points, all stops, all pairs; writes the table of the docs
    python tests/lab/run_all.py --seconds 500   pairs for so long; the next call continues, until all are done
    python tests/lab/run_all.py --every-act     pairs in every act that passes the points, forty thousand: an hour
    python tests/lab/run_all.py --sample --seconds 20     all points and stops, some pairs; keeps and writes nothing

Results are kept in build/lab, and discarded when the native module or the lab itself has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

from ringmain._cli.commands import config
from ringmain._contracts import CONTRACTS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from bench import bars, measured  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "internals" / "killed.md"
RESULTS = HERE.parents[1] / "build" / "lab"
SAMPLE = HERE.parents[1] / "build" / "lab-sample"
results_in = RESULTS
PLAYS: dict[str, tuple[str, ...]] = {
    "die": ("die", "--later"),
    "stop": ("stop", "--every-act"),
    "pair": ("pair",),
    "die-in-cpp": ("die", "--cpp", "victims"),
    "die-before-cpp": ("die", "--cpp", "survivors"),
}
"""What the program is told."""
BEGIN, END = "<!-- table: make lab -->\n", "<!-- end of table -->\n"


def ring_points() -> list[str]:
    """The crash points that the scenarios must reach. Those of frames are reached in tests/frames, those of requests in
    tests/lab/test_requests.py. Which process reaps a worker's messages depends on the pace: tests/lab/test_work.py
    makes one die of it. The topics here keep no last message of each kind: tests/lab/test_kept_kinds.py has one that
    does."""
    labels = importlib.import_module("ringmain._ring_lab").CRASH_POINTS
    elsewhere = ("frame:", "keep:", "serve:", "call:", "reap: message given back")
    return [label for label in labels if not label.startswith(elsewhere)]


@dataclass(frozen=True)
class Scenario:
    """The result of one scenario: which processes were killed or stopped where, and whether the others went on."""

    contract: str
    how: str
    points: tuple[tuple[str, str], ...]
    """(act, label) of each victim."""
    reached: tuple[bool, ...]
    resumed_ms: float | None
    must_go_on: bool
    named: int
    error: str

    def __str__(self) -> str:
        victims = " and ".join(f"{act!r} at {label!r}" for act, label in self.points)
        return f"{self.contract}: {self.how}, {victims}: {self.error or self.reached}"


def play(what: str, *options: str, timeout_s: float = 280) -> list[Scenario]:
    """All contracts at the same time: they mostly wait."""
    arenas = [start(what, contract, *options, stdout=subprocess.PIPE) for contract in CONTRACTS]
    found = []
    try:
        for arena in arenas:
            lines, errors = arena.communicate(timeout=timeout_s)
            if arena.returncode != 0:
                raise AssertionError(f"the arena ended with {arena.returncode}: {errors}")
            found += [scenario(json.loads(line)) for line in lines.splitlines()]
    finally:
        for arena in arenas:
            if arena.poll() is None:
                arena.terminate()
                arena.communicate()
    return found


def start(what: str, contract: str, *options: str, stdout: int | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(HERE / "program.py"), what, "--contract", contract, *options],
        env={**os.environ, "RINGMAIN_LAB": "1"},
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def scenario(data: dict[str, object]) -> Scenario:
    victims: list[dict[str, str]] = data["victims"]  # type: ignore[assignment]
    return Scenario(
        contract=str(data["contract"]),
        how=str(data["how"]),
        points=tuple((v["act"], v["label"]) for v in victims),
        reached=tuple(data["reached"]),  # type: ignore[arg-type]
        resumed_ms=data["resumed_ms"],  # type: ignore[arg-type]
        must_go_on=bool(data["must_go_on"]),
        named=int(data["named"]),  # type: ignore[call-overload]
        error=str(data["error"]),
    )


def milliseconds(scenarios: list[Scenario]) -> str:
    took = sorted(s.resumed_ms for s in scenarios if s.resumed_ms is not None)
    if not took:
        return ""
    share = sum(ms <= 100 for ms in took) / len(took)
    return f"{statistics.median(took):.1f} / {took[int(len(took) * 0.99)]:.0f} / {took[-1]:.0f}; {share:.1%}"


def by_point(scenarios: list[Scenario], head: str) -> list[str]:
    """A row a point, a column a contract: in how many scenarios was it reached?"""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for s in scenarios:
        for (_, label), reached in zip(s.points, s.reached, strict=not s.error):
            counts[label][s.contract] += reached
    lines = [f"| {head} | " + " | ".join(CONTRACTS) + " |", "|---" * (1 + len(CONTRACTS)) + "|"]
    for label in ring_points():
        lines.append(f"| {label} | " + " | ".join(str(counts[label][c] or "") for c in CONTRACTS) + " |")
    return lines


def table(results: dict[str, list[Scenario]]) -> str:
    """Markdown: deaths and stops a point and contract, then the sums."""
    singles, pairs, stops = results["die"], results["pair"], results["stop"]
    failed = {what: sum(bool(s.error) for s in scenarios) for what, scenarios in results.items()}
    both = [s for s in pairs if all(s.reached)]
    labels = {(s.contract, frozenset(label for _, label in s.points)) for s in both}
    blocked = [s for s in stops if s.named]
    lines = [
        "| | scenarios | failed | until every survivor had its next message, ms: "
        "median / 99 % / most; share within 100 ms |",
        "|---|---|---|---|",
        f"| one dies | {len(singles)} | {failed['die']} | {milliseconds(singles)} |",
        f"| two die | {len(pairs)}; both died in {len(both)}, at {len(labels)} different pairs of points | "
        f"{failed['pair']} | {milliseconds(pairs)} |",
        f"| one dies, which is C++ | {len(results['die-in-cpp'])} | {failed['die-in-cpp']} | "
        f"{milliseconds(results['die-in-cpp'])} |",
        f"| one dies, and C++ goes on | {len(results['die-before-cpp'])} | {failed['die-before-cpp']} | "
        f"{milliseconds(results['die-before-cpp'])} |",
        f"| one stops for a second | {len(stops)}; in {sum(s.must_go_on for s in stops)} no process may wait, in "
        f"{len(blocked)} a writer waited and named it | {failed['stop']} | |",
        "",
        *by_point(singles, "died at"),
        "",
        *by_point(stops, "stopped at"),
    ]
    return "\n".join(lines) + "\n"


# ----------------------------------------------------------------------------------------------- the whole of it


def concluded(to: Path | None) -> int:
    """Of a sample: its bar, and nothing is kept."""
    found, left = collect(every_act=False)
    scenarios = list(itertools.chain(*found.values()))
    failed = [s for s in scenarios if s.error]
    for s in failed:
        print(s)
    for what, each in found.items():
        print(f"{what}: {len(each)} played, until every survivor had its next message, ms: {milliseconds(each)}")
    shutil.rmtree(SAMPLE)
    missing = [one for one in left if not one.startswith("pair, ")]
    made = bars.quiet("lab: scenarios in which somebody did not go on", len(failed), f"of {len(scenarios)}")
    return measured.conclude([made], to, missing) or int(bool(missing))


def fingerprint() -> str:
    """Of what is tested, and of what tests it: results of another do not count."""
    native = importlib.util.find_spec("ringmain._ring_lab")
    assert native is not None
    assert native.origin is not None
    files = [
        Path(native.origin),
        *(HERE / f"{name}.py" for name in ("child_processes", "actors", "arena", "program", "face")),
    ]
    files += (config.root() / "lab").glob("libringmain.so.*")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def forget_what_is_stale() -> None:
    stamp = results_in / "fingerprint"
    if not stamp.exists() or stamp.read_text() != fingerprint():
        shutil.rmtree(results_in, ignore_errors=True)
        results_in.mkdir(parents=True)
        stamp.write_text(fingerprint())


def results_file(what: str, contract: str, every_act: bool) -> Path:
    return results_in / f"{what}-{contract}{'-every-act' if every_act and what == 'pair' else ''}.jsonl"


def collect(every_act: bool) -> tuple[dict[str, list[Scenario]], list[str]]:
    """What was played so far, and what of the plan is left."""
    found: dict[str, list[Scenario]] = {what: [] for what in PLAYS}
    left = []
    for what, contract in itertools.product(PLAYS, CONTRACTS):
        file = results_file(what, contract, every_act)
        if not file.exists():
            left.append(f"{what}, {contract}: all")
            continue
        lines = file.read_text().splitlines()
        found[what] += [scenario(json.loads(line)) for line in lines]
        planned = len(json.loads(file.with_suffix(".plan").read_text()))
        if planned > len(lines):
            left.append(f"{what}, {contract}: {planned - len(lines)} of {planned}")
    return found, left


def write_table(every_act: bool) -> int:
    results, left = collect(every_act)
    for s in itertools.chain(*results.values()):
        if s.error:
            print(s)
    text = table(results)
    if left:
        text += "\n**Not played yet:** " + "; ".join(left) + ".\n"
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + BEGIN + text + END + after)
    print(text)
    return 1 if any(s.error for s in itertools.chain(*results.values())) else 3 if left else 0


def main() -> int:
    global results_in
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0, help="of pairs, in this call; 0 plays all")
    parser.add_argument("--parallel", type=int, default=os.cpu_count() or 2, help="so many scenarios side by side")
    parser.add_argument("--every-act", action="store_true", help="pairs in every act that passes the points")
    parser.add_argument(
        "--table", action="store_true", help="play nothing: the table of what was played, and what is left"
    )
    parser.add_argument("--sample", action="store_true", help="play what fits, print it, and write no table")
    measured.add_option(parser)
    options = parser.parse_args()
    if options.sample:
        results_in = SAMPLE
        shutil.rmtree(SAMPLE, ignore_errors=True)
    if options.table:
        return write_table(options.every_act)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # and the arena with us
    forget_what_is_stale()
    deadline = time.monotonic() + (options.seconds or 1e9)
    for number, (what, contract) in enumerate(itertools.product(PLAYS, CONTRACTS)):
        share = (deadline - time.monotonic()) / (len(PLAYS) * len(CONTRACTS) - number)
        if options.sample:
            share = options.seconds / len(CONTRACTS)
        width = options.parallel * ({"pair": 2, "stop": 6}.get(what, 1))  # the others mostly wait
        limit = f"{max(share, 1):.0f}" if options.seconds and what == "pair" else "0"
        file = results_file(what, contract, options.every_act)
        extra = ["--results", str(file), "--parallel", str(width), "--seconds", limit]
        extra += [option for option in PLAYS[what][1:] if not options.sample or option != "--later"]
        if options.sample and "--cpp" in extra:
            extra.append("--once")
        if options.every_act and what == "pair":
            extra.append("--every-act")
        with start(PLAYS[what][0], contract, *extra) as arena:
            try:
                _, errors = arena.communicate()
            finally:
                arena.terminate()
        if arena.returncode != 0:
            raise AssertionError(f"the arena ended with {arena.returncode}: {errors}")
    return concluded(options.json) if options.sample else write_table(options.every_act)


if __name__ == "__main__":
    sys.exit(main())
