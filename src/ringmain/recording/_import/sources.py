"""Messages from an MCAP file, a ROS bag or a dataset, in the order of the file.

MCAP's records are taken apart here and not by its own reader, which makes Python objects for each message and for each
entry of the indexes: that decides how fast small messages are. For the same reason messages come as columns.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ringmain.errors import RecordingError
from ringmain.recording._import.channel import Channel

_MAGIC = b"\x89MCAP0\r\n"
_FOOTER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _STATISTICS = 2, 3, 4, 5, 6, 11  # opcodes of records
_HEAD = struct.Struct("<BQ")  # of a record: opcode, length
_MESSAGE_HEAD = struct.Struct("<BQHIQQ")  # opcode, length, channel, sequence, log time, publish time
_PIECE_BYTES = 1 << 20
_PIECE_MESSAGES = 5_000


@dataclass(slots=True)
class Piece:
    """Messages of a bag, in its order: what each of them has, and the bytes of all payloads."""

    channels: list[int] = field(default_factory=list)
    publish_ns: list[int] = field(default_factory=list)
    log_ns: list[int] = field(default_factory=list)
    payloads: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0

    @property
    def full(self) -> bool:
        return self.size >= _PIECE_BYTES or len(self.payloads) >= _PIECE_MESSAGES

    def add(self, channel: int, publish_ns: int, log_ns: int, data: bytes | memoryview) -> None:
        self.channels.append(channel)
        self.publish_ns.append(publish_ns)
        self.log_ns.append(log_ns)
        self.payloads.append(data)
        self.size += len(data)


class Source:
    """A bag. `read` and `size` say how far it is read, in the same unit: bytes or messages."""

    size = 0
    read = 0
    channels: dict[int, Channel]
    """Those of the pieces so far, by number."""
    expected: int | None = None
    """How many messages the bag says it has."""
    ends_early = ""
    """Why not all of it could be read, if so."""

    def pieces(self) -> Iterator[Piece]:
        raise NotImplementedError


def open_bag(path: Path) -> Source:
    """An MCAP file, a ROS 1 bag (.bag), or the directory of a ROS 2 bag."""
    if path.is_dir() or path.suffix == ".bag":
        if path.is_dir() and not (path / "metadata.yaml").exists():
            raise RecordingError(
                f"{path} is neither a ROS 2 bag nor a dataset: it has no metadata.yaml, meta/info.json or Parquet file"
            )
        return RosSource(path)
    if path.suffix == ".mcap":
        return McapSource(path)
    raise RecordingError(f"{path}: expected an .mcap file, a ROS 1 .bag, or the directory of a ROS 2 bag or a dataset")


class McapSource(Source):
    def __init__(self, path: Path) -> None:
        self._path, self.size = path, path.stat().st_size
        self._schemas: dict[int, Any] = {}
        self.channels: dict[int, Channel] = {}

    def pieces(self) -> Iterator[Piece]:
        from mcap.exceptions import McapError

        with open(self._path, "rb") as file:
            try:
                if file.read(len(_MAGIC)) != _MAGIC:
                    raise RecordingError(f"{self._path} is not a readable MCAP file: it does not begin like one")
                piece = Piece()
                for records in self._records(file):
                    self._take_apart(records, piece)
                    if piece.full:
                        yield piece
                        piece = Piece()
                yield piece
            except (McapError, struct.error, UnicodeDecodeError) as error:
                raise RecordingError(f"{self._path} is damaged: {error!r}") from error

    def _records(self, file: BinaryIO) -> Iterator[bytes]:
        """Records with messages, schemas and channels, up to the footer: all of a chunk, or one. What only helps to
        search the file (indexes) is skipped."""
        wanted = (_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _STATISTICS)
        while True:
            head = file.read(_HEAD.size)
            opcode, length = _HEAD.unpack(head) if len(head) == _HEAD.size else (0, 0)
            self.read = file.tell()
            if not opcode or self.read + length > self.size:
                self.ends_early = "the file ends before its end mark, as after a crash of its recorder"
                return
            if opcode == _FOOTER:
                return
            if opcode not in wanted:
                file.seek(length, os.SEEK_CUR)
                continue
            content = file.read(length)
            if opcode == _CHUNK:
                yield self._bytes_of(_parse(opcode, content))
            elif opcode == _STATISTICS:
                self.expected = _parse(opcode, content).message_count
            else:
                yield head + content

    def _take_apart(self, data: bytes, piece: Piece) -> None:
        """Add the messages of some records."""
        view, at, end = memoryview(data), 0, len(data)
        add_channel, add_publish_ns = piece.channels.append, piece.publish_ns.append
        add_log_ns, add_payload, body = piece.log_ns.append, piece.payloads.append, _MESSAGE_HEAD.size
        while at < end:
            opcode, length = _HEAD.unpack_from(data, at)
            after = at + _HEAD.size + length
            if after > end:
                raise RecordingError(f"{self._path} is damaged: a record goes beyond the end of its chunk")
            if opcode == _MESSAGE:
                _, _, channel, _, log_ns, publish_ns = _MESSAGE_HEAD.unpack_from(data, at)
                add_channel(channel)
                add_publish_ns(publish_ns)
                add_log_ns(log_ns)
                add_payload(view[at + body : after])
                piece.size += after - at - body
            elif opcode in (_CHANNEL, _SCHEMA):
                self._know(opcode, data[at + _HEAD.size : after])
            at = after
        if not self.channels.keys() >= set(piece.channels):
            raise RecordingError(f"{self._path} is damaged: a message is on a channel that does not exist")

    def _bytes_of(self, chunk: Any) -> bytes:
        from mcap.stream_reader import get_chunk_data_stream

        try:
            stream, length = get_chunk_data_stream(chunk)
            data: bytes = stream.read(length)
        except Exception as error:  # zstd's and lz4's errors have no base of their own
            raise RecordingError(f"{self._path} is damaged: a chunk cannot be decompressed: {error}") from error
        if chunk.uncompressed_crc and zlib.crc32(data) != chunk.uncompressed_crc:
            raise RecordingError(f"{self._path} is damaged: a chunk does not pass its checksum")
        return data

    def _know(self, opcode: int, content: bytes) -> None:
        record = _parse(opcode, content)
        if opcode == _SCHEMA:
            self._schemas[record.id] = record
            return
        schema = self._schemas.get(record.schema_id)
        if schema is None and record.schema_id:
            raise RecordingError(f"{self._path} is damaged: the schema of {record.topic!r} is missing")
        own = record.metadata if "epoch" in record.metadata else {}  # what ringmain's own export adds
        self.channels[record.id] = Channel(
            record.topic,
            record.message_encoding,
            schema.name if schema else "",
            schema.encoding if schema else "",
            schema.data if schema else b"",
            own.get("sender", ""),
            own.get("kind", ""),
            own.get("contract", ""),
        )


def _parse(opcode: int, content: bytes) -> Any:
    from io import BytesIO

    from mcap import records
    from mcap.data_stream import ReadDataStream

    kinds: dict[int, Any] = {
        _SCHEMA: records.Schema, _CHANNEL: records.Channel, _CHUNK: records.Chunk, _STATISTICS: records.Statistics,
    }  # fmt: skip
    return kinds[opcode].read(ReadDataStream(BytesIO(content)))


class RosSource(Source):
    """ROS keeps one time for each message, which is both its publish time and its record time here."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pieces(self) -> Iterator[Piece]:
        from rosbags.interfaces import MessageDefinitionFormat
        from rosbags.rosbag1 import Reader as Reader1
        from rosbags.rosbag1 import ReaderError as ReaderError1
        from rosbags.rosbag2 import Reader as Reader2
        from rosbags.rosbag2 import ReaderError as ReaderError2

        ros1 = not self._path.is_dir()
        encodings = {MessageDefinitionFormat.NONE: "", MessageDefinitionFormat.IDL: "ros2idl"}
        reader: Any = Reader1(self._path) if ros1 else Reader2(self._path)
        try:
            with reader:
                self.size = self.expected = reader.message_count
                numbers = {(one.topic, one.id): number for number, one in enumerate(reader.connections)}
                self.channels = {
                    number: Channel(
                        connection.topic,
                        "ros1" if ros1 else connection.ext.serialization_format,
                        connection.msgtype,
                        encodings.get(connection.msgdef.format, "ros1msg" if ros1 else "ros2msg"),
                        connection.msgdef.data.encode(),
                        (connection.ext.callerid or "") if ros1 else "",
                    )
                    for number, connection in enumerate(reader.connections)
                }
                piece = Piece()
                for connection, time_ns, data in reader.messages():
                    self.read += 1
                    piece.add(numbers[connection.topic, connection.id], time_ns, time_ns, data)
                    if piece.full:
                        yield piece
                        piece = Piece()
                yield piece
        except (ReaderError1, ReaderError2) as error:
            raise RecordingError(f"{self._path} is not a readable bag: {error}") from error
