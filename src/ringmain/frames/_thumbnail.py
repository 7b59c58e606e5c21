"""An array or a frame scaled down to a small picture. Needs numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt

    Pixels = npt.NDArray[Any]

_SMALLEST = 8
_FINER = 3  # samples per pixel in each direction: the mean of nine looks better than one
_ORDER = {"rgb": (0, 1, 2), "bgr": (2, 1, 0), "rgba": (0, 1, 2), "bgra": (2, 1, 0)}


def thumbnail(image: Any, columns: int = 80, rows: int = 22) -> Pixels | None:
    """The image as (height, width, 3) bytes, at most `columns` pixels across and twice `rows` down, an even height.
    None if it is not an image. `image`: an array, grey or RGB, or a frame with its layout."""
    layout = getattr(image, "layout", None)
    if layout is not None and "y" in layout.planes:
        return _from_planes(image, columns, rows)
    array = image.array if layout is not None else image
    if type(array).__module__ != "numpy" or array.ndim not in (2, 3) or min(array.shape[:2]) < _SMALLEST:
        return None
    if array.dtype.kind not in "uifb" or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
        return None
    sampled = _bytes(_shrunk(array, *_size(array.shape[0], array.shape[1], columns, rows)), array.dtype)
    if sampled.ndim == 2:
        sampled = sampled[:, :, None]
    channels = _ORDER.get(layout.format if layout is not None else "rgb", (0, 1, 2))
    return sampled[:, :, channels if sampled.shape[2] >= 3 else (0, 0, 0)]


def _size(height: int, width: int, columns: int, rows: int) -> tuple[int, int]:
    """(height, width) in pixels: the image's proportions, and never more than its own size."""
    step = max(width / columns, height / (2 * rows), 1.0)
    return max(2, int(height / step) // 2 * 2), max(1, int(width / step))


def _shrunk(array: Pixels, height: int, width: int) -> Pixels:
    """The image scaled down. Each pixel is the mean of a few samples."""
    import numpy

    def samples(count: int, size: int) -> Pixels:
        return ((numpy.arange(count * _FINER) + 0.5) * size / (count * _FINER)).astype(int)

    finer = array[numpy.ix_(samples(height, array.shape[0]), samples(width, array.shape[1]))].astype("f4")
    return finer.reshape(height, _FINER, width, _FINER, *finer.shape[2:]).mean((1, 3))  # type: ignore[no-any-return]


def _bytes(values: Pixels, dtype: Any) -> Pixels:
    """Bytes stay. Other values (depth, heat, masks) are scaled from their minimum to their maximum."""
    import numpy

    if dtype != numpy.uint8:
        values = numpy.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
        low, high = float(values.min()), float(values.max())
        values = (values - low) * (255 / (high - low)) if high > low else numpy.zeros_like(values)
    return values.clip(0, 255).astype("u1")


def _from_planes(frame: Any, columns: int, rows: int) -> Pixels | None:
    """From brightness and two colour differences, as in video (BT.601, limited range)."""
    import numpy

    layout = frame.layout
    if min(layout.height, layout.width) < _SMALLEST:
        return None
    size = _size(layout.height, layout.width, columns, rows)
    if layout.format == "i420":
        u, v = _shrunk(frame.plane("u"), *size), _shrunk(frame.plane("v"), *size)
    else:
        both = _shrunk(frame.plane("uv" if layout.format == "nv12" else "vu"), *size)
        u, v = (both[:, :, 0], both[:, :, 1]) if layout.format == "nv12" else (both[:, :, 1], both[:, :, 0])
    y, u, v = 1.164 * (_shrunk(frame.plane("y"), *size) - 16), u - 128, v - 128
    rgb = numpy.stack([y + 1.596 * v, y - 0.392 * u - 0.813 * v, y + 2.017 * u], axis=2)
    return rgb.clip(0, 255).astype("u1")
