"""The newest frame of a stream, seen from outside: for whoever only watches, such as `ringmain top`. Owns this
invariant: what is shown is a whole frame, although nothing was held while it was copied."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringmain import _names, _native
from ringmain.frames._descriptor import read_descriptor
from ringmain.frames._streams import frame_stream
from ringmain.frames._views import FrameViews, view_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from ringmain.frames._layout import FrameLayout, View

_MOST_DESCRIPTOR_BYTES = 64 * 1024
_TRIES = 4
"""Each time with the frames that are newest then: only of a publisher that rewrites them within a copy none is seen."""


@dataclass(frozen=True, eq=False)
class FrameCopy(FrameViews):
    """A frame of one's own, with `array` and `plane` as `Frame` has them: what `peek_frame` gives."""

    data: bytearray
    layout: FrameLayout
    id: int
    start_ns: int
    end_ns: int
    valid: bool
    meta: dict[str, Any]
    seq: int
    time_ns: int
    sender: str

    def _view(self, view: View | None) -> npt.NDArray[Any]:
        return view_in(self.data, view)


def peek_frame(stream: str) -> FrameCopy | None:
    """A copy of the newest frame, without taking part: it takes no place in the stream, holds no buffer, and nobody's
    counts change. None if there is no frame, or none stayed long enough to be copied; `TopicNotFound` if there is no
    such stream. For tools that watch: a reader of every frame is a `FrameSubscriber`."""
    directory = _names.runtime_directory()
    for _ in range(_TRIES):
        there = frame_stream(stream)
        seen = _native.peek(directory, stream, there.buffers, _MOST_DESCRIPTOR_BYTES)
        for seq, time_ns, sender, _kind, _size, message in reversed(seen):
            told = read_descriptor(message)
            if told is None or told.pool != there.epoch or told.size > there.layout.size:
                continue
            data = _native.glance(directory, stream, told.pool, told.buffer, told.number, told.size)
            if data is not None:
                what = told.id, told.start_ns, told.end_ns, told.valid, told.meta
                return FrameCopy(data, there.layout, *what, seq, time_ns, sender)
        if not seen:
            return None
    return None
