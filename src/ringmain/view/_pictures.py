"""Pictures: which bytes and which arrays are one, and frames as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy

from ringmain.view._shown import Encoded, Image, Path, Pixels, Series, Tensor

if TYPE_CHECKING:
    from ringmain.frames import FrameCopy
    from ringmain.recording import RecordedFrame

_MEDIA_TYPES = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}
_CHANNELS = {1: "gray", 3: "rgb", 4: "rgba"}
_SMALLEST = 8
"""Pixels in each direction: what is smaller is a matrix."""


def encoded(data: bytes) -> Encoded | None:
    """The picture that these bytes are, or begin."""
    for mark, media_type in _MEDIA_TYPES.items():
        if data.startswith(mark):
            return Encoded(data, media_type)
    return None


def of_array(path: Path, time_ns: int, array: Any) -> Image | None:
    """A picture, if the array has the shape and the type of one: bytes, grey or with 3 or 4 channels."""
    if array.dtype != numpy.uint8 or array.ndim not in (2, 3) or min(array.shape[:2]) < _SMALLEST:
        return None
    format = _CHANNELS.get(array.shape[2] if array.ndim == 3 else 1)
    if format is None:
        return None
    return Image(path, time_ns, Pixels(_flat(array), format, array.shape[1], array.shape[0]))


def of_frame(path: Path, time_ns: int, frame: FrameCopy | RecordedFrame) -> Image | Tensor | Series:
    """A frame as a picture; as a tensor, if it is another array; of one of bytes, the size."""
    layout = frame.layout
    if layout.format == "bytes":
        picture = encoded(bytes(frame.data))
        size = Series((*path, "size_bytes"), numpy.array([time_ns]), numpy.array([float(len(frame.data))]))
        return size if picture is None else Image(path, time_ns, picture)
    if layout.format in ("nv12", "nv21", "i420"):
        return Image(path, time_ns, _planes(frame))
    array = frame.array
    if layout.width:
        return Image(path, time_ns, Pixels(_flat(array), layout.format, layout.width, layout.height))
    return of_array(path, time_ns, array) or Tensor(path, time_ns, array)


def _planes(frame: Any) -> Pixels:
    """Brightness, then colours, without gaps."""
    layout = frame.layout
    if layout.format == "i420":
        planes, format = [frame.plane(name) for name in ("y", "u", "v")], "i420"
    else:
        colours = frame.plane("uv") if layout.format == "nv12" else frame.plane("vu")[:, :, ::-1]
        planes, format = [frame.plane("y"), colours], "nv12"
    return Pixels(numpy.concatenate([plane.ravel() for plane in planes]), format, layout.width, layout.height)


def _flat(array: Any) -> Any:
    """One channel has no third dimension."""
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array
