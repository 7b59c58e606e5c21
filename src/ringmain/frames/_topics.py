"""Inspecting frame topics from outside: takes no slot in their rosters and slows no participant."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ringmain import _names, _native
from ringmain.errors import RingmainError
from ringmain.frames._layout import FrameLayout, HasLayout


@dataclass(frozen=True, slots=True)
class FrameTopic(HasLayout):
    """A frame topic, as seen from outside."""

    name: str
    layout: FrameLayout
    buffers: int
    buffer_bytes: int
    frames: int
    """Published since the publisher opened it."""
    dropped: int
    rate: float
    """Frames a second, averaged over about the last eight; falls when no more are published."""
    alive: bool
    """Is its publisher running?"""
    held: dict[str, int]
    """How many buffers each reader holds, by its name and pid."""
    epoch: int
    """When the publisher opened it, in nanoseconds: tells one run of the publisher from the next."""


def frame_topics(server: str | None = None) -> list[FrameTopic]:
    """The frame topics of a server, by name: `frame_topics("camera")` returns "camera/road", "camera/wide" and, if it
    exists, "camera". Without a server, all. Topics that cannot be read are left out; `frame_topic` says why."""
    if server is not None:
        _names.check_topic(server)
    found = []
    for name in _native.pools(_names.runtime_directory()):
        if server is not None and name != server and not name.startswith(server + "/"):
            continue
        try:
            found.append(frame_topic(name))
        except (RingmainError, ValueError):
            continue
    return found


def frame_topic(name: str) -> FrameTopic:
    """A frame topic by its name. Raises `TopicNotFound` if there is none."""
    _names.check_topic(name)
    seen = _native.inspect_pool(_names.runtime_directory(), name)
    since_ns = max(time.monotonic_ns() - seen["last_ns"], 1)
    interval_ns = seen["interval_ns"]
    return FrameTopic(
        name=name,
        layout=FrameLayout.from_bytes(seen["schema"], name, seen["buffer_bytes"]),
        buffers=seen["buffers"],
        buffer_bytes=seen["buffer_bytes"],
        frames=seen["frames"],
        dropped=seen["dropped"],
        # A gap counts only when it is longer than two intervals: frames are never exactly regular.
        rate=0.0 if interval_ns == 0 else 1e9 / (interval_ns if since_ns < 2 * interval_ns else since_ns),
        alive=seen["alive"],
        held={f"{who} ({pid.removeprefix('pid ')})": count for who, pid, count in seen["holders"] if count},
        epoch=seen["epoch"],
    )
