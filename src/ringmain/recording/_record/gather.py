"""Batches that were taken from rings and are not written yet, and how they become one batch of the recording.

The invariant owned here: rows leave in the order in which they were added, and no batch has more payload than a
`binary` column can count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from ringmain.recording._format import ENVELOPE_BYTES, MAX_PAYLOAD_BYTES
from ringmain.recording._record.row_builder import RowBuilder, Rows
from ringmain.recording._segment.segment_writer import payload_bytes


class Pending(NamedTuple):
    """A batch that was taken from a ring and is not written yet."""

    topic: str
    epoch: int
    ring: pa.RecordBatch
    recorded: Sequence[tuple[int, int]]
    """(rows, record time in ns), for rows in a row that were taken together."""
    size: int
    in_place: Sequence[memoryview] = ()
    written: tuple[Callable[[], None], ...] = ()


def size_of(ring: pa.RecordBatch) -> int:
    """Bytes of a ring's batch: payloads, and about as much as its envelopes take."""
    return payload_bytes(ring.column("data")) + len(ring) * ENVELOPE_BYTES


def recorded(taken_ns: int | Sequence[int], first: int, rows: int) -> Sequence[tuple[int, int]]:
    """The record times of so many rows from `first` on: one for all of them, or one for each."""
    return [(rows, taken_ns)] if isinstance(taken_ns, int) else [(1, time) for time in taken_ns[first : first + rows]]


def split(ring: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in pieces that one batch can hold."""
    if size_of(ring) > MAX_PAYLOAD_BYTES and len(ring) > 1:
        half = len(ring) // 2
        yield from split(ring.slice(0, half))
        yield from split(ring.slice(half))
    elif len(ring):
        yield ring


def join(pending: Sequence[Pending], builder: RowBuilder) -> Rows:
    """All of them as rows of the recording, in one batch."""
    built = []
    for (topic, epoch), group in groupby(pending, key=lambda p: (p.topic, p.epoch)):
        pieces = list(group)
        ring = pieces[0].ring if len(pieces) == 1 else pa.concat_batches([p.ring for p in pieces])
        built.append(builder.build(topic, epoch, ring, [taken for p in pieces for taken in p.recorded]))
    if len(built) == 1:
        return built[0]
    batches, least, greatest, lost = zip(*built, strict=True)
    return Rows(pa.concat_batches(batches), min(least), max(greatest), sum(lost))
