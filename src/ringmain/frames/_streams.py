"""Looking at streams from outside. Looking takes no place in a stream and slows nobody."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ringmain import _names, _native
from ringmain.errors import RingmainError
from ringmain.frames._layout import FrameLayout

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class FrameStream:
    """What is known of a stream."""

    name: str
    layout: FrameLayout
    buffers: int
    buffer_bytes: int
    frames: int
    """Published since the publisher opened it."""
    dropped: int
    rate: float
    """Frames a second, over about the last eight; falls when they stop coming."""
    alive: bool
    """Is its publisher there?"""
    held: dict[str, int]
    """How many buffers each reader holds, by its name and pid."""
    epoch: int
    """Which life of the stream this is: when the publisher opened it, in nanoseconds."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.layout.dtype


def frame_streams(server: str | None = None) -> list[FrameStream]:
    """The streams of a server, by name: `frame_streams("camera")` gives "camera/road", "camera/wide" and, if there is
    one, "camera". Without a server, all. One that cannot be read is left out; `frame_stream` says why."""
    if server is not None:
        _names.check_topic(server)
    found = []
    for name in _native.pools(_names.runtime_directory()):
        if server is not None and name != server and not name.startswith(server + "/"):
            continue
        try:
            found.append(frame_stream(name))
        except (RingmainError, ValueError):
            continue
    return found


def frame_stream(name: str) -> FrameStream:
    """What is known of a stream. Raises `TopicNotFound` if there is none."""
    _names.check_topic(name)
    seen = _native.inspect_pool(_names.runtime_directory(), name)
    since_ns = max(time.time_ns() - seen["last_ns"], 1)
    interval_ns = seen["interval_ns"]
    return FrameStream(
        name=name,
        layout=FrameLayout.from_bytes(seen["schema"], name, seen["buffer_bytes"]),
        buffers=seen["buffers"],
        buffer_bytes=seen["buffer_bytes"],
        frames=seen["frames"],
        dropped=seen["dropped"],
        # A single long gap does not count before it is longer than two intervals: frames are never quite regular.
        rate=0.0 if interval_ns == 0 else 1e9 / (interval_ns if since_ns < 2 * interval_ns else since_ns),
        alive=seen["alive"],
        held={f"{who} ({pid})": count for who, pid, count in seen["holders"] if count},
        epoch=seen["epoch"],
    )
