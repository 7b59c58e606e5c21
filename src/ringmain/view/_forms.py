"""Messages as viewers that speak Foxglove's protocol take them: records as JSON with a JSON schema, pictures as
`foxglove.RawImage` or `foxglove.CompressedImage`, texts as `foxglove.Log`, other bytes as they are.

Invariant: a form is chosen by the topic's type alone, before the first message, since a channel is announced with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import foxglove
from foxglove import messages

from ringmain.errors import CodecNotFound, SchemaError
from ringmain.recording._json_form import IMAGE_ENCODINGS, RAW_ENCODING, json_form
from ringmain.typed import Schema, codec_from_schema
from ringmain.view._pictures import encoded
from ringmain.view._shown import Pixels


class Form(NamedTuple):
    encoding: str
    schema: foxglove.Schema
    encode: Callable[[Any, int], bytes]
    """Of a payload, or a picture, published at a time (ns)."""


def form_of(schema: Schema | None, newest: bytes | None) -> Form:
    """For the messages of a topic. `newest`: of a topic without a type, a message of it."""
    if schema is None:
        return _COMPRESSED if newest is not None and encoded(newest) is not None else _BYTES
    try:
        decode = codec_from_schema(schema).decode
        if schema.codec == "str":
            return Form("protobuf", messages.Log.get_schema(), lambda payload, ns: _log(decode(payload), ns))
        if (form := json_form(schema)) is not None:
            known = foxglove.Schema(name=schema.type_name, encoding="jsonschema", data=form.schema)
            return Form("json", known, lambda payload, _: form.encode(decode(payload)))
    except (CodecNotFound, SchemaError, ImportError, TypeError, LookupError):
        pass
    return _BYTES


def _log(text: str, time_ns: int) -> bytes:
    return messages.Log(timestamp=_time(time_ns), level=messages.LogLevel.Info, message=text).encode()


def _time(time_ns: int) -> messages.Timestamp:
    return messages.Timestamp(sec=time_ns // 1_000_000_000, nsec=time_ns % 1_000_000_000)


def _compressed(payload: bytes, time_ns: int) -> bytes:
    picture = encoded(payload)
    format = picture.media_type.removeprefix("image/") if picture is not None else ""
    return messages.CompressedImage(timestamp=_time(time_ns), data=payload, format=format).encode()


def _raw(picture: Pixels, time_ns: int) -> bytes:
    data = picture.array.tobytes()
    return messages.RawImage(
        timestamp=_time(time_ns),
        width=picture.width,
        height=picture.height,
        encoding=IMAGE_ENCODINGS[picture.format],
        step=len(data) // picture.height,
        data=data,
    ).encode()


_BYTES = Form(RAW_ENCODING, foxglove.Schema(name="bytes", encoding="", data=b""), lambda payload, _: payload)
_COMPRESSED = Form("protobuf", messages.CompressedImage.get_schema(), _compressed)
RAW = Form("protobuf", messages.RawImage.get_schema(), _raw)
"""For frames whose pixels Foxglove has a name for: gray, rgb, bgr, rgba, bgra."""
