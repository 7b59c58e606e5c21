"""`bench.measured` for the programs of the lab. They are run by their path, so this is imported before `bench`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.measured import add_option, conclude, runtime_directory

__all__ = ["add_option", "conclude", "runtime_directory"]
