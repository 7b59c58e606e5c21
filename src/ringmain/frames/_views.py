"""A frame as arrays, planes and DLPack, whether it is being filled or read. numpy is imported when an array is asked
for."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any

from ringmain.frames._layout import HasLayout

if TYPE_CHECKING:
    import numpy.typing as npt

    from ringmain.frames._layout import View


def view_in(buffer: Any, view: View | None) -> npt.NDArray[Any]:
    """An array in place, without a copy; without a view, all of the buffer's bytes."""
    import numpy as np

    # By frombuffer, because `ndarray(buffer=buffer)` does not keep the buffer exported while the array exists.
    flat = np.frombuffer(buffer, np.uint8)
    return flat if view is None else np.ndarray(view.shape, view.dtype, flat, view.offset, view.strides or None)


class FrameViews(HasLayout):
    """What `give_views` adds to the native types, which are buffers of bytes."""

    __slots__ = ()

    def _view(self, view: View | None) -> npt.NDArray[Any]:
        return view_in(self, view)

    @property
    def array(self) -> npt.NDArray[Any]:
        """The frame as an array, in place. For a frame of bytes, the bytes that are used."""
        layout = self.layout
        return self._view(None if layout.format == "bytes" else layout.array)

    def plane(self, name: str) -> npt.NDArray[Any]:
        """A plane of an image, in place: `f.plane("y")`."""
        return self._view(self.layout.plane(name))

    def copy(self) -> npt.NDArray[Any]:
        """A copy of the frame as an array, which does not hold the buffer."""
        return self.array.copy()

    @property
    def width(self) -> int:
        """Of an image, in pixels; otherwise 0."""
        return self.layout.width

    @property
    def height(self) -> int:
        """Of an image, in pixels; otherwise 0."""
        return self.layout.height

    @property
    def stride(self) -> int:
        """Of an image, bytes from one row to the next; otherwise 0."""
        return self.layout.stride

    def __dlpack__(self, **options: Any) -> Any:
        """For `torch.from_dlpack(f)` and others. The tensor holds the buffer, as an array does."""
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # kDLCPU


class DraftViews(FrameViews):
    """For a frame being filled: its arrays become read-only when it is sent."""

    __slots__ = ()

    def _view(self, view: View | None) -> npt.NDArray[Any]:
        array: npt.NDArray[Any] = self._remember(view_in(self, view))  # type: ignore[attr-defined]  # the native type's
        return array


def give_views(native: type, views: type[FrameViews]) -> None:
    """Adds to a native type what `views` defines. A subclass would be slower: creating and destroying an instance of a
    Python class takes a seventh of the time of passing a frame on."""
    for source in reversed(views.__mro__[:-1]):
        for name, value in vars(source).items():
            if isinstance(value, FunctionType | property):
                setattr(native, name, value)
