"""Frames in a recording: the payload of a row is the pixels, followed by a *trailer* that describes them.

    payload:  pixels ... | trailer, MessagePack | bytes of the trailer, u32 | "FRM1"

The invariant owned here: a payload alone is enough to make the array again. A frame topic may change its shape within
one life, so the shape cannot be stored once for the topic.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import msgspec

from ringmain.errors import Corrupt
from ringmain.frames import FrameLayout
from ringmain.frames._views import FrameViews, view_in

if TYPE_CHECKING:
    import numpy.typing as npt

    from ringmain.frames import Frame, View

MARK = b"FRM1"
END = struct.Struct("<I4s")


class Trailer(msgspec.Struct, frozen=True, array_like=True):
    """What a frame has besides its pixels."""

    layout: FrameLayout
    id: int
    start_ns: int
    end_ns: int
    valid: bool
    meta: dict[str, Any]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Trailer)


class RecordedFrame(FrameViews):
    """A frame as it was published: `array`, `plane(name)`, `shape`, `dtype` as `Frame` has them, and `id`, `start_ns`,
    `end_ns`, `valid`, `meta`. `data` are its bytes. `RecordedMessage.value` is one for a frame topic."""

    __slots__ = ("data", "trailer")

    def __init__(self, payload: Any) -> None:
        self.data, self.trailer = split(payload)

    @property
    def layout(self) -> FrameLayout:
        return self.trailer.layout

    @property
    def size(self) -> int:
        """Bytes that are used."""
        return self.data.nbytes

    @property
    def id(self) -> int:
        return self.trailer.id

    @property
    def start_ns(self) -> int:
        return self.trailer.start_ns

    @property
    def end_ns(self) -> int:
        return self.trailer.end_ns

    @property
    def valid(self) -> bool:
        return self.trailer.valid

    @property
    def meta(self) -> dict[str, Any]:
        return self.trailer.meta

    def _view(self, view: View | None) -> npt.NDArray[Any]:
        return view_in(self.data, view)


def trailer_of(frame: Frame) -> bytes:
    """The bytes that follow the pixels of a frame."""
    trailer = Trailer(frame.layout, frame.id, frame.start_ns, frame.end_ns, frame.valid, frame.meta)
    encoded = _ENCODER.encode(trailer)
    return encoded + END.pack(len(encoded), MARK)


def split(payload: Any) -> tuple[memoryview, Trailer]:
    """(pixels, trailer) of a row's payload."""
    data = memoryview(payload).cast("B")
    try:
        length, mark = END.unpack_from(data, data.nbytes - END.size)
        pixels = data.nbytes - END.size - length
        if mark != MARK or pixels < 0:
            raise ValueError("it does not end with a frame's trailer")
        trailer = _DECODER.decode(data[pixels : pixels + length])
        if trailer.layout.format != "bytes" and pixels < trailer.layout.size:
            raise ValueError(f"its layout needs {trailer.layout.size} bytes and it has {pixels}")
        trailer.layout._checked()
    except (struct.error, ValueError, TypeError, msgspec.DecodeError) as error:
        raise Corrupt(f"this payload is not a recorded frame: {error}") from error
    return data[:pixels], trailer
