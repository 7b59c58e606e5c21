"""msgq's visionipc on ringmain's frames: `from ringmain.compat.msgq.visionipc import VisionIpcServer, VisionIpcClient`.

A server's stream is the frame stream `visionipc/<name>/<number>`. What differs, and why, is in the guide: a buffer that
a client holds (the one it received last, and any whose `data` is still in use) is never rewritten under it, so there
are a few spare buffers beside those asked for, and a frame for which none is free is dropped instead of tearing
another; and `data` is read-only, since other processes see the same bytes.
"""

from __future__ import annotations

import time
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ringmain._inspect import info
from ringmain._publisher import Publisher
from ringmain.compat._names import text
from ringmain.compat.msgq._endpoints import place
from ringmain.compat.msgq._events import events_of
from ringmain.errors import RingmainError, Timeout
from ringmain.frames import FrameLayout, FramePublisher, FrameSubscriber, FrameTopic, frame_topic, frame_topics

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from ringmain.frames import Frame

__all__ = ["VisionBuf", "VisionIpcClient", "VisionIpcServer", "VisionStreamType", "get_endpoint_name"]

_SPARE_BUFFERS = 2
"""One that is being written, one that a client is just letting go."""
_LOOK_S = 0.01


class VisionStreamType(IntEnum):
    """The names of old. Newer programs bring their own numbers: any is a stream."""

    VISION_STREAM_ROAD = 0
    VISION_STREAM_DRIVER = 1
    VISION_STREAM_WIDE_ROAD = 2
    VISION_STREAM_MAP = 3


def _server(name: str | bytes) -> str:
    return place(name, "visionipc")


def _stream(name: str | bytes, stream: int) -> str:
    return f"{_server(name)}/{int(stream)}"


def get_endpoint_name(name: str | bytes, stream: int) -> str:
    """What the stream is called where endpoints are: its fake events have this name."""
    return f"visionipc_{text(name)}_{int(stream)}"


class VisionBuf:
    """A frame where it lies. It stays as it is for as long as this object, or a view of its data, lives."""

    def __init__(self, frame: Frame, layout: FrameLayout) -> None:
        self._frame = frame
        self._layout = layout
        self.idx: int = frame.buffer
        self.frame_id: int = frame.id

    @property
    def data(self) -> memoryview:
        return self._frame.data

    def as_array(self) -> Any:
        """The bytes as a numpy array."""
        import numpy as np

        return np.frombuffer(self._frame.data, np.uint8)

    @property
    def fd(self) -> int:
        # An AttributeError, so that programs which ask `hasattr` take the way without it.
        raise AttributeError("a buffer has no descriptor: a stream's buffers are parts of one pool; use `data`")

    @property
    def width(self) -> int:
        return self._layout.width

    @property
    def height(self) -> int:
        return self._layout.height

    @property
    def stride(self) -> int:
        return self._layout.stride

    @property
    def uv_offset(self) -> int:
        return self._layout.planes["uv"].offset


class VisionIpcServer:
    """Sends NV12 images on numbered streams."""

    def __init__(self, name: str | bytes) -> None:
        self._name = name
        self._streams: dict[int, FramePublisher] = {}
        self._sign: Publisher | None = None  # tells clients that the server is up, whatever its streams

    def create_buffers(self, tp: int, num_buffers: int, width: int, height: int) -> None:
        """Buffers for NV12 images of this size, rows one after the other."""
        self._create(tp, num_buffers, FrameLayout.of_image("nv12", width, height))

    def create_buffers_with_sizes(
        self, tp: int, num_buffers: int, width: int, height: int, size: int, stride: int, uv_offset: int
    ) -> None:
        layout = FrameLayout.of_image("nv12", width, height, stride=stride, offsets={"uv": uv_offset}, size=size)
        self._create(tp, num_buffers, layout)

    def _create(self, tp: int, num_buffers: int, layout: FrameLayout) -> None:
        if int(tp) in self._streams:
            raise ValueError(f"stream {int(tp)} of '{text(self._name)}' has its buffers already")
        self._streams[int(tp)] = FramePublisher(
            _stream(self._name, tp),
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
        """Clients that block on the server are let go."""
        if self._sign is None:
            self._sign = Publisher(_server(self._name), capacity=4096, takeover=True)

    def close(self) -> None:
        for publisher in self._streams.values():
            publisher.close()
        if self._sign is not None:
            self._sign.close()

    def __del__(self) -> None:
        self.close()


class VisionIpcClient:
    """Receives one stream of a server, which may come later, or come back with another size."""

    def __init__(self, name: str | bytes, stream: int, conflate: bool) -> None:
        self._stream = _stream(name, stream)
        self._subscriber = FrameSubscriber(self._stream, conflate=conflate)
        self._events = events_of(get_endpoint_name(name, stream))
        self._connected = False
        self._frame: Frame | None = None
        self.frame_id = 0
        self.timestamp_sof = 0
        self.timestamp_eof = 0
        self.valid = False

    def connect(self, blocking: bool) -> bool:
        """Is the stream there? With `blocking`, waits until it is."""
        while self._look() is None:
            if not blocking:
                return False
            time.sleep(_LOOK_S)
        self._connected = True
        return True

    def _look(self) -> FrameTopic | None:
        try:
            stream = frame_topic(self._stream)
        except (RingmainError, ValueError):
            return None
        return stream if stream.alive else None

    def is_connected(self) -> bool:
        return self._connected and self._look() is not None

    def recv(self, timeout_ms: int = 100) -> VisionBuf | None:
        """The next frame, or None when none came in time (below 0: for ever). It replaces the one before,
        whose buffer goes back unless a view of it is still in use. With fake events on, waits to be let go and takes
        what is there."""
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
        assert layout is not None  # it has received a frame
        self._frame = frame
        self.frame_id, self.valid = frame.id, frame.valid
        self.timestamp_sof, self.timestamp_eof = frame.start_ns, frame.end_ns
        return VisionBuf(frame, layout)

    def _layout(self) -> FrameLayout | None:
        stream = self._look() if self._connected else None
        return None if stream is None else stream.layout

    @property
    def width(self) -> int | None:
        layout = self._layout()
        return None if layout is None else layout.width

    @property
    def height(self) -> int | None:
        layout = self._layout()
        return None if layout is None else layout.height

    @property
    def stride(self) -> int | None:
        layout = self._layout()
        return None if layout is None else layout.stride

    @property
    def uv_offset(self) -> int | None:
        layout = self._layout()
        return None if layout is None else layout.planes["uv"].offset

    @property
    def buffer_len(self) -> int | None:
        layout = self._layout()
        return None if layout is None else layout.size

    @property
    def num_buffers(self) -> int:
        stream = self._look() if self._connected else None
        return 0 if stream is None else stream.buffers - _SPARE_BUFFERS

    @staticmethod
    def available_streams(name: str | bytes, block: bool) -> set[int]:
        """The streams of a server, by number. With `block`, waits until it listens."""
        while block and not _listens(name):
            time.sleep(_LOOK_S)
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
