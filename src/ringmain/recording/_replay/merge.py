"""A recording's rows for a replay: in parts, each of one life of a topic, and how far they can be merged by time.

A recorder takes a batch from one topic, then from the next, so rows are stored by topic, and are merged by publish time
when they are published (native/python/replay.cpp): each topic keeps its own order, and among topics the earliest goes
first. How far to read ahead is known exactly: every run of rows has its least publish time, so a row may be published
once no later run begins before it. Memory is that of the runs that overlap in time.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ringmain import _extension
from ringmain._native import Track
from ringmain.recording._format import LATCHED, Position
from ringmain.recording._reader import Recording

COLUMNS = ("topic", "epoch", "seq", "publish_time", "publish_ns", "sender", "kind", "extension", "payload")
NEVER = (1 << 63) - 1
_LEAST_RUN = 64  # rows, on average: shorter runs of a topic are gathered, longer ones are slices


class Selection(NamedTuple):
    """Which messages: topics by name or pattern, publish times in [since, until)."""

    topics: str | Sequence[str] | None = None
    since: int | datetime | None = None
    until: int | datetime | None = None


class Part(NamedTuple):
    """Consecutive rows of one life of a topic."""

    topic: str
    epoch: int
    rows: pa.RecordBatch


def parts_of(recording: Recording, selection: Selection) -> Iterator[tuple[list[Part], int]]:
    """The parts of a block, and the least publish time of all blocks after it. What the recording holds now; what is
    added later is not followed."""
    starts, least_after = _least_after(recording)
    for start, batch in _read_ahead(recording, selection):
        yield list(_by_life(batch)), least_after[bisect_right(starts, start) - 1]


def latched_parts(recording: Recording, topics: str | Sequence[str] | None) -> list[Part]:
    """What is latched when an incident begins, of these topics, whatever stretch of it is replayed."""
    rows = recording.batches(topics=topics, columns=COLUMNS) if recording.incident is not None else ()
    first = itertools.takewhile(lambda block: block[0][0].as_py()["segment"] == LATCHED, rows)
    return [part for _, batch in first for part in _by_life(batch)]


def track_of(rows: pa.RecordBatch) -> Track:
    """The rows as the native side takes them: from the columns' own buffers, without a copy."""
    columns = [_to_send(rows.column(name)) if name == "extension" else rows.column(name) for name in COLUMNS[2:]]
    return Track(len(rows), *((column.offset, *column.buffers()[1:]) for column in columns))


def _to_send(extensions: pa.Array) -> pa.Array:
    """What is said again: traces and the numbers of replies. The terms of a request are over: no client waits, and the
    clock that they were told by may be that of another boot."""
    extensions = pc.fill_null(extensions, b"") if extensions.null_count else extensions
    if not pc.any(pc.greater(pc.binary_length(extensions), 0)).as_py():
        return extensions
    return pa.array([_extension.without_terms(each) for each in extensions.to_pylist()], pa.binary())


def payload_and_sender(rows: pa.RecordBatch, row: int) -> tuple[pa.Buffer, str]:
    """Of one row; the payload is where the recording has it."""
    return rows.column("payload")[row].as_buffer(), rows.column("sender")[row].as_py()


def largest_payloads(recording: Recording, selection: Selection) -> dict[tuple[str, int], int]:
    """The largest payload of each selected life (topic, epoch), from the envelopes alone."""
    largest: dict[tuple[str, int], int] = {}
    for part in latched_parts(recording, selection.topics):
        key, size = (part.topic, part.epoch), pc.max(pc.binary_length(part.rows.column("payload"))).as_py()
        largest[key] = max(largest.get(key, 0), size)
    for _, batch in recording.batches(**selection._asdict(), columns=("topic", "epoch", "size"), latched=False):
        found = pa.Table.from_batches([batch]).group_by(["topic", "epoch"]).aggregate([("size", "max")])
        for row in found.to_pylist():
            key = (row["topic"], row["epoch"])
            largest[key] = max(largest.get(key, 0), row["size_max"])
    return largest


def _least_after(recording: Recording) -> tuple[list[Position], list[int]]:
    """Where each block starts, and the least publish time of all blocks after it."""
    starts, least = [], []
    for ref in recording.segments():
        with recording.opened(ref) as segment:
            for run in segment.runs if segment is not None else ():
                starts.append(Position(ref.number, run.row))
                least.append(run.min_ns)
    after, smallest = [], NEVER
    for min_ns in reversed(least):
        after.append(smallest)
        smallest = min(smallest, min_ns)
    return starts, after[::-1]


def _read_ahead(recording: Recording, selection: Selection) -> Iterator[tuple[Position, pa.RecordBatch]]:
    """(position of the first row, rows); while a batch is published, the next is read and unpacked in another
    thread."""
    blocks = recording.batches(**selection._asdict(), columns=COLUMNS, latched=False)
    with ThreadPoolExecutor(1, "ringmain-replay") as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            where, batch = block
            yield Position(**where[0].as_py()), batch


def _by_life(batch: pa.RecordBatch) -> Iterator[Part]:
    """Slices, where the rows of a topic follow each other; otherwise those of each topic are gathered first."""
    topics = batch.column("topic")
    mixed = len(_run_ends(topics)) * _LEAST_RUN > len(batch)
    for rows in [batch.filter(pc.equal(topics, name)) for name in pc.unique(topics)] if mixed else [batch]:
        ends = sorted({end for name in ("topic", "epoch") for end in _run_ends(rows.column(name))})
        for first, end in zip([0, *ends], ends, strict=False):
            yield _part(rows.slice(first, end - first))


def _run_ends(column: pa.Array) -> list[int]:
    ends: list[int] = pc.run_end_encode(column).run_ends.to_pylist()
    return ends


def _part(rows: pa.RecordBatch) -> Part:
    return Part(rows.column("topic")[0].as_py(), rows.column("epoch")[0].as_py(), rows)
