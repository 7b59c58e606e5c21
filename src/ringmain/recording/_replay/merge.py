"""A recording's messages in the order in which they were published, across topics.

A recorder takes a batch from one topic, then from the next, so rows lie in runs by topic. They are merged here: each
topic keeps its own order, and among topics the earliest publish time goes first. How far to read ahead is known
exactly: every block of a recording carries its least publish time, so once no block to come is earlier, a message may
go. Memory is that of the blocks that overlap in time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ringmain.recording._format import Position
from ringmain.recording._recording import Recording
from ringmain.recording._segment.parquet_segment import time_ns_of

COLUMNS = ("topic", "epoch", "seq", "publish_time", "publish_ns", "sender", "kind", "payload")
_SLICE_ROWS = 256  # made into Python values at a time: a pause of a fraction of a millisecond
_NEVER = 1 << 63


class Recorded(NamedTuple):
    """One message to be published again. The payload is where the recording has it, not copied."""

    time_ns: int
    topic: str
    epoch: int
    seq: int
    sender: str
    kind: str
    payload: pa.Buffer


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

    for position, batch in _read_ahead(recording, selection):
        for topic, rows in _by_topic(batch):
            waiting = topic in runs
            runs.setdefault(topic, deque()).append(_messages(rows))
            if not waiting:
                push(topic)
        at = bisect_right(starts, position) - 1
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
            for row, _, min_ns, _ in segment.spans() if segment is not None else ():
                starts.append(Position(ref.number, row))
                least.append(min_ns)
    after, smallest = [], _NEVER
    for min_ns in reversed(least):
        after.append(smallest)
        smallest = min(smallest, min_ns)
    return starts, after[::-1]


def _read_ahead(recording: Recording, selection: Selection) -> Iterator[tuple[Position, pa.RecordBatch]]:
    """The blocks; while one is being published, the next is read and unpacked in another thread."""
    blocks = recording.batches(**selection._asdict(), columns=COLUMNS)
    with ThreadPoolExecutor(1, "ringmain-replay") as reader:
        coming = reader.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = reader.submit(next, blocks, None)
            where, batch = block
            first = where[0].as_py()
            yield Position(first["segment"], first["row"]), batch


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    topics = batch.column("topic")
    names: list[str] = pc.unique(topics).to_pylist()
    if len(names) == 1:
        yield names[0], batch
        return
    for name in names:
        yield name, batch.filter(pc.equal(topics, name))


def _messages(batch: pa.RecordBatch) -> Iterator[Recorded]:
    for first in range(0, len(batch), _SLICE_ROWS):
        rows = batch.slice(first, _SLICE_ROWS)
        payload = rows.column("payload")
        columns: list[Any] = [rows.column(name).to_pylist() for name in ("topic", "epoch", "seq", "sender", "kind")]
        for i, (time_ns, topic, epoch, seq, sender, kind) in enumerate(
            zip(time_ns_of(rows).to_pylist(), *columns, strict=True)
        ):
            yield Recorded(time_ns, topic, epoch, seq, sender, kind, payload[i].as_buffer())
