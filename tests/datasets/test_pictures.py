"""The pictures of the guide show what grids and episodes are now."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_pictures_are_up_to_date() -> None:
    made = runpy.run_path(str(ROOT / "tools" / "training_pictures.py"))
    for name, draw in made["PICTURES"].items():
        assert (ROOT / "docs" / "guide" / name).read_text() == draw(), "run `make pages`"
