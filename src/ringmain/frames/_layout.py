"""How the bytes of a frame are arranged: one array, or the planes of an image. Invariant: every view of a layout is
within its size, so no array made from it reaches outside the buffer."""

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
    """In numpy's notation: '|u1', '<f4'."""
    offset: int = 0
    strides: tuple[int, ...] = ()
    """Bytes from one element to the next, for each dimension; empty: without gaps, in C order."""


class FrameLayout(msgspec.Struct, frozen=True):
    """How a frame is arranged. Stored in the frame topic, so that readers find it there.

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
        if not is_count(size):
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

        stride: bytes from one row to the next, at least a row's.   offsets: where planes begin, if there are gaps.
        size: bytes of a frame, if it is larger than the planes.
        """
        if format not in _FORMATS:
            raise ValueError(f"an image's format is one of {', '.join(sorted(_FORMATS))}, not {format!r}")
        for what, value in (("width", width), ("height", height)):
            if not is_count(value):
                raise ValueError(f"{what} is a number of pixels, 1 or more, not {value!r}")
        channels, parts = _FORMATS[format]
        row = width * channels
        stride = row if stride is None else stride
        if stride < row:
            raise ValueError(f"a row of this image has {row} bytes, so stride={stride} is too short")
        if parts and (width % 2 or height % 2):
            raise ValueError(f"{format} has one colour sample for 2 x 2 pixels: {width} x {height} is odd")
        image = _plane(height, width, channels, stride)
        if not parts:
            total = max(size or 0, stride * height)
            layout = cls(format, total, image, {}, width, height, stride)
            return layout._checked(stride * (height - 1) + row, size)
        planes, end = {"y": image}, stride * height
        for name, samples in parts:
            at = (offsets or {}).get(name, end)
            across = stride * samples // 2
            planes[name] = _plane(height // 2, width // 2, samples, across, at)
            end = max(end, at + across * (height // 2))
        if unknown := sorted(set(offsets or {}) - {name for name, _ in parts}):
            raise ValueError(f"{format} has no plane {unknown[0]!r} to place: its planes are {', '.join(planes)}")
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
    def from_bytes(cls, data: bytes, topic: str, buffer_bytes: int) -> FrameLayout:
        """What `to_bytes` wrote, or `Corrupt`: it comes from another process, so it is checked again."""
        try:
            layout = msgspec.json.decode(data, type=cls)
            if layout.size > buffer_bytes:
                raise ValueError(f"its {layout.size} bytes do not fit the buffers of {buffer_bytes}")
            return layout._checked()
        except (msgspec.DecodeError, ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
            raise Corrupt(f"the layout of frame topic '{topic}' is refused: {error}", topic=topic) from error


# The channels of the first plane, and of planar formats the planes after "y" with their samples per 2 x 2 pixels.
_FORMATS: dict[str, tuple[int, list[tuple[str, int]]]] = {
    "gray": (1, []),
    "rgb": (3, []),
    "bgr": (3, []),
    "rgba": (4, []),
    "bgra": (4, []),
    "nv12": (1, [("uv", 2)]),
    "nv21": (1, [("vu", 2)]),
    "i420": (1, [("u", 1), ("v", 1)]),
}


class HasLayout:
    """Gives a class with a `layout` the shape and dtype of its frames."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def layout(self) -> FrameLayout: ...

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.layout.dtype


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _plane(height: int, width: int, samples: int, stride: int, offset: int = 0) -> View:
    if samples == 1:
        return View((height, width), "|u1", offset, (stride, 1))
    return View((height, width, samples), "|u1", offset, (stride, samples, 1))


def _check_shape(shape: Sequence[int]) -> tuple[int, ...]:
    dims = tuple(shape)
    if not all(map(is_count, dims)) or not 1 <= len(dims) <= _MAX_DIMENSIONS:
        raise ValueError(f"shape is 1 to {_MAX_DIMENSIONS} whole numbers, each 1 or more, not {shape!r}")
    return dims


def _dtype(dtype: npt.DTypeLike) -> tuple[str, int]:
    """In numpy's notation, and its bytes. Only dtypes other than plain bytes need numpy."""
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
        raise ValueError(f"strides {view.strides} do not fit shape {dims}")
    if view.strides:
        last = sum((d - 1) * s for d, s in zip(dims, view.strides, strict=True)) + item_bytes
    else:
        last = math.prod(dims) * item_bytes
    if view.offset < 0 or view.offset + last > size:
        raise ValueError(
            f"a view of shape {dims} at {view.offset} ends at {view.offset + last}, beyond its {size} bytes"
        )
