"""`Grid`: the recipe of a grid. Its times, and of each topic how a message becomes a cell.

The invariant owned here: *the times do not depend on where one begins*. The ticks are the multiples of the period since
1970, cut to whole microseconds, so a part of a recording, a task of a fleet and all of it together have the same ticks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from ringmain.errors import InvalidArgument

Kind = Literal["newest", "nearest", "next", "linear", "window"]
KINDS: dict[Kind, str] = {
    "newest": "the last message at or before the tick, as a program that runs would have it",
    "nearest": "the message whose time is nearest to the tick, also if it is later",
    "next": "the first message at or after the tick",
    "linear": "numbers between the message before and the one after; all else is of the one before",
    "window": "a list of all messages of so many seconds up to the tick",
}
_WINDOW = re.compile(r"window (\d+\.?\d*|\.\d+)s")


class Method(NamedTuple):
    """How the messages of a topic become the cell of a tick."""

    kind: Kind
    window_ns: int = 0

    @classmethod
    def parse(cls, text: str) -> Method:
        window = _WINDOW.fullmatch(text)
        if window is not None and float(window[1]) > 0:
            return cls("window", round(float(window[1]) * 1e9))
        if text == "window" or text not in KINDS:
            known = ", ".join(f"'{kind}'" if kind != "window" else "'window 0.2s'" for kind in KINDS)
            raise InvalidArgument(f"{text!r} is not a way to make a cell: choose one of {known}")
        return cls(text)


@dataclass(frozen=True)
class Grid:
    """Topics on one time line, of each host for itself."""

    hz: float
    """How many ticks a second has."""
    topics: Mapping[str, str]
    """How a cell of each is made: `newest`, `nearest`, `next`, `linear`, or `window 0.2s`."""
    tolerance_s: float = 1.0
    """A message that is farther from the tick is not used. A window has its own bound."""

    def __post_init__(self) -> None:
        if not 0 < self.hz <= 1e6:
            raise InvalidArgument(f"hz={self.hz:g}: a grid has more than 0 and at most 1,000,000 ticks a second")
        if not 0 < self.tolerance_s < 1e9:
            raise InvalidArgument(f"tolerance_s={self.tolerance_s:g}: it must be more than 0 seconds")
        if not self.topics:
            raise InvalidArgument("a grid needs topics: Grid(hz=30, topics={'imu': 'linear'})")
        methods_of(self)
        labels: dict[str, str] = {}
        for topic in self.topics:
            other = labels.setdefault(label_of(topic).lower(), topic)
            if other != topic:
                raise InvalidArgument(f"topics {other} and {topic} would have the same column, {label_of(topic)}")


def methods_of(grid: Grid) -> dict[str, Method]:
    """By topic."""
    return {topic: Method.parse(text) for topic, text in grid.topics.items()}


def ticks_us(hz: float, since_us: int, until_us: int) -> np.ndarray:
    """The ticks in [since, until), in microseconds since 1970."""
    period = Fraction(1_000_000) / Fraction(str(hz))
    first, end = (-((-at * period.denominator) // period.numerator) for at in (since_us, until_us))
    whole, rest = divmod(first * period.numerator, period.denominator)
    steps = np.arange(max(0, end - first), dtype=np.int64)
    return np.asarray(whole + (rest + steps * period.numerator) // period.denominator)


def label_of(topic: str) -> str:
    """What a topic is called as a column."""
    return topic.replace("/", "_").replace("-", "_").replace(".", "_")


def age_label(topic: str) -> str:
    return f"rm_{label_of(topic)}_age_ms"
