"""Each allocation fails once: MemoryError or the right answer, and all goes on. `make failing-calls` has all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import failing_allocations as allocations

SAMPLE = 40
"""Of the operations. All take three times the processor's time that a test may take."""
FOUND = ("open a publisher, broadcast", "open a client", "recv_many, work", "asyncio, pipe")
"""Once these ended the interpreter, left a file, or lost messages."""


def test_what_once_was_wrong(tmp_path: Path) -> None:
    done = allocations.run_with_preload([*FOUND], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_allocation_that_fails_is_answered(tmp_path: Path) -> None:
    done = allocations.run_with_preload(["--sample", str(SAMPLE), "--seed", os.environ["RINGMAIN_SEED"]], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
