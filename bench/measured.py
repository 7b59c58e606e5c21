"""What the parts of `make cores` share: their bars as a table, as JSON, and as an exit code."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.bars import Bar, table


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the bars, and what was not run, there")


def conclude(found: Sequence[Bar], to: Path | None, not_run: Sequence[str] = ()) -> int:
    """Prints the bars that were missed, and of the others how many; 1 if one is missed."""
    missed = [bar for bar in found if not bar.met]
    if missed:
        print(table(missed))
    print(f"{len(found) - len(missed)} of {len(found)} bars are met")
    for sentence in not_run:
        print(f"not run: {sentence}")
    if to is not None:
        to.parent.mkdir(parents=True, exist_ok=True)
        rows = [{key: getattr(bar, key) for key in ("what", "found", "limit", "at_most", "met")} for bar in found]
        to.write_text(json.dumps({"bars": rows, "not run": list(not_run)}, indent=1, ensure_ascii=False) + "\n")
    return 1 if missed else 0


@contextmanager
def runtime_directory(name: str) -> Iterator[str]:
    """One of its own, which RINGMAIN_DIR names meanwhile."""
    before = os.environ.get("RINGMAIN_DIR")
    directory = os.environ["RINGMAIN_DIR"] = tempfile.mkdtemp(prefix=f"ringmain-{name}-", dir="/dev/shm")
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if before is None:
            del os.environ["RINGMAIN_DIR"]
        else:
            os.environ["RINGMAIN_DIR"] = before
