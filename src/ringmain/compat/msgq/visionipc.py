"""msgq's visionipc on ringmain's frames: `from ringmain.compat.msgq.visionipc import VisionIpcServer, VisionIpcClient`.

A server's stream is the frame topic `visionipc/<name>/<number>`. The guide lists what differs, and why: a buffer that a
client holds (the one it received last, and any whose `data` is still in use) is never overwritten, so there are a few
buffers more than asked for, and a frame for which none is free is dropped; and `data` is read-only, because other
processes see the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ringmain import Publisher, info
from ringmain.compat._names import text
from ringmain.compat.msgq._endpoints import topic_of
from ringmain.compat.msgq._events import events_of
from ringmain.errors import RingmainError, Timeout
from ringmain.frames import FrameLayout, FramePublisher, FrameSubscriber, FrameTopic, frame_topic, frame_topics

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from ringmain.frames import Frame

__all__ = ["VisionBuf", "VisionIpcClient", "VisionIpcServer", "VisionStreamType", "get_endpoint_name"]

_SPARE_BUFFERS = 2
"""One that is being written, one that a client is about to release."""
_POLL_S = 0.01


class VisionStreamType(IntEnum):
    """The names in older programs. Newer programs define their own: any number is a stream."""

    VISION_STREAM_ROAD = 0
    VISION_STREAM_DRIVER = 1
    VISION_STREAM_WIDE_ROAD = 2
    VISION_STREAM_MAP = 3


def _server(name: str | bytes) -> str:
    return topic_of(name, "visionipc")


def _frame_topic(name: str | bytes, stream: int) -> str:
    return f"{_server(name)}/{int(stream)}"


def get_endpoint_name(name: str | bytes, stream: int) -> str:
    """The stream's name as an endpoint: its fake events have this name."""
    return f"visionipc_{text(name)}_{int(stream)}"


class VisionBuf:
    """A frame in place. It does not change while this object, or a view of its data, exists."""

    def __init__(self, frame: Frame, layout: FrameLayout) -> None:
        self._frame = frame
        self.idx: int = frame.buffer
        self.frame_id: int = frame.id
        self.width, self.height, self.stride = layout.width, layout.height, layout.stride
        self.uv_offset = layout.planes["uv"].offset

    @property
    def data(self) -> memoryview:
        return self._frame.data

    def as_array(self) -> Any:
        """The bytes as a numpy array."""
        import numpy as np

        return np.frombuffer(self._frame.data, np.uint8)

    @property
    def fd(self) -> int:
        # An AttributeError, so that programs that test `hasattr` do without it.
        raise AttributeError("a buffer has no file descriptor: all buffers of a stream are in one file; use `data`")


class VisionIpcServer:
    """Sends NV12 images on numbered streams."""

    def __init__(self, name: str | bytes) -> None:
        self._name = name
        self._streams: dict[int, FramePublisher] = {}
        self._sign: Publisher | None = None  # tells clients that the server listens, even without streams

    def create_buffers(self, tp: int, num_buffers: int, width: int, height: int) -> None:
        """Buffers for NV12 images of this size, without gaps between rows."""
        self._create(tp, num_buffers, FrameLayout.of_image("nv12", width, height))

    def create_buffers_with_sizes(
        self, tp: int, num_buffers: int, width: int, height: int, size: int, stride: int, uv_offset: int
    ) -> None:
        layout = FrameLayout.of_image("nv12", width, height, stride=stride, offsets={"uv": uv_offset}, size=size)
        self._create(tp, num_buffers, layout)

    def _create(self, tp: int, num_buffers: int, layout: FrameLayout) -> None:
        if int(tp) in self._streams:
            raise ValueError(f"stream {int(tp)} of '{text(self._name)}' already has its buffers")
        self._streams[int(tp)] = FramePublisher(
            _frame_topic(self._name, tp),
            layout=layout,
            buffers=num_buffers + _SPARE_BUFFERS,
            when_full="drop",
            takeover=True,
        )

    def send(
        self,
        tp: int,
        data: ReadableBuffer,
        frame_id: int = 0,
        timestamp_sof: int = 0,
        timestamp_eof: int = 0,
        valid: bool = True,
    ) -> None:
        """Copy an image into the next free buffer and send it. It must have exactly the size of a buffer."""
        if int(tp) not in self._streams:
            raise ValueError(f"stream {int(tp)} of '{text(self._name)}' has no buffers: call create_buffers first")
        publisher = self._streams[int(tp)]
        content = memoryview(data).cast("B")
        if len(content) != publisher.layout.size:
            raise ValueError(f"a buffer of this stream has {publisher.layout.size} bytes, the data {len(content)}")
        with publisher.frame() as draft:
            if not draft.dropped:
                draft.data[:] = content
            draft.id, draft.start_ns, draft.end_ns, draft.valid = frame_id, timestamp_sof, timestamp_eof, valid

    def start_listener(self) -> None:
        """Lets clients continue that wait for the server."""
        if self._sign is None:
            self._sign = Publisher(_server(self._name), capacity=4096, takeover=True)

    def close(self) -> None:
        for publisher in self._streams.values():
            publisher.close()
        if self._sign is not None:
            self._sign.close()

    def __del__(self) -> None:
        self.close()


