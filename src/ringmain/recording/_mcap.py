"""Export of a recording as MCAP, for Foxglove, PlotJuggler and other programs that read it. Needs the extra `mcap`.

A topic becomes a channel. A message's publish time becomes `publish_time`, its record time `log_time`, and the low 32
bits of its sequence number `sequence`. What MCAP has no field for (epoch, sender, kind, contract) is in the channel's
metadata, so messages of one topic that differ in these are on separate channels of the same topic.

These programs show only what they can decode, so records are written as JSON with a JSON schema, and frames of the
usual pixel formats as `foxglove.RawImage`, also in JSON. Everything else, and everything with `raw=True`, is written as
the recorded bytes, with ringmain's own schema.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ringmain.recording._format import FRAMES, TABLE
from ringmain.recording._json_form import IMAGE_ENCODINGS, RAW_ENCODING, json_form, json_schema
from ringmain.recording._message import RecordedMessage
from ringmain.recording._meta import TopicMeta
from ringmain.recording._reader import Recording

_CHANNEL_FIELDS = tuple(column.field for column in TABLE if column.channel)


class _Time(msgspec.Struct):
    sec: int
    nsec: int


class RawImage(msgspec.Struct):
    """Foxglove's schema of that name: https://docs.foxglove.dev/docs/visualization/message-schemas/raw-image"""

    timestamp: _Time
    frame_id: str
    width: int
    height: int
    encoding: str
    step: int
    data: bytes


class _Form(NamedTuple):
    """How the messages of a topic's life are written."""

    message_encoding: str = ""
    schema_name: str = ""
    schema_encoding: str = ""
    schema: bytes = b""
    encode: Callable[[RecordedMessage], bytes] = lambda message: message.data


def export_mcap(recording: Recording, path: str | Path, *, raw: bool = False, **filters: Any) -> int:
    """Write the messages that match the filters of `Recording.batches`; returns how many. The file is written under a
    temporary name, so an export that fails leaves no incomplete file."""
    try:
        from mcap.writer import Writer
    except ImportError as error:
        raise ImportError("exporting to MCAP needs the package mcap: pip install 'ringmain[mcap]'") from error
    target = Path(path)
    temporary = target.with_name(target.name + ".tmp")
    count = 0
    try:
        with open(temporary, "wb") as file:
            writer: Any = Writer(file)
            writer.start(profile="", library="ringmain")
            channels = _Channels(writer, recording.schemas(), raw)
            for message in recording.messages(**filters):
                channel, data = channels.assign(message)
                writer.add_message(
                    channel,
                    log_time=message.record_time_ns,
                    publish_time=message.time_ns,
                    sequence=message.seq & 0xFFFFFFFF,
                    data=data,
                )
                count += 1
            writer.finish()
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return count


class _Channels:
    """MCAP's channels and schemas, registered when they are first needed."""

    def __init__(self, writer: Any, schemas: dict[tuple[str, int], TopicMeta], raw: bool) -> None:
        self._writer, self._schemas, self._raw = writer, schemas, raw
        self._channels: dict[tuple[Any, ...], int] = {}
        self._forms: dict[tuple[str, int], _Form] = {}
        self._registered: dict[tuple[str, bytes], int] = {}

    def assign(self, message: RecordedMessage) -> tuple[int, bytes]:
        """A message's channel, and its bytes there. A message that does not decode keeps its own bytes, on a channel
        for such messages."""
        try:
            form = self._form(message)
            data = form.encode(message)
        except (ValueError, TypeError):
            form = _as_it_is(self._meta(message))
            data = message.data
        key = (message.topic, form.message_encoding, *(getattr(message, field) for field in _CHANNEL_FIELDS))
        if key not in self._channels:
            self._channels[key] = self._register(message, form)
        return self._channels[key], data

    def _meta(self, message: RecordedMessage) -> TopicMeta:
        life = (message.topic, message.epoch)
        return self._schemas.get(life, TopicMeta(*life))

    def _form(self, message: RecordedMessage) -> _Form:
        life, meta = (message.topic, message.epoch), self._meta(message)
        if meta.contract == FRAMES and not self._raw:  # each frame has its own layout
            return _IMAGE if message.value.layout.format in IMAGE_ENCODINGS else _Form()
        if life not in self._forms:
            self._forms[life] = _form_of(meta, self._raw)
        return self._forms[life]

    def _register(self, message: RecordedMessage, form: _Form) -> int:
        channel: int = self._writer.register_channel(
            topic=message.topic,
            message_encoding=form.message_encoding,
            schema_id=self._schema_id(form),
            metadata={
                **{field: str(getattr(message, field)) for field in _CHANNEL_FIELDS},
                "contract": self._meta(message).contract,
            },
        )
        return channel

    def _schema_id(self, form: _Form) -> int:
        if not form.schema:
            return 0  # MCAP's id for no schema
        key = (form.schema_name, form.schema)
        if key not in self._registered:
            self._registered[key] = self._writer.register_schema(
                name=form.schema_name, encoding=form.schema_encoding, data=form.schema
            )
        return self._registered[key]


def _as_it_is(meta: TopicMeta) -> _Form:
    return _Form(RAW_ENCODING, meta.name, RAW_ENCODING, meta.schema) if meta.schema else _Form()


def _form_of(meta: TopicMeta, raw: bool) -> _Form:
    """Records as JSON; what is not a record, or has an unknown codec, as recorded."""
    as_it_is = _as_it_is(meta)
    if raw or not meta.schema:
        return as_it_is
    from ringmain import typed

    try:
        schema = typed.Schema.from_bytes(meta.schema)
        form = json_form(schema)
    except (ValueError, LookupError, TypeError, ImportError):
        return as_it_is
    is_record = schema.codec == "struct" or bool(schema.fields)
    if form is None or not is_record or form.described.get("type") != "object":
        return as_it_is
    return _Form("json", schema.type_name, "jsonschema", form.schema, lambda message: form.encode(message.value))


def _encode_image(message: RecordedMessage) -> bytes:
    frame = message.value
    sec, nsec = divmod(frame.start_ns or message.time_ns, 1_000_000_000)
    image = RawImage(
        _Time(sec, nsec), message.topic, frame.width, frame.height, IMAGE_ENCODINGS[frame.layout.format], frame.stride,
        bytes(frame.data),
    )  # fmt: skip
    return msgspec.json.encode(image)


_IMAGE = _Form(
    "json",
    "foxglove.RawImage",
    "jsonschema",
    msgspec.json.encode({**json_schema(RawImage), "title": "foxglove.RawImage"}),
    _encode_image,
)
