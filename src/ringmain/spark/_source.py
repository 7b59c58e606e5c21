"""`format("ringmain")`: recordings and rings as a PySpark data source, and topics as its sink.

This file has the schema and makes the readers and writers. What they do is in _stream.py (offsets), _live.py (rings),
_sink.py (topics), and, for ranges and rows, in ringmain.recording. Spark copies instances to other processes:
everything here must be picklable, and files are opened only where rows are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ringmain.recording import SegmentRef, Store
from ringmain.recording._decode import Decoding
from ringmain.recording._format import FIRST
from ringmain.recording._plan import Range, between, plan_all
from ringmain.recording._scan import Gaps, Scan, known_topics, lives_of, source_schema
from ringmain.recording._segment.store import Kept
from ringmain.spark._filters import narrow
from ringmain.spark._options import Options


class RingmainSource(DataSource):
    """The data source of `format("ringmain")`."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "ringmain"

    def schema(self) -> StructType:
        options = Options.parse(self._given)
        decoding = decoding_for(options)
        schema = source_schema(
            decoding, options.positions, options.host, options.incidents, options.incident is not None
        )
        if options.columns is not None:
            missing = [name for name in options.columns if name not in schema.names]
            if missing:
                raise ValueError(f"columns: there is no {', '.join(missing)}; there are {', '.join(schema.names)}")
            schema = pa.schema([schema.field(name) for name in options.columns])
        return spark_schema(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options.parse(self._given)
        if options.mode == "live":
            from ringmain.spark._live import LiveReader

            return LiveReader(options, scan_for(options, schema))
        kind = PushdownReader if options.pushdown else RecordingReader
        return kind(options, scan_for(options, schema))

    def streamReader(self, schema: StructType) -> Any:
        options = Options.parse(self._given)
        if options.mode == "live":
            from ringmain.spark._live import LiveStream

            return LiveStream(options, scan_for(options, schema))
        if options.incident is not None:
            raise ValueError("a stream goes on with what is recorded, and an incident ends: use read, not readStream")
        from ringmain.spark._stream import RecordingStream

        return RecordingStream(options, scan_for(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from ringmain.spark._sink import TopicWriter

        return TopicWriter(self._given, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from ringmain.spark._sink import TopicStreamWriter

        return TopicStreamWriter(self._given, schema)


class RecordingReader(DataSourceReader):
    """Batch: the rows of the recordings at the time of planning."""

    def __init__(self, options: Options, scan: Scan) -> None:
        self._options, self._scan = options, scan

    def partitions(self) -> list[InputPartition]:
        if self._options.ranges is not None:
            return [InputPartition(item) for item in parse_ranges(self._options.ranges, self._options.storage)]
        found: list[Range] = []
        for key, store in self._options.find_recordings().items():
            gaps = Gaps(store, key, self._scan.consumer, self._scan.fail_on_loss)
            plans = plan_all(store, gaps.unreadable)
            wanted = self._scan.filter(store.kept)
            found += between(key, plans, FIRST, None, self._options.split_bytes, wanted)
        return [InputPartition(item) for item in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # what Spark passes for an empty plan
            return iter(())
        return self._scan.read(partition.value)


class PushdownReader(RecordingReader):
    """The same with filters. A separate class, because Spark refuses a source that has `pushFilters` unless
    spark.sql.python.filterPushdown.enabled is set. That is off by default; `ringmain.spark.session()` sets it."""

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        self._scan = narrow(self._scan, filters)
        return iter(filters)


def decoding_for(options: Options) -> Decoding | None:
    """How to decode, with decode=true. It must be one topic, and a typed one."""
    if not options.decode:
        return None
    stores = list(options.find_recordings(must_exist=False).values())
    scan = Scan(source_schema(None, False, False), options.topics)
    matching = [name for name in known_topics(stores) if scan.filter().matches(name)]
    if len(matching) != 1:
        there = ", ".join(matching or known_topics(stores)) or "none yet"
        raise ValueError(
            f"decode=true needs one topic: option topic=NAME. {'Matching' if matching else 'Recorded'}: {there}"
        )
    lives = lives_of(stores, matching[0])
    if not any(lives.values()):
        raise ValueError(
            f"topic {matching[0]!r} was recorded without a schema, so it cannot be decoded: leave decode out, "
            "or publish it typed (Publisher(..., type=...))"
        )
    return Decoding.of(matching[0], lives)


def scan_for(options: Options, schema: StructType) -> Scan:
    """What to read for the columns that Spark requests: all, or those of .schema(...) or the option."""
    decoding = decoding_for(options)
    wanted = arrow_of(schema)
    there = source_schema(decoding, True, True, True, True)
    unknown = [name for name in wanted.names if name not in there.names]
    if unknown:
        raise ValueError(f"a recording has no column {', '.join(unknown)}; it has {', '.join(there.names)}")
    for f in wanted:
        if not f.type.equals(there.field(f.name).type):
            raise ValueError(f"column {f.name} is {there.field(f.name).type}, not {f.type}: cast it after loading")
    return Scan(
        wanted,
        options.topics if decoding is None else (decoding.topic,),
        decoding=decoding,
        fail_on_loss=options.fail_on_loss,
        max_payload=options.max_payload,
        consumer=options.consumer if options.consumer != "none" else None,
    )


def spark_schema(schema: pa.Schema) -> StructType:
    converted: StructType = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    return converted


def arrow_of(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def format_ranges(ranges: list[Range]) -> str:
    return json.dumps(
        [
            [r.key, str(r.ref.store.directory or ""), r.ref.store.sealed_uri, r.ref.recording or r.ref.store.id,
             r.ref.number, r.first, r.end, r.ref.store.pinned, r.ref.store.kept]
            for r in ranges
        ]
    )  # fmt: skip


def parse_ranges(text: str, storage: tuple[tuple[str, str], ...] = ()) -> list[Range]:
    found = []
    for key, directory, uri, recording, number, first, end, pinned, kept in json.loads(text):
        where = Path(directory) if directory else None
        store = Store(where, uri, storage, recording)
        if kept:
            store = replace(store, pinned=tuple(pinned), kept=Kept.parse(kept))
        ref = SegmentRef(number, store.directory is None, store, 0)
        found.append(Range(key, ref, first, end))
    return found
