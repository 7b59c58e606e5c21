"""`peek_frame`: a copy of the newest frame, for tools that only observe, such as `ringmain top`. Invariant: the copy is
a whole frame, although no buffer was held while it was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringmain import _names, _native
from ringmain.frames._descriptor import read_descriptor
from ringmain.frames._topics import frame_topic
from ringmain.frames._views import FrameViews, view_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from ringmain.frames._layout import FrameLayout, View

_MOST_DESCRIPTOR_BYTES = 64 * 1024
_TRIES = 4
"""Each try looks at the frames that are newest then. All fail only if the publisher overwrites frames faster than one
can be copied."""


@dataclass(frozen=True, eq=False)
class FrameCopy(FrameViews):
    """A copy of a frame, with `array` and `plane` as in `Frame`; returned by `peek_frame`."""

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


def peek_frame(topic: str) -> FrameCopy | None:
    """A copy of the newest frame, made without becoming a participant: no slot is taken, no buffer held, no counter
    changed. None if there is no frame, or every one was overwritten while it was copied; `TopicNotFound` if there is no
    such frame topic. To receive every frame, use `FrameSubscriber`."""
    directory = _names.runtime_directory()
    for _ in range(_TRIES):
        there = frame_topic(topic)
        seen = _native.peek(directory, topic, there.buffers, _MOST_DESCRIPTOR_BYTES)
        for message in reversed(seen):
            d = read_descriptor(message["data"])
            if d is None or d.pool != there.epoch or d.size > there.layout.size:
                continue
            data = _native.glance(directory, topic, d.pool, d.buffer, d.number, d.size)
            if data is not None:
                came = message["seq"], message["time_ns"], message["sender"]
                return FrameCopy(data, there.layout, d.id, d.start_ns, d.end_ns, d.valid, d.meta, *came)
        if not seen:
            return None
    return None
