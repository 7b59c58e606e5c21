"""How the bytes of a frame are arranged: one array, or the planes of an image. Owns this invariant: a layout that
exists fits its size, so that no view made from it reaches outside of the buffer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ringmain.errors import Corrupt

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MAX_FRAME_BYTES = 1 << 36
_MAX_DIMENSIONS = 16


class View(msgspec.Struct, frozen=True):
    """A strided array within a frame."""

    shape: tuple[int, ...]
    dtype: str
    """As numpy writes it: '|u1', '<f4'."""
    offset: int = 0
    strides: tuple[int, ...] = ()
    """Bytes from one element to the next, for each dimension; empty: one after the other."""


class FrameLayout(msgspec.Struct, frozen=True):
    """How a frame is arranged. Kept with the stream, so that readers need not be told.

    FrameLayout.of_array((720, 1280, 3), "u1")
    FrameLayout.of_bytes(1_000_000)
    FrameLayout.of_image("nv12", 1928, 1208, stride=2048)
    """

    format: str
    """'array', 'bytes', or the image format."""
    size: int
    """Bytes of a frame."""
    array: View
    planes: dict[str, View] = {}
    width: int = 0
    height: int = 0
    stride: int = 0
    """Bytes from one row to the next."""

    @classmethod
    def of_array(cls, shape: int | Sequence[int], dtype: npt.DTypeLike = "u1") -> FrameLayout:
        """A plain array."""
        dims = _check_shape((shape,) if isinstance(shape, int) else shape)
        code, item_bytes = _dtype(dtype)
        layout = cls("array", math.prod(dims) * item_bytes, View(dims, code))
        return layout._checked()

    @classmethod
    def of_bytes(cls, size: int) -> FrameLayout:
        """Bytes without a shape; a frame may use fewer of them."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"size is a number of bytes, 1 or more, not {size!r}")
        return cls("bytes", size, View((size,), "|u1"))._checked()

    @classmethod
    def of_image(
        cls,
        format: str,
        width: int,
        height: int,
        *,
        stride: int | None = None,
        offsets: dict[str, int] | None = None,
        size: int | None = None,
    ) -> FrameLayout:
        """An image: 'gray', 'rgb', 'bgr', 'rgba', 'bgra', 'nv12', 'nv21' or 'i420'.

        stride: bytes from one row to the next, at least those of a row.   offsets: where planes begin, if they do not
        follow one another.   size: bytes of a frame, if there is more than the planes.
        """
        if format not in _FORMATS:
            raise ValueError(f"an image's format is one of {', '.join(sorted(_FORMATS))}, not {format!r}")
        for what, value in (("width", width), ("height", height)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{what} is a number of pixels, 1 or more, not {value!r}")
        channels, parts = _FORMATS[format]
        row = width * (channels or 1)
        stride = row if stride is None else stride
        if stride < row:
            raise ValueError(f"a row of this image has {row} bytes, so stride={stride} is too short")
        if parts and (width % 2 or height % 2):
            raise ValueError(f"{format} has one colour sample for 2 x 2 pixels: {width} x {height} is odd")
        if not parts:
            shape = (height, width) if channels == 1 else (height, width, channels)
            image = View(shape, "|u1", 0, (stride, 1) if channels == 1 else (stride, channels, 1))
            need = stride * (height - 1) + row
            layout = cls(format, max(size or 0, stride * height), image, {}, width, height, stride)
            return layout._checked(need, size)
        planes: dict[str, View] = {"y": View((height, width), "|u1", 0, (stride, 1))}
        end = stride * height
        for name, samples in parts:
            at = (offsets or {}).get(name, end)
            across = stride * samples // 2
            inner = (across, 1) if samples == 1 else (across, samples, 1)
            dims = (height // 2, width // 2) if samples == 1 else (height // 2, width // 2, samples)
            planes[name] = View(dims, "|u1", at, inner)
            end = max(end, at + across * (height // 2))
        if unknown := set(offsets or {}) - {name for name, _ in parts}:
            raise ValueError(
                f"{format} has no plane {sorted(unknown)[0]!r} to place: its planes are {', '.join(planes)}"
            )
        total = max(size or 0, end)
        return cls(format, total, View((total,), "|u1"), planes, width, height, stride)._checked(end, size)

    def _checked(self, need: int = 0, asked: int | None = None) -> FrameLayout:
        if asked is not None and asked < need:
            raise ValueError(f"the image needs {need} bytes, so size={asked} is too small")
        if not 1 <= self.size <= MAX_FRAME_BYTES:
            raise ValueError(f"a frame has between 1 byte and 64 GiB, not {self.size}")
        for view in (self.array, *self.planes.values()):
            _check_view(view, self.size)
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        import numpy as np

        return np.dtype(self.array.dtype)

    def plane(self, name: str) -> View:
        """A plane by its name."""
        try:
            return self.planes[name]
        except KeyError:
            known = f"its planes are {', '.join(self.planes)}" if self.planes else "it has no planes, use `array`"
            raise ValueError(f"a frame of format {self.format!r} has no plane {name!r}: {known}") from None

    def to_bytes(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes, stream: str, buffer_bytes: int) -> FrameLayout:
        """What `to_bytes` wrote, or `Corrupt`: it comes from another process, and views are made from it."""
        try:
            layout = msgspec.json.decode(data, type=cls)
            if layout.size > buffer_bytes:
                raise ValueError(f"its {layout.size} bytes do not fit the buffers of {buffer_bytes}")
            return layout._checked()
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise Corrupt(f"the layout kept with stream '{stream}' is refused: {error}") from error


# Channels of an interleaved image, or for planar ones 0 and the planes after "y" with their samples for 2 x 2 pixels.
_FORMATS: dict[str, tuple[int, list[tuple[str, int]]]] = {
    "gray": (1, []),
    "rgb": (3, []),
    "bgr": (3, []),
    "rgba": (4, []),
    "bgra": (4, []),
    "nv12": (0, [("uv", 2)]),
    "nv21": (0, [("vu", 2)]),
    "i420": (0, [("u", 1), ("v", 1)]),
}


def _check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    dims = tuple(shape)
    good = all(isinstance(d, int) and not isinstance(d, bool) and d >= 1 for d in dims)
    if not good or not 1 <= len(dims) <= _MAX_DIMENSIONS:
        raise ValueError(f"shape is 1 to {_MAX_DIMENSIONS} whole numbers, each 1 or more, not {shape!r}")
    return dims


def _dtype(dtype: npt.DTypeLike) -> tuple[str, int]:
    """As numpy writes it, and its bytes. numpy is needed only for what is not plain bytes."""
    if dtype in ("u1", "|u1", "uint8"):
        return "|u1", 1
    import numpy as np

    parsed = np.dtype(dtype)
    if parsed.hasobject or parsed.fields is not None or parsed.itemsize == 0 or parsed.subdtype is not None:
        raise ValueError(f"dtype {dtype!r} cannot be shared between processes: use numbers, bool or fixed-size bytes")
    return parsed.str, parsed.itemsize


def _check_view(view: View, size: int) -> None:
    dims = _check_shape(view.shape)
    _, item_bytes = _dtype(view.dtype)
    if view.strides and (len(view.strides) != len(dims) or min(view.strides) < 1):
        raise ValueError(f"strides {view.strides} do not go with shape {dims}")
    if view.strides:
        last = sum((d - 1) * s for d, s in zip(dims, view.strides, strict=True)) + item_bytes
    else:
        last = math.prod(dims) * item_bytes
    if view.offset < 0 or view.offset + last > size:
        raise ValueError(
            f"a view of shape {dims} at {view.offset} ends at {view.offset + last}, beyond its {size} bytes"
        )
