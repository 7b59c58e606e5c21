"""Data sets: what was recorded, on a grid of times, in episodes, as windows to train on. Needs the extra `datasets`,
and neither Spark nor torch.

    from ringmain.datasets import Episodes, Grid, cells, episodes_of

    grid = Grid(hz=30, topics={"camera/front": "nearest", "imu": "window 0.2s", "state": "linear", "action": "next"})
    episodes = Episodes(start="task/begin", end="task/end")
    cells("recordings/", grid, episodes)        # as Arrow
    episodes_of("recordings/", grid, episodes)  # which were refused, and why

What each module owns: _grid.py (the recipe), _align.py (which messages make a cell), _cells.py (their values),
_episodes.py (the recipe of episodes), _spans.py (which there are), _holes.py (what they lack),
_sources.py, _of_lake.py and _open.py (where messages come from), _gridded.py (all of it
together).
"""

from __future__ import annotations

from ringmain.datasets._episodes import Episodes
from ringmain.datasets._grid import Grid
from ringmain.datasets._gridded import cells, episodes_of
from ringmain.datasets._holes import count_holes

__all__ = ["Episodes", "Grid", "cells", "count_holes", "episodes_of"]
