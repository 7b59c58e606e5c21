"""What a viewer is given: things to show, that know nothing of topics' types and nothing of any viewer.

Invariant: each has a path below its topic, and one publish time (ns) for each of its values, in the order sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy.typing as npt

Times: TypeAlias = "npt.NDArray[Any]"
Numbers: TypeAlias = "npt.NDArray[Any]"

Path: TypeAlias = tuple[str, ...]
"""The names that lead to a value in a message: ("pose", "position", "x"). Empty: the message itself."""
Level: TypeAlias = Literal["INFO", "WARN", "ERROR"]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Numbers over time."""

    path: Path
    times_ns: Times
    values: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """A picture as a file has it."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """A picture as an array: (height, width) or (height, width, channels); of "nv12" and "i420" its bytes."""

    array: Any
    format: str
    """gray, rgb, bgr, rgba, bgra, nv12 or i420."""
    width: int
    height: int


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    path: Path
    time_ns: int
    picture: Encoded | Pixels


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """An array that is not a picture."""

    path: Path
    time_ns: int
    array: Any


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    path: Path
    times_ns: Times
    texts: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Positions in space, (n, 2) or (n, 3)."""

    path: Path
    times_ns: Times
    positions: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class GeoPoints:
    """Latitudes and longitudes in degrees, (n, 2)."""

    path: Path
    times_ns: Times
    positions: Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Poses:
    """Rotations as quaternions x, y, z, w, (n, 4), and where, (n, 3), if that is known."""

    path: Path
    times_ns: Times
    rotations: Numbers
    positions: Numbers | None


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a topic, not in it: a loss, a lag, a death."""

    time_ns: int
    text: str
    level: Level = "INFO"


Shown: TypeAlias = Series | Image | Tensor | Texts | Points | GeoPoints | Poses | Event
