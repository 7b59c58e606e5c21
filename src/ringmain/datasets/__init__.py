"""Data sets: what was recorded, on a grid of times, in episodes, as windows to train on. Needs the extra `datasets`,
and neither Spark nor torch.

    from ringmain.datasets import Episodes, Grid, Windows, cells, episodes_of

    grid = Grid(hz=30, topics={"camera/front": "nearest", "imu": "window 0.2s", "state": "linear", "action": "next"})
    episodes = Episodes(start="task/begin", end="task/end")
    cells("recordings/", grid, episodes)        # as Arrow
    episodes_of("recordings/", grid, episodes)  # which were refused, and why
    Windows("recordings/", grid=grid, episodes=episodes, length=16)[0]["state.position"]  # as numpy or torch has it

What each module owns: _grid.py (the recipe), _align.py (which messages make a cell), _cells.py (their values),
_episodes.py (the recipe of episodes), _spans.py (which there are), _holes.py (what they lack),
_sources.py, _of_lake.py and _open.py (where messages come from), _gridded.py (all of it together), _feed.py (episode by
episode), _leaves.py (cells as arrays), _store.py (these in a file that is mapped), _windows.py and _stream.py (windows
of them), _order.py (which comes when), _torch.py (what torch wants to be of a class of its own).
"""

from __future__ import annotations

from ringmain.datasets._episodes import Episodes
from ringmain.datasets._grid import Grid
from ringmain.datasets._gridded import cells, episodes_of
from ringmain.datasets._holes import count_holes
from ringmain.datasets._order import Order
from ringmain.datasets._stream import WindowStream
from ringmain.datasets._windows import Feature, Windows

__all__ = ["Episodes", "Feature", "Grid", "Order", "WindowStream", "Windows", "cells", "count_holes", "episodes_of"]
