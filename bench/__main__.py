"""`python -m bench [--quick] [cells...]`: measure, print a table, and keep the figures in bench/results/.

`cells` are parts of cell names: `python -m bench "32 B"` runs those that contain it. --list shows the names. --into
FILE puts what was measured into the figures of another run (`--into newest`: the last one). Ctrl-C ends it early, and
what was measured by then is kept.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench import (
    arrays,
    bars,
    cells,
    costs,
    dropping,
    face,
    fans,
    harness,
    idle,
    limits,
    peers,
    plots,
    recovery,
    requests,
    runs,
    typed,
    versus,
    windows,
    work,
)
from bench.floors import ROOT, build_floor
from bench.placement import BAR_CPUS, Machine, machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("cells", nargs="*", help="parts of the names of the cells to run; none: all")
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--rounds", type=int, default=3, help="how often each cell is measured (default: 3)")
    parser.add_argument("--placement", choices=("near", "far"), help="only CPUs that share an L2, or that do not")
    parser.add_argument("--unpinned", action="store_true", help="let the kernel choose and change the CPUs")
    parser.add_argument("--list", action="store_true", help="show the names of the cells and measure nothing")
    parser.add_argument("--into", metavar="FILE", help="put the figures into those of another run; `newest`: the last")
    parser.add_argument("--keep-nothing", action="store_true", help="write no file into bench/results/")
    options = parser.parse_args()
    here = machine()
    if options.placement:
        here = here.only(options.placement)
        if not here.placements:
            parser.error("; ".join(here.skipped))
    chosen, absent = _cells(options.cells, Machine((), here.skipped) if options.unpinned else here)
    if not chosen:
        parser.error(f"no cell has {' or '.join(map(repr, options.cells))} in its name; --list shows the names")
    if options.list:
        print("\n".join(cell.name for cell in chosen))
        return 0
    path = _into(options.into)
    before = runs.load(path) if path else None
    build_floor()
    about = runs.circumstances(shlex.join(["python", "-m", "bench", *sys.argv[1:]]))
    about["placements"] = str(here).splitlines()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a time limit from outside ends it like Ctrl-C
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    os.environ["RINGMAIN_DIR"] = directory
    try:
        rounds = 1 if options.quick else options.rounds
        found = harness.measure(chosen, rounds, 0.05 if options.quick else 0.25, _progress)
    finally:
        shutil.rmtree(directory)
    where = f"{about['machine']}, {about['cores']} cores, load {about['load']:.1f}, Linux {about['kernel']}"
    print(f"{where}, {about['date']}\n{here}")
    print(runs.table(found))
    if before:
        found = runs.merged(before, found, about)
    made = bars.bars(found, here.far_cpus)
    if here.far_cpus < BAR_CPUS:
        print(f"the bars for CPUs that do not share an L2 need {BAR_CPUS} of them: not looked at")
    print("\n" + bars.table(made))
    for package, reason in absent.items():
        print(f"absent: {package} ({reason})")
    if not options.keep_nothing and found:
        stamp = str(about["date"]).replace(":", "").replace("-", "")[:15]
        path = path or runs.DIRECTORY / f"{stamp}.json"
        kept = [{**asdict(bar), "met": bar.met} for bar in made]
        runs.write(path, about, found, kept, absent, before)
        print(f"\n{path.relative_to(ROOT)}  (into the docs: python tools/readme_numbers.py {path.relative_to(ROOT)})")
        print("\n".join(str(drawn.relative_to(ROOT)) for drawn in plots.draw(runs.load(path))))
    return 0


def _cells(parts: list[str], here: Machine) -> tuple[list[harness.Cell], dict[str, str]]:
    kinds, absent = peers.load()
    at_each = [
        *cells.core_cells(),
        *versus.peer_cells(kinds),
        *dropping.dropping_cells(kinds),
        *fans.fan_cells(kinds),
        *work.work_cells(list(absent)),
        *requests.request_cells(),
        *limits.limit_cells(),
    ]
    at_one = [
        *typed.typed_cells(),
        *arrays.array_cells(),
        *costs.cost_cells(kinds),
        *face.face_cells(),
        *idle.idle_cells(),
        *recovery.recovery_cells(),
        *windows.window_cells(),
    ]
    every = [*harness.placed(at_each, here.placements), *harness.placed(at_one, here.placements[:1])]
    if not parts:
        return every, absent
    chosen = []
    for index, cell in enumerate(every):
        # Cells that follow another are always chosen together with it.
        first = index
        while every[first].follows:
            first -= 1
        last = next((i for i in range(first + 1, len(every)) if not every[i].follows), len(every))
        if any(part in one.name for one in every[first:last] for part in parts):
            chosen.append(cell)
    return chosen, absent


def _into(name: str | None) -> Path | None:
    if name is None:
        return None
    path = runs.newest() if name == "newest" else Path(name).resolve()
    if path is None or not path.exists():
        raise SystemExit(f"--into {name}: there is no such run")
    return path


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
