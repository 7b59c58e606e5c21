"""What a frame looks like from Python, whether it is being filled or read: arrays, planes, DLPack. numpy is imported
when an array is asked for, not before."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ringmain.frames._layout import FrameLayout, View


def view_in(buffer: Any, view: View | None) -> npt.NDArray[Any]:
    """An array in place; without a view, all of the buffer's bytes."""
    import numpy as np

    # From the buffer, not `ndarray(buffer=buffer)`: only so does the array keep the buffer exported while it lives.
    flat = np.frombuffer(buffer, np.uint8)
    return flat if view is None else np.ndarray(view.shape, view.dtype, flat, view.offset, view.strides or None)


class FrameViews:
    """What the native types, which are buffers of bytes, are given by `give_views`."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def layout(self) -> FrameLayout: ...

    def _view(self, view: View | None) -> npt.NDArray[Any]:
        return view_in(self, view)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The frame as an array, in place. Of a frame of bytes, those that are used."""
        layout = self.layout
        return self._view(None if layout.format == "bytes" else layout.array)

    def plane(self, name: str) -> npt.NDArray[Any]:
        """A plane of an image, in place: `f.plane("y")`."""
        return self._view(self.layout.plane(name))

    def copy(self) -> npt.NDArray[Any]:
        """The frame as an array of one's own, to keep without holding the buffer."""
        return self.array.copy()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.layout.dtype

    @property
    def width(self) -> int:
        """Of an image, in pixels; 0 of anything else."""
        return self.layout.width

    @property
    def height(self) -> int:
        """Of an image, in pixels; 0 of anything else."""
        return self.layout.height

    @property
    def stride(self) -> int:
        """Of an image: bytes from one row to the next."""
        return self.layout.stride

    def __dlpack__(self, **options: Any) -> Any:
        """For `torch.from_dlpack(f)` and others. The tensor keeps the buffer, as an array does."""
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


class DraftViews(FrameViews):
    """What a frame being filled has: its arrays turn read-only when it is sent."""

    __slots__ = ()

    def _view(self, view: View | None) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self._remember(view_in(self, view))  # type: ignore[attr-defined]  # the native type's
        return array


def give_views(native: type, views: type[FrameViews]) -> None:
    """Gives a native type what `views` defines. Not by a subclass: making and dropping an instance of a Python class is
    a seventh of what handing a frame over costs."""
    for source in reversed(views.__mro__[:-1]):
        for name, value in vars(source).items():
            if isinstance(value, FunctionType | property):
                setattr(native, name, value)
