"""A recording as MCAP, for Foxglove, PlotJuggler and whatever else reads that. Needs the extra `mcap`.

A topic becomes a channel; its publish time the message's `publish_time`, its record time the `log_time`, its
sequence number the low 32 bits of `sequence`. What MCAP has no field for (epoch, sender, kind, contract) is
in the channel's metadata, so messages of one topic that differ in these are on channels of their own, of the
same topic.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringmain.recording.format import TopicMeta
from ringmain.recording.reader import RecordedMessage, Recording

SCHEMA_ENCODING = "ringmain"


def export_mcap(recording: Recording, path: str | Path, **filters: Any) -> int:
    """Write the messages that the filters of `Recording.batches` let through; returns how many. The file is
    written under a temporary name, so an export that fails leaves none that looks whole."""
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
            channels = _Channels(writer, recording.schemas())
            for message in recording.messages(**filters):
                writer.add_message(
                    channels.id_of(message),
                    log_time=message.record_time_ns,
                    publish_time=message.time_ns,
                    sequence=message.seq & 0xFFFFFFFF,
                    data=message.data,
                )
                count += 1
            writer.finish()
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    return count


class _Channels:
    """MCAP's channels and schemas, registered when they are first needed."""

    def __init__(self, writer: Any, schemas: dict[tuple[str, int], TopicMeta]) -> None:
        self._writer, self._schemas = writer, schemas
        self._channels: dict[tuple[str, int, str, str], int] = {}
        self._registered: dict[bytes, int] = {}

    def id_of(self, message: RecordedMessage) -> int:
        key = (message.topic, message.epoch, message.sender, message.kind)
        known = self._channels.get(key)
        if known is None:
            known = self._channels[key] = self._register(message)
        return known

    def _register(self, message: RecordedMessage) -> int:
        meta = self._schemas.get((message.topic, message.epoch), TopicMeta(message.topic, message.epoch))
        channel: int = self._writer.register_channel(
            topic=message.topic,
            message_encoding=SCHEMA_ENCODING if meta.schema else "",
            schema_id=self._schema_id(meta),
            metadata={
                "epoch": str(message.epoch),
                "sender": message.sender,
                "kind": message.kind,
                "contract": meta.contract,
            },
        )
        return channel

    def _schema_id(self, meta: TopicMeta) -> int:
        if not meta.schema:
            return 0  # MCAP's way of saying: no schema, bytes are bytes
        if meta.schema not in self._registered:
            self._registered[meta.schema] = self._writer.register_schema(
                name=meta.name, encoding=SCHEMA_ENCODING, data=meta.schema
            )
        return self._registered[meta.schema]
