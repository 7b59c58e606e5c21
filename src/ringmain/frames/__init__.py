"""Frames: images, video, point clouds and tensors of megabytes, handed over without a copy.

A stream is a topic whose messages are descriptors, and beside it a pool of buffers that they point into. The publisher
fills a buffer where it lies, the readers see the same memory, and a buffer that somebody holds is not reused.

`FramePublisher` (publisher.py), `FrameSubscriber` (subscriber.py), what their frames show (views.py), `FrameLayout`
(layout.py), `frame_streams` and `frame_stream` (streams.py), `peek_frame` (peek.py). What is hot is native:
native/frames.hpp and native/python/frame*.
"""

from __future__ import annotations

import atexit

import msgspec

from ringmain import _native
from ringmain._native import Frame, FrameDraft
from ringmain.frames._layout import FrameLayout, View
from ringmain.frames._peek import FrameCopy, peek_frame
from ringmain.frames._publisher import FramePublisher
from ringmain.frames._streams import FrameStream, frame_stream, frame_streams
from ringmain.frames._subscriber import FrameSubscriber
from ringmain.frames._views import DraftViews, FrameViews, give_views

__all__ = [
    "Frame",
    "FrameCopy",
    "FrameDraft",
    "FrameLayout",
    "FramePublisher",
    "FrameStream",
    "FrameSubscriber",
    "View",
    "frame_stream",
    "frame_streams",
    "peek_frame",
]

give_views(Frame, FrameViews)
give_views(FrameDraft, DraftViews)
_native.set_meta_codec(msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode)
# An array that lives to the end keeps its pool's seat until then; the pool's file must not outlive the process.
atexit.register(_native.leave_pools)
