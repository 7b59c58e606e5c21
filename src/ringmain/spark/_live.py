"""`mode=live`: a topic's ring as a stream, without a recording. For dashboards; **it can lose messages**.

A ring overwrites old messages, so those that Spark did not read in time are lost, and a batch that is run again may
find fewer than before. Loss is never silent: offsets are sequence numbers, and the message after a gap says in `lost`
how many are missing. If nothing may be lost, record the topic and use `mode=recording`.

    {"imu": "1700000000000000000:4711"}         epoch (which life of the topic) and the next sequence number

Between batches it holds nothing: each read joins the topic, copies the messages and leaves. Where writers wait for
readers, they wait for it only that long. A topic with a single reader cannot be read while it has one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

import ringmain as rm
from ringmain._contracts import CONTRACTS
from ringmain.errors import Timeout, TopicNotFound
from ringmain.recording._format import SCHEMA
from ringmain.recording._record.row_builder import RowBuilder, ring_batch
from ringmain.recording._scan import Scan
from ringmain.spark._options import Options

RECORDER = "live"
_JOIN_TIMEOUT_S = 5.0


class LiveStream(DataSourceStreamReader):
    """Offsets are sequence numbers. Each partition is a topic."""

    def __init__(self, options: Options, scan: Scan) -> None:
        self._options, self._scan = options, scan

    def initialOffset(self) -> dict[str, str]:
        oldest = self._options.starting.lower() == "earliest"
        return {name: f"{info.epoch}:{0 if oldest else info.next_sequence}" for name, info in self._topics().items()}

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        return {**start, **{name: f"{info.epoch}:{info.next_sequence}" for name, info in self._topics().items()}}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        found = []
        for name, upto in end.items():
            epoch, seq = map(int, upto.split(":"))
            before, first = map(int, start.get(name, "0:0").split(":"))
            if (before, first) != (epoch, seq):
                found.append(InputPartition((name, epoch, first if before == epoch else 0, seq)))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_ring(self._scan, *partition.value)

    def _topics(self) -> dict[str, Any]:
        return live_topics(self._scan)


class LiveReader(DataSourceReader):
    """Batch: the messages in the rings now."""

    def __init__(self, options: Options, scan: Scan) -> None:
        self._scan = scan

    def partitions(self) -> list[InputPartition]:
        infos = live_topics(self._scan).values()
        return [InputPartition((info.name, info.epoch, None, info.next_sequence)) for info in infos]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return iter(()) if partition.value is None else read_ring(self._scan, *partition.value)


def live_topics(scan: Scan) -> dict[str, Any]:
    """The topics that exist now. Others may be created later."""
    wanted = scan.filter()
    found = {}
    frames = {topic.name for topic in rm.frame_topics()}  # their messages are descriptors: record them
    for info in rm.topics():
        if wanted.matches(info.name) and info.name not in frames:
            if CONTRACTS[info.contract].one_reader and info.readers:
                why = f"topic {info.name!r} is a {info.contract} and has its one reader"
                raise ValueError(f"{why}: record it, or use broadcast")
            found[info.name] = info
    return found


def read_ring(scan: Scan, topic: str, epoch: int, first: int | None, end: int) -> Iterator[pa.RecordBatch]:
    """Messages [first, end) of one life of a topic that are still in the ring. `first` None: all."""
    rows = RowBuilder(RECORDER, SCHEMA)
    try:
        subscriber = rm.Subscriber(topic, start="oldest", name="spark (live)")
    except TopicNotFound:
        return
    with subscriber:
        expected = first
        while (expected is None or expected < end) and subscriber.epoch == epoch:
            try:
                ring = ring_batch(topic, subscriber.recv_batch(timeout=0 if expected is None else _JOIN_TIMEOUT_S))
            except Timeout:
                return  # all overwritten, and no new message since
            if not len(ring):
                return
            seq = ring.column("seq")
            ring = ring.filter(pc.and_(pc.greater_equal(seq, first or 0), pc.less(seq, end)))
            past = int(seq[-1].as_py()) + 1
            if len(ring):
                built = rows.build(topic, epoch, _mark_gap(ring, expected), [(len(ring), time.time_ns())])
                yield _shape(scan, built.batch)
            expected = max(past, expected or 0)


def _mark_gap(ring: pa.RecordBatch, expected: int | None) -> pa.RecordBatch:
    """Sets `lost` of the first message to the number of messages missing before it."""
    missing = 0 if expected is None else max(0, int(ring.column("seq")[0].as_py()) - expected)
    lost = ring.column("lost").to_pylist()
    lost[0] = missing
    return ring.set_column(ring.schema.get_field_index("lost"), ring.schema.field("lost"), pa.array(lost, pa.uint64()))


def _shape(scan: Scan, batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([batch.column(name) for name in scan.schema.names], schema=scan.schema)
