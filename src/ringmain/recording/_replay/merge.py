"""A recording's messages in the order in which they were published, across topics.

A recorder takes a batch from one topic, then from the next, so rows are stored by topic. They are merged here: each
topic keeps its own order, and among topics the earliest publish time goes first. How far to read ahead is known
exactly: every run of rows has its least publish time, so a message is yielded once no later run begins before it.
Memory is that of the runs that overlap in time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ringmain.recording._format import Position
from ringmain.recording._message import FIELDS, RecordedMessage, messages_of
from ringmain.recording._recording import Recording

COLUMNS = (*(column.name for column in FIELDS), "publish_ns")
_SLICE_ROWS = 256  # converted to Python values at a time: takes a fraction of a millisecond
_NEVER = 1 << 63


Recorded: TypeAlias = RecordedMessage[pa.Buffer]  # the payload is where the recording has it, not copied


class Selection(NamedTuple):
    """Which messages: topics by name or pattern, publish times in [since, until)."""

    topics: str | Sequence[str] | None = None
    since: int | datetime | None = None
    until: int | datetime | None = None


def in_order(recording: Recording, selection: Selection) -> Iterator[Recorded]:
    """The selected messages, as published. What the recording holds now; what is added later is not followed."""
    starts, least_after = _least_after(recording)
    runs: dict[str, deque[Iterator[Recorded]]] = {}
    heads: list[tuple[int, str, Recorded]] = []  # of each topic that has any: its next message

    def push(topic: str) -> None:
        while runs[topic]:
            message = next(runs[topic][0], None)
            if message is not None:
                heapq.heappush(heads, (message.time_ns, topic, message))
                return
            runs[topic].popleft()
        del runs[topic]

    for segment, rows, batch in _read_ahead(recording, selection):
        for topic, topic_rows, part in _by_topic(rows, batch):
            waiting = topic in runs
            runs.setdefault(topic, deque()).append(_messages(part, segment, topic_rows))
            if not waiting:
                push(topic)
        at = bisect_right(starts, Position(segment, rows[0].as_py())) - 1
        while heads and heads[0][0] < least_after[at]:
            _, topic, message = heapq.heappop(heads)
            yield message
            push(topic)
    while heads:
        _, topic, message = heapq.heappop(heads)
        yield message
        push(topic)


def largest_payloads(recording: Recording, selection: Selection) -> dict[tuple[str, int], int]:
    """The largest payload of each selected life (topic, epoch), from the envelopes alone."""
    largest: dict[tuple[str, int], int] = {}
    for _, batch in recording.batches(**selection._asdict(), columns=("topic", "epoch", "size")):
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
    after, smallest = [], _NEVER
    for min_ns in reversed(least):
        after.append(smallest)
        smallest = min(smallest, min_ns)
    return starts, after[::-1]


def _read_ahead(recording: Recording, selection: Selection) -> Iterator[tuple[int, pa.Array, pa.RecordBatch]]:
    """(segment, row numbers, rows); while a batch is published, the next is read and unpacked in another thread."""
    blocks = recording.batches(**selection._asdict(), columns=COLUMNS)
    with ThreadPoolExecutor(1, "ringmain-replay") as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            where, batch = block
            yield where[0].as_py()["segment"], where.field("row"), batch


def _by_topic(rows: pa.Array, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array, pa.RecordBatch]]:
    topics = batch.column("topic")
    names: list[str] = pc.unique(topics).to_pylist()
    if len(names) == 1:
        yield names[0], rows, batch
        return
    for name in names:
        mask = pc.equal(topics, name)
        yield name, rows.filter(mask), batch.filter(mask)


def _messages(batch: pa.RecordBatch, segment: int, rows: pa.Array) -> Iterator[Recorded]:
    for first in range(0, len(batch), _SLICE_ROWS):
        numbers = rows.slice(first, _SLICE_ROWS).to_pylist()
        yield from messages_of(batch.slice(first, _SLICE_ROWS), segment, numbers, copy=False)
