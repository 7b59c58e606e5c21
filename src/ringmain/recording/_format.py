"""The format of a recording on disk: file names, the table of columns, positions. No behaviour beyond naming things.

    DIR/
      meta.json               who records, since when, which topics with which schemas (_meta.py)
      lock                    locked by the running recorder; holds its pid, pid namespace and host
      000000000.parquet       a sealed segment: never changes again
      000000001.arrows        the segment being written: an Arrow IPC stream that only grows
      retired.json            what retention deleted: the first segment left, the rows of those before it
      uploaded.json           with sealed_uri: what is there, so that the recorder need not ask (_upkeep/uploads.py)
      000000000-ID.parquet    at sealed_uri: a sealed segment, with the recording's id in its name
      consumers/NAME.json     how far a registered consumer has read
      incidents/ID.json       what a flight recorder keeps (_upkeep/incidents.py)
      triggers/ID.json        what it has been asked to keep, until it does

The invariant owned here: *a position (segment, row) never changes its meaning*. A row keeps its number when its segment
is sealed, when earlier segments are deleted, and when rows before it turn out to be damaged. docs/spec/recording.md is
the full text; a test compares its tables with this file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import pyarrow as pa

# Of the directory and of `sealed_uri`. 1: no id, and plain names there. 2: no properties of topics, no incidents. 3: no
# extensions. All are read and continued.
FORMAT_VERSION = 4
SEGMENT_VERSION = 1  # of the files of segments

META = "meta.json"
LOCK = "lock"
RETIRED = "retired.json"
UPLOADED = "uploaded.json"
CONSUMERS = "consumers"
INCIDENTS = "incidents"
REQUESTS = "triggers"
DAMAGED = "damaged"  # repair() moves what it cannot read here, and deletes none of it

FRAMES = "frames"  # the contract of a frame topic; _frames.py describes its payloads


class RingColumn(NamedTuple):
    """A column of the batches that a live topic's recv_batch() gives."""

    name: str
    type: pa.DataType
    absent: object = None
    """Its value for a message that came from no ring, if that is always the same."""


RING_COLUMNS = (
    RingColumn("seq", pa.uint64()),
    RingColumn("time_ns", pa.int64()),
    RingColumn("sender", pa.string(), ""),
    RingColumn("kind", pa.string(), ""),
    RingColumn("lost", pa.uint64(), 0),
    RingColumn("extension", pa.binary(), b""),
    RingColumn("data", pa.binary()),
)
RING_SCHEMA = pa.schema([pa.field(column.name, column.type, nullable=False) for column in RING_COLUMNS])


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
# What ringmain's own parts say of a message (docs/spec/shared-memory.md); empty for most. Segments have it since format
# 4, and readers where it is asked for: null in older ones. Spark, lakes and tables do without.
EXTENSION = pa.field("extension", pa.binary())
STORED = pa.schema([*list(SCHEMA)[:-1], EXTENSION, SCHEMA.field("payload")])
ENVELOPE_COLUMNS: tuple[str, ...] = COLUMNS[:-1]  # all but the payload
HOST = pa.field("host", pa.string(), nullable=False)  # not in segments: readers add it, from meta.json
INCIDENTS_COLUMN = pa.field("incidents", pa.list_(pa.string()), nullable=False)  # readers add it, where it is asked for
LATCHED_COLUMN = pa.field("latched", pa.bool_(), nullable=False)  # likewise

# Where messages are decoded, their fields are columns, and a field may have the name of one of ours: `size`, `topic`.
# The field keeps its name. So there, and only there, every column of ours has this prefix. It needs no quotes in SQL
# and is an attribute in pandas, whose `itertuples` renames columns that begin with an underscore.
PREFIX = "rm_"
_LIKE_OURS = re.compile(rf"(field_)*{PREFIX}", re.IGNORECASE)  # Spark and DuckDB ignore case in names


def schema_of(format: int) -> pa.Schema:
    """Of the segments of a recording."""
    return STORED if format >= 4 else SCHEMA


def decoded_name(column: str) -> str:
    """What a column of ours is called where messages are decoded."""
    return PREFIX + column


def is_ours(column: str) -> bool:
    """Is it a column of ours, where messages are decoded?"""
    return column.startswith(PREFIX)


def field_columns(fields: Iterable[str], known: Collection[str] = ()) -> list[str]:
    """The columns of a message's fields: each has its own name, but for two kinds. One that begins with our prefix is
    called field_NAME, and so is one that begins like that. Of those that differ only in case, which SQL takes for one
    name, the one that the table has, or else the first, keeps it, and the others are called NAME_2, NAME_3, ..."""
    wanted = [f"field_{name}" if _LIKE_OURS.match(name) else name for name in fields]
    chosen = {name: name for name in wanted if name in known}
    taken = {name.lower() for name in chosen}
    others = {name.lower() for name in known} - taken
    for name in wanted:
        if name in chosen:
            continue
        numbered = (name if n == 1 else f"{name}_{n}" for n in count(1))
        chosen[name] = next(
            one for one in numbered if one.lower() not in taken and (one in known or one.lower() not in others)
        )
        taken.add(chosen[name].lower())
    return [chosen[name] for name in wanted]


def decoded_fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    """Columns of ours as they are where messages are decoded."""
    return [field.with_name(decoded_name(field.name)) for field in fields]


ENVELOPE_BYTES = 80  # about, of a row without its payload
MAX_PAYLOAD_BYTES = 1 << 30  # of a batch: a `binary` column counts its bytes in 31 bits

_SEGMENT = re.compile(r"(\d{9})(?:-([0-9a-f]{8}))?\.(arrows|parquet)\Z")
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
        if not (colon and segment.removeprefix("-").isdigit() and row.isdigit()):
            raise ValueError(f"not a position: {text!r}; expected SEGMENT:ROW, such as 000000003:1500")
        return cls(int(segment), int(row))


BEGINNING = Position(0, 0)
LATCHED = -1  # in the positions of an incident's latched rows: before all segments, and in none
FIRST = Position(LATCHED, 0)


def stream_name(segment: int) -> str:
    return f"{segment:09d}.arrows"


def sealed_name(segment: int, recording: str = "") -> str:
    """With the recording's id: its name at `sealed_uri`, which no other recording has."""
    return f"{segment:09d}-{recording}.parquet" if recording else f"{segment:09d}.parquet"


class SegmentName(NamedTuple):
    """What the name of a segment's file says."""

    number: int
    sealed: bool
    recording: str  # its id; empty in the recorder's directory, and everywhere in format 1


def parse_segment_name(name: str) -> SegmentName | None:
    """None for a name that is not a segment's."""
    match = _SEGMENT.match(name)
    return SegmentName(int(match[1]), match[3] == "parquet", match[2] or "") if match else None


class Retired(msgspec.Struct):
    """retired.json: segments below `first_segment` are deleted; `rows[i]` is how many rows segment i had, and
    `newest_ns[i]` its newest publish time, 0 where that is not known."""

    crc: str
    first_segment: int = 0
    rows: list[int] = []
    newest_ns: list[int] = []


class UploadedLife(msgspec.Struct):
    """The last message of a life (topic, epoch) in the segments at `sealed_uri`."""

    topic: str
    epoch: int
    last_seq: int


class Uploaded(msgspec.Struct):
    """uploaded.json: segments from `next_segment` on are not at `sealed_uri`; the newest publish time of the last ones
    that are; and the incidents whose manifests are there."""

    crc: str
    next_segment: int = 0
    lives: list[UploadedLife] = []
    newest_ns: dict[int, int] = {}
    incidents: list[str] = []


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
