"""`python -m bench [--quick] [cells...]`: measure, print a table, and keep the figures in bench/results/.

`cells` are parts of cell names: `python -m bench "32 B"` runs those that contain it. --list shows the names.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from dataclasses import asdict

from bench import bars, cells, harness, pair, peers, versus


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("cells", nargs="*", help="parts of the names of the cells to run; none: all")
    parser.add_argument("--quick", action="store_true", help="two short rounds, to see that it works")
    parser.add_argument("--rounds", type=int, help="how often each cell is measured")
    parser.add_argument("--pin", action="store_true", help="keep the two processes of a pair on two cores")
    parser.add_argument("--list", action="store_true", help="show the names of the cells and measure nothing")
    parser.add_argument("--keep-nothing", action="store_true", help="write no file into bench/results/")
    options = parser.parse_args()
    pair.pinned = options.pin
    kinds, absent = peers.load()
    chosen = [*cells.core_cells(), *versus.peer_cells(kinds)]
    if options.cells:
        chosen = [cell for cell in chosen if any(part in cell.name for part in options.cells)]
        if not chosen:
            parser.error(f"no cell has {' or '.join(map(repr, options.cells))} in its name; --list shows the names")
    if options.list:
        print("\n".join(cell.name for cell in chosen))
        return 0
    rounds = options.rounds or (2 if options.quick else 7)
    harness.build_floor()
    command = shlex.join(["python", "-m", "bench", *sys.argv[1:]])
    about = harness.circumstances(command)
    directory = tempfile.mkdtemp(prefix="ringmain-bench-", dir="/dev/shm")
    os.environ["RINGMAIN_DIR"] = directory
    try:
        results = harness.measure(chosen, rounds, 0.05 if options.quick else 0.25, _progress)
    finally:
        shutil.rmtree(directory)
    made = bars.bars(results)
    where = f"{about['machine']}, {about['cores']} cores, load {about['load']:.1f}, Linux {about['kernel']}"
    print(f"{where}, {about['date']}")
    print(harness.table(results))
    print("\n" + bars.table(made))
    for package, reason in absent.items():
        print(f"absent: {package} ({reason})")
    if not options.keep_nothing:
        kept = [{**asdict(bar), "met": bar.met} for bar in made]
        print(f"\n{harness.write(about, results, kept, absent).relative_to(harness.ROOT)}")
    return 0


def _progress(text: str) -> None:
    if sys.stderr.isatty() or os.environ.get("BENCH_PROGRESS"):
        print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
