"""The format of a recording on disk: file names, the table of columns, positions. No behaviour beyond naming things.

    DIR/
      meta.json               who records, since when, which topics with which schemas (_meta.py)
      lock                    locked by the running recorder; holds its pid, pid namespace and host
      000000000.parquet       a sealed segment: never changes again
      000000001.arrows        the segment being written: an Arrow IPC stream that only grows
      retired.json            what retention deleted: the first segment left, the rows of those before it
      uploaded.json           with sealed_uri: what is there, so that the recorder need not ask (_segment/uploads.py)
      consumers/NAME.json     how far a registered consumer has read

The invariant owned here: *a position (segment, row) never changes its meaning*. A row keeps its number when its segment
is sealed, when earlier segments are deleted, and when rows before it turn out to be damaged. docs/spec/recording.md is
the full text; a test compares its tables with this file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa

FORMAT_VERSION = 1

META = "meta.json"
LOCK = "lock"
RETIRED = "retired.json"
UPLOADED = "uploaded.json"
CONSUMERS = "consumers"
DAMAGED = "damaged"  # repair() moves what it cannot read here, and deletes none of it

FRAMES = "frames"  # the contract of a frame topic; _frames.py describes its payloads

# The columns of the batches that a live topic's recv_batch() gives.
RING_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.uint64(), nullable=False),
        pa.field("time_ns", pa.int64(), nullable=False),
        pa.field("sender", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("lost", pa.uint64(), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
    ]
)


class Column(NamedTuple):
    """One column of a recording. Everything that writes, reads or describes rows is derived from TABLE."""

    name: str
    type: pa.DataType
    spark: str
    """The same type in Spark SQL."""
    encoding: Literal["dictionary", "delta", "plain"]
    """In a sealed segment."""
    source: Literal["constant", "ring", "computed"]
    """The same for a whole batch; the ring's column `ring`; or computed. _record/row_builder.py makes all three."""
    ring: str = ""
    field: str = ""
    """The field of `RecordedMessage` that carries it, if any."""
    channel: bool = False
    """In an MCAP file: messages that differ in it are on channels of their own, whose metadata has it."""


_TIME = pa.timestamp("us", tz="UTC")

# Spark reads these columns as they are, both from Parquet and as Arrow batches, so they keep to its types: no unsigned
# integers (the ring's counters stay below 2**63), no nanosecond timestamps (it refuses TIMESTAMP(NANOS)), and in Arrow
# no dictionaries or large_* types. publish_ns carries what microseconds drop. The payload is the last column: its bytes
# are the last buffer of a batch, which has a checksum of its own.
TABLE = (
    Column("recorder", pa.string(), "string", "dictionary", "constant"),
    Column("topic", pa.string(), "string", "dictionary", "constant", field="topic"),
    Column("epoch", pa.int64(), "bigint", "dictionary", "constant", field="epoch", channel=True),
    Column("seq", pa.int64(), "bigint", "delta", "ring", "seq", "seq"),
    Column("publish_time", _TIME, "timestamp", "delta", "computed", field="time_ns"),
    Column(
        "publish_ns", pa.int16(), "smallint", "dictionary", "computed"
    ),  # the remainder below a microsecond, 0 to 999
    Column("record_time", _TIME, "timestamp", "dictionary", "computed", field="record_time_ns"),
    Column("sender", pa.string(), "string", "dictionary", "ring", "sender", "sender", channel=True),
    Column("kind", pa.string(), "string", "dictionary", "ring", "kind", "kind", channel=True),
    Column("lost", pa.int64(), "bigint", "dictionary", "ring", "lost", "lost"),
    Column("size", pa.int32(), "int", "dictionary", "computed"),
    Column("payload", pa.binary(), "binary", "plain", "ring", "data", "data"),
)
SCHEMA = pa.schema([pa.field(column.name, column.type, nullable=False) for column in TABLE])
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
ENVELOPE_COLUMNS: tuple[str, ...] = COLUMNS[:-1]  # all but the payload
HOST = pa.field("host", pa.string(), nullable=False)  # not in segments: readers add it, from meta.json
ENVELOPE_BYTES = 80  # about, of a row without its payload
MAX_PAYLOAD_BYTES = 1 << 30  # of a batch: a `binary` column counts its bytes in 31 bits

_SEGMENT = re.compile(r"(\d{9})\.(arrows|parquet)\Z")
MAX_SEGMENT = 999_999_999


class Position(NamedTuple):
    """The next row to be read. Ordered, and stable for the life of the recording."""

    segment: int
    row: int

    def __str__(self) -> str:
        return f"{self.segment:09d}:{self.row}"

    @classmethod
    def parse(cls, text: str) -> Position:
        segment, colon, row = text.partition(":")
        if not (colon and segment.isdigit() and row.isdigit()):
            raise ValueError(f"not a position: {text!r}; expected SEGMENT:ROW, such as 000000003:1500")
        return cls(int(segment), int(row))


BEGINNING = Position(0, 0)


def stream_name(segment: int) -> str:
    return f"{segment:09d}.arrows"


def sealed_name(segment: int) -> str:
    return f"{segment:09d}.parquet"


def parse_segment_name(name: str) -> tuple[int, bool] | None:
    """(number, is sealed) of a segment's file name, None for any other name."""
    match = _SEGMENT.match(name)
    return (int(match[1]), match[2] == "parquet") if match else None


class Retired(msgspec.Struct):
    """retired.json: segments below `first_segment` are deleted; `rows[i]` is how many rows segment i had."""

    crc: str
    first_segment: int = 0
    rows: list[int] = []


class UploadedLife(msgspec.Struct):
    """The last message of a life (topic, epoch) in the segments at `sealed_uri`."""

    topic: str
    epoch: int
    last_seq: int


class Uploaded(msgspec.Struct):
    """uploaded.json: segments from `next_segment` on are not at `sealed_uri`."""

    crc: str
    next_segment: int = 0
    lives: list[UploadedLife] = []


class Consumer(msgspec.Struct):
    """consumers/NAME.json: the consumer needs no row before `segment`:`row`."""

    crc: str
    name: str
    segment: int = 0
    row: int = 0
    updated_ns: int = 0


def consumer_path(directory: Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(f"bad consumer name {name!r}: use up to 100 letters, digits, dots, dashes and underscores")
    return directory / CONSUMERS / f"{name}.json"
