"""The recipe of a data set, as JSON has it: two that are equal make the same cells of the same messages."""

from __future__ import annotations

from typing import Any

import msgspec

from ringmain.datasets._episodes import Episodes
from ringmain.datasets._grid import Grid

RECIPE = "ringmain.recipe"
"""Of a table `train/NAME`, where it is in Delta's metadata."""


def recipe(grid: Grid, episodes: Episodes) -> dict[str, Any]:
    """Of a table of the user's own it has not the rows: there may be more of them later."""
    made = {
        "hz": grid.hz, "topics": dict(grid.topics), "tolerance_s": grid.tolerance_s, "start": episodes.start,
        "end": episodes.end, "length_s": episodes.length_s, "incidents": episodes.incidents,
        "table": episodes.table is not None, "silence_s": episodes.silence_s, "on_hole": episodes.on_hole,
    }  # fmt: skip
    known: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return known
