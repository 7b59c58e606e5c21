"""Which fields of a record, by their usual names, are a position, a place on earth or a rotation. One table for all
viewers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from ringmain.view._shown import GeoPoints, Path, Points, Poses

if TYPE_CHECKING:
    from ringmain.view._shown import Numbers, Times

LATITUDE = ("latitude", "lat")
LONGITUDE = ("longitude", "lon", "lng", "long")
POSITION = ("position", "translation", "location")
ROTATION = ("orientation", "rotation", "quaternion")
_XYZ, _QUATERNION, _FLAT_QUATERNION = ("x", "y", "z"), ("x", "y", "z", "w"), ("qx", "qy", "qz", "qw")

Spatial = Points | GeoPoints | Poses
Numeric = Callable[[Path], "Numbers | None"]
"""The numbers below a path of the record; None if there are none, or not one for each of its times."""


def spatial(path: Path, times_ns: Times, names: Collection[str], numbers: Numeric) -> list[Spatial]:
    """What a record with fields of these names is, besides its fields."""
    import numpy

    def stacked(below: Path, wanted: tuple[str, ...]) -> Any:
        columns = [numbers((*below, name)) for name in wanted]
        return None if any(column is None for column in columns) else numpy.stack(columns, axis=1)  # type: ignore[arg-type]

    latitude = next((name for name in LATITUDE if name in names), None)
    longitude = next((name for name in LONGITUDE if name in names), None)
    if latitude and longitude and (where := stacked((), (latitude, longitude))) is not None:
        return [GeoPoints(path, times_ns, where)]
    rotation_at = next((name for name in ROTATION if name in names), None)
    rotation = stacked((rotation_at,), _QUATERNION) if rotation_at else stacked((), _FLAT_QUATERNION)
    if rotation is not None:
        position_at = next((name for name in POSITION if name in names), None)
        position = stacked((position_at,), _XYZ) if position_at else stacked((), _XYZ)
        return [Poses(path, times_ns, rotation, position)]
    if "w" in names:  # a rotation of the record that holds it
        return []
    if (position := stacked((), _XYZ)) is None:
        position = stacked((), _XYZ[:2])
    return [Points(path, times_ns, position)] if position is not None else []
