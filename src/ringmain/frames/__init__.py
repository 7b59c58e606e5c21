"""Frames: images, video, point clouds and tensors of megabytes, passed between processes without a copy.

A frame topic is a topic whose messages are descriptors, plus a pool of buffers that they refer to. The publisher fills
a buffer in place, readers see the same memory, and a buffer that a reader holds is not reused.

`FramePublisher` and `FrameSubscriber`, what their frames offer (_views.py), `FrameLayout`, `frame_topics` and
`frame_topic`, `peek_frame`. The hot paths are native: native/frames/frames.hpp and native/python/frame*.
"""

from __future__ import annotations

import atexit

import msgspec

from ringmain import _native
from ringmain._native import Frame, FrameDraft
from ringmain.frames._layout import FrameLayout, View
from ringmain.frames._peek import FrameCopy, peek_frame
from ringmain.frames._publisher import FramePublisher
from ringmain.frames._subscriber import FrameSubscriber
from ringmain.frames._topics import FrameTopic, frame_topic, frame_topics
from ringmain.frames._views import DraftViews, FrameViews, give_views

__all__ = [
    "Frame",
    "FrameCopy",
    "FrameDraft",
    "FrameLayout",
    "FramePublisher",
    "FrameSubscriber",
    "FrameTopic",
    "View",
    "frame_topic",
    "frame_topics",
    "peek_frame",
]

give_views(Frame, FrameViews)
give_views(FrameDraft, DraftViews)
_native.set_meta_codec(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode)
# An array that still exists at exit keeps a slot in its pool; the pool's file must not outlive the process.
atexit.register(_native.leave_pools)
