"""What a recording is on disk: names, columns, positions, meta.json. No behaviour beyond naming things.

    DIR/
      meta.json               who records, since when, which topics with which schemas
      lock                    held by the living recorder; says who it is
      000000000.parquet       a sealed segment: never changes again
      000000001.arrows        the segment being written: an Arrow IPC stream that only grows
      retired.json            what retention has deleted: first segment left, rows of those before it
      consumers/NAME.json     how far a registered consumer has read

The invariant owned here: *a position (segment, row) never changes its meaning*. A row keeps its number
when its segment is sealed, when the segments before it are deleted, and when rows before it are found
damaged. docs/spec/recording.md is the full text; a test compares its tables with this file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

FORMAT_VERSION = 1

META = "meta.json"
LOCK = "lock"
RETIRED = "retired.json"
CONSUMERS = "consumers"
DAMAGED = "damaged"  # what repair() could not read is moved here, never deleted

# Spark reads these columns as they are, both from Parquet and as Arrow batches, so they keep to what it has:
# no unsigned integers (the ring's counters stay below 2**63), no nanosecond timestamps (it refuses
# TIMESTAMP(NANOS)), no dictionaries or large_* types in Arrow. publish_ns carries what microseconds drop.
SCHEMA = pa.schema(
    [
        pa.field("recorder", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("publish_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("publish_ns", pa.int16(), nullable=False),
        pa.field("record_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("sender", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("lost", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
COLUMNS: tuple[str, ...] = tuple(SCHEMA.names)
ENVELOPE: tuple[str, ...] = COLUMNS[:-1]  # all but the payload

# What a live topic's recv_batch() gives.
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

FRAMES = "frames"  # the contract of a stream of frames, whose payloads frames.py describes

_SEGMENT = re.compile(r"(\d{9})\.(arrows|parquet)\Z")
MAX_SEGMENT = 999_999_999


class Position(NamedTuple):
    """A place between rows: the next row to be read. Ordered, and stable for the life of the recording."""

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


class Clocks(msgspec.Struct, frozen=True):
    """Both clocks read at one moment, so that a reader can tell a step of the wall clock from a pause."""

    wall_ns: int
    monotonic_ns: int
    boot_id: str


class Session(msgspec.Struct, frozen=True):
    """One life of a recorder on this directory."""

    first_segment: int
    pid: int
    host: str
    clocks: Clocks


class TopicMeta(msgspec.Struct, frozen=True):
    """One life of a topic (`epoch`), as it was when it was recorded."""

    name: str
    epoch: int
    contract: str = ""
    schema: bytes = b""  # what `Schema.from_bytes` takes; empty for a topic of plain bytes
    first_seq: int = 0  # where its recording began: from here on every message is a row, or counted in a row's `lost`


class Meta(msgspec.Struct):
    """meta.json. `crc` comes first and covers the file with its own eight digits read as zeros."""

    crc: str
    format: int
    recorder: str
    sealed_uri: str = ""  # where sealed segments go, when not here
    sessions: list[Session] = []
    topics: list[TopicMeta] = []


class Retired(msgspec.Struct):
    """retired.json: segments below `first_segment` are gone; `rows[i]` is how many rows segment i had."""

    crc: str
    first_segment: int = 0
    rows: list[int] = []


class Consumer(msgspec.Struct):
    """consumers/NAME.json: everything before `segment`:`row` has been taken for good."""

    crc: str
    name: str
    segment: int = 0
    row: int = 0
    updated_ns: int = 0


def consumer_path(directory: Path, name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise ValueError(f"bad consumer name {name!r}: use up to 100 letters, digits, dots, dashes and underscores")
    return directory / CONSUMERS / f"{name}.json"