def _layout_property(read: Callable[[FrameLayout], int]) -> property:
    """A property of the stream's layout; None while the client is not connected."""

    def get(client: VisionIpcClient) -> int | None:
        topic = client._find() if client._connected else None
        return None if topic is None else read(topic.layout)

    return property(get)


class VisionIpcClient:
    """Receives one stream of a server, which may start later, or restart with another size."""

    def __init__(self, name: str | bytes, stream: int, conflate: bool) -> None:
        self._topic = _frame_topic(name, stream)
        self._subscriber = FrameSubscriber(self._topic, conflate=conflate)
        self._events = events_of(get_endpoint_name(name, stream))
        self._connected = False
        self._frame: Frame | None = None
        self.frame_id = 0
        self.timestamp_sof = 0
        self.timestamp_eof = 0
        self.valid = False

    def connect(self, blocking: bool) -> bool:
        """Does the stream exist? With `blocking`, waits until it does."""
        while self._find() is None:
            if not blocking:
                return False
            time.sleep(_POLL_S)
        self._connected = True
        return True

    def _find(self) -> FrameTopic | None:
        try:
            topic = frame_topic(self._topic)
        except (RingmainError, ValueError):
            return None
        return topic if topic.alive else None

    def is_connected(self) -> bool:
        return self._connected and self._find() is not None

    def recv(self, timeout_ms: int = 100) -> VisionBuf | None:
        """The next frame, or None if none came in time (negative: without limit). It replaces the one before, whose
        buffer is released unless a view of it is still in use. With fake events, waits until it may continue, and
        returns the frame that is available then."""
        if not self._connected:
            return None
        self._frame = None
        if self._events is not None:
            self._events.pass_through()
            timeout_ms = 0
        try:
            frame = self._subscriber.recv(timeout=None if timeout_ms < 0 else timeout_ms / 1000)
        except Timeout:
            return None
        layout = self._subscriber.layout
        assert layout is not None  # a frame was received
        self._frame = frame
        self.frame_id, self.valid = frame.id, frame.valid
        self.timestamp_sof, self.timestamp_eof = frame.start_ns, frame.end_ns
        return VisionBuf(frame, layout)

    width = _layout_property(lambda layout: layout.width)
    height = _layout_property(lambda layout: layout.height)
    stride = _layout_property(lambda layout: layout.stride)
    uv_offset = _layout_property(lambda layout: layout.planes["uv"].offset)
    buffer_len = _layout_property(lambda layout: layout.size)

    @property
    def num_buffers(self) -> int:
        topic = self._find() if self._connected else None
        return 0 if topic is None else topic.buffers - _SPARE_BUFFERS

    @staticmethod
    def available_streams(name: str | bytes, block: bool) -> set[int]:
        """The streams of a server, by number. With `block`, waits until it listens."""
        while block and not _listens(name):
            time.sleep(_POLL_S)
        numbers = (s.name.removeprefix(_server(name) + "/") for s in frame_topics(_server(name)) if s.alive)
        return {int(number) for number in numbers if number.isdecimal()}  # the others are servers with longer names

    def close(self) -> None:
        self._frame = None
        self._connected = False
        self._subscriber.close()

    def __del__(self) -> None:
        if hasattr(self, "_subscriber"):
            self.close()


def _listens(name: str | bytes) -> bool:
    try:
        return any(writer.alive for writer in info(_server(name)).writers)
    except RingmainError:
        return False
