"""The same recordings as for spark.md."""

import runpy
from pathlib import Path

runpy.run_path(str(Path(__file__).with_name("spark.py")))
