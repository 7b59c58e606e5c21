"""Of the things of a recording or a lake, those that are shown: all, unless rates say otherwise. What is left out is
counted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ringmain.view._counts import Counts
from ringmain.view._shown import Image, Path, Series, Shown, Tensor
from ringmain.view._thin import thin


@dataclass
class Kept:
    """Of one life of a topic. `hz`: pictures a second of each path; `points_hz`: points a second of each series;
    infinite: all."""

    hz: float
    points_hz: float
    _shown_ns: dict[Path, int] = field(default_factory=dict)
    """When the last picture of each path was published."""

    def of(self, things: Iterable[Shown], counts: Counts) -> list[Shown]:
        found: list[Shown] = []
        for thing in things:
            if isinstance(thing, Series):
                times_ns, values, left_out = thin(thing.times_ns, thing.values, self.points_hz)
                counts.points += len(values)
                counts.points_left_out += left_out
                thing = Series(thing.path, times_ns, values)
            elif isinstance(thing, Image | Tensor):
                last_ns = self._shown_ns.get(thing.path)
                # Several publishers, or files of a lake, need not be in the order of their times.
                if last_ns is not None and abs(thing.time_ns - last_ns) < 1e9 / self.hz:
                    counts.pictures_left_out += 1
                    continue
                self._shown_ns[thing.path] = thing.time_ns
                counts.pictures += 1
            found.append(thing)
        return found
