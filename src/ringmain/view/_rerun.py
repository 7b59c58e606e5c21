"""Rerun as a viewer: things to show become its archetypes, and the topics its layout.

A topic is an entity, a field an entity below it, so nested fields are a tree. All is on one timeline, `publish_time`.
Events are texts at `events/TOPIC`, on the same timeline.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy
import rerun as rr

from ringmain.view import _layout
from ringmain.view._counts import Counts, page
from ringmain.view._shown import (
    Encoded,
    Event,
    GeoPoints,
    Image,
    Path,
    Pixels,
    Points,
    Poses,
    Series,
    Shown,
    Tensor,
    Texts,
)

APPLICATION = "ringmain"
TIMELINE = "publish_time"
_COLOR_MODELS = {
    "gray": rr.ColorModel.L,
    "rgb": rr.ColorModel.RGB,
    "bgr": rr.ColorModel.BGR,
    "rgba": rr.ColorModel.RGBA,
    "bgra": rr.ColorModel.BGRA,
}
_JPEG_QUALITY = 90
_MOST_RAW = 256 * 1024
"""Bytes: pictures up to here are small enough as they are, and a page draws them sooner than it decodes a JPEG."""


class RerunSink:
    """Sends things to a recording stream of Rerun.

    jpeg: send pictures of bytes that are large as JPEG, which is a tenth of their size.   layout: make one from what
    there is; otherwise the user's is there.   live: it follows what comes.   speed: at which a recording is played.
    """

    def __init__(
        self,
        stream: rr.RecordingStream,
        *,
        jpeg: bool = True,
        layout: bool = True,
        live: bool = True,
        speed: float = 1.0,
    ) -> None:
        self._stream, self._jpeg = stream, jpeg
        self._layout = _layout.Layout(live=live, speed=speed) if layout else None
        self._paths: dict[tuple[str, Path], str] = {}

    def show(self, topic: str, things: Iterable[Shown]) -> None:
        events = []
        for thing in things:
            if isinstance(thing, Event):
                events.append(thing)
                continue
            entity = self._entity(topic, thing.path)
            if self._layout is not None:
                self._layout.add(topic, entity, thing)
            self._send(entity, thing)
        if events:
            columns = rr.TextLog.columns(text=[f"{topic}: {e.text}" for e in events], level=[e.level for e in events])
            self._columns(self._entity("events", (topic,)), [e.time_ns for e in events], columns)

    def about(self, counts: Mapping[str, Counts]) -> None:
        """What was shown and left out, and the layout, if it is another now."""
        self._stream.log(_layout.ABOUT, rr.TextDocument(page(counts), media_type="text/markdown"), static=True)
        if self._layout is not None and (blueprint := self._layout.changed()) is not None:
            self._stream.send_blueprint(blueprint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *rest: object) -> None:
        if error is None:  # otherwise there may be no server that takes it
            self._stream.flush(timeout_sec=5.0)
        self._stream.disconnect()

    # ---------------------------------------------------------------------------------------------------------

    def _entity(self, topic: str, path: Path) -> str:
        made = self._paths.get((topic, path))
        if made is None:
            made = self._paths[topic, path] = rr.new_entity_path([*topic.split("/"), *path])
        return made

    def _columns(self, entity: str, times_ns: Any, columns: Any) -> None:
        times = rr.TimeColumn(TIMELINE, timestamp=numpy.asarray(times_ns, "i8").view("M8[ns]"))
        self._stream.send_columns(entity, [times], columns)

    def _send(self, entity: str, thing: Shown) -> None:
        match thing:
            case Series(times_ns=times_ns, values=values):
                self._columns(entity, times_ns, rr.Scalars.columns(scalars=values))
            case Texts(times_ns=times_ns, texts=texts):
                self._columns(entity, times_ns, rr.TextLog.columns(text=texts))
            case Points(times_ns=times_ns, positions=positions) if positions.shape[1] == 2:
                self._columns(entity, times_ns, rr.Points2D.columns(positions=positions))
            case Points(times_ns=times_ns, positions=positions):
                self._columns(entity, times_ns, rr.Points3D.columns(positions=positions))
            case GeoPoints(times_ns=times_ns, positions=positions):
                self._columns(entity, times_ns, rr.GeoPoints.columns(positions=positions))
            case Poses(times_ns=times_ns, rotations=rotations, positions=positions):
                self._columns(entity, times_ns, rr.Transform3D.columns(quaternion=rotations, translation=positions))
                if self._layout is not None and self._layout.is_new(entity):
                    self._stream.log(entity, rr.TransformAxes3D(1.0), static=True)
            case Image(time_ns=time_ns, picture=picture):
                self._log(entity, time_ns, self._picture(picture))
            case Tensor(time_ns=time_ns, array=array):
                self._log(entity, time_ns, rr.Tensor(array))

    def _log(self, entity: str, time_ns: int, archetype: Any) -> None:
        self._stream.set_time(TIMELINE, timestamp=numpy.datetime64(time_ns, "ns"))
        self._stream.log(entity, archetype)

    def _picture(self, picture: Encoded | Pixels) -> Any:
        if isinstance(picture, Encoded):
            return rr.EncodedImage(contents=picture.data, media_type=picture.media_type)
        if picture.format in ("nv12", "i420"):
            kind = rr.PixelFormat.NV12 if picture.format == "nv12" else rr.PixelFormat.Y_U_V12_LimitedRange
            return rr.Image(
                bytes=picture.array.tobytes(), width=picture.width, height=picture.height, pixel_format=kind
            )
        if self._jpeg and picture.array.nbytes > _MOST_RAW:
            return rr.EncodedImage(contents=_jpeg(picture), media_type="image/jpeg")
        return rr.Image(numpy.ascontiguousarray(picture.array), color_model=_COLOR_MODELS[picture.format])


def _jpeg(picture: Pixels) -> bytes:
    from PIL import Image as Pillow

    array = picture.array
    if picture.format != "gray":
        array = array[:, :, 2::-1] if picture.format.startswith("bgr") else array[:, :, :3]
    out = io.BytesIO()
    Pillow.fromarray(numpy.ascontiguousarray(array)).save(out, "jpeg", quality=_JPEG_QUALITY)
    return out.getvalue()
