"""Data sets: what was recorded, on a grid of times, in episodes, as windows to train on. Needs the extra `datasets`,
and neither Spark nor torch.

    from ringmain.datasets import Episodes, Grid, Windows, cells, episodes_of

    grid = Grid(hz=30, topics={"camera/front": "nearest", "imu": "window 0.2s", "state": "linear", "action": "next"})
    episodes = Episodes(start="task/begin", end="task/end")
    cells("recordings/", grid, episodes)        # as Arrow
    episodes_of("recordings/", grid, episodes)  # which were refused, and why
    build("lake/", "pick", grid, episodes)      # the same by Spark, as a table of a lake
    Windows("recordings/", grid=grid, episodes=episodes, length=16)[0]["state.position"]  # as numpy or torch has it

What each module owns: _grid.py (the recipe), _align.py (which messages make a cell), _cells.py (their values),
_episodes.py (the recipe of episodes), _spans.py (which there are), _holes.py (what they lack), _recipe.py (both recipes
as text), _sources.py, _of_lake.py and _open.py (where messages come from), _gridded.py (all of it together).

Windows: _feed.py (episode by episode), _leaves.py (cells as arrays), _store.py (these in a file that is mapped),
_pictures.py (JPEG and PNG), _windows.py and _stream.py (windows of them), _following.py (of what is still recorded),
_order.py (which comes when), _torch.py (what torch knows by its class), _export.py (episodes as files for other
programs).

Tables of a lake: _build.py (made and kept up to date), _changes.py (what is new), _progress.py (how far each has come),
_table.py (the episodes of one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringmain.datasets._episodes import Episodes
from ringmain.datasets._export import Exported
from ringmain.datasets._grid import Grid
from ringmain.datasets._gridded import cells, episodes_of
from ringmain.datasets._holes import count_holes
from ringmain.datasets._order import Order
from ringmain.datasets._stream import WindowStream
from ringmain.datasets._windows import Feature, Windows

if TYPE_CHECKING:
    from ringmain.datasets._build import Built as Built
    from ringmain.datasets._build import build as build

__all__ = [
    "Built", "Episodes", "Exported", "Feature", "Grid", "Order", "WindowStream", "Windows", "build", "cells",
    "count_holes", "episodes_of",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """What needs deltalake, which only lakes need."""
    if name in ("Built", "build"):
        from ringmain.datasets import _build

        return getattr(_build, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
