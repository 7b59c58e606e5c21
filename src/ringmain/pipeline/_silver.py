"""Silver: one table a topic, its payloads decoded to columns, each message once, in order.

All topics are made in one pass. Spark brings the copies of a message together and sorts; then a writer in its Python
workers drops copies, decodes, and writes each row to its topic's table or to quarantine. A job for each topic, which
Spark would want because their columns differ, costs more than the work itself as soon as there are some dozen topics.

The invariant owned here: *nothing disappears*. A row of bronze is in silver, or in quarantine with the reason, or was
counted as a duplicate of one that is. A message is (topic, epoch, seq): two recorders on one topic record the same
numbers. The copy that was recorded first stays.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from ringmain.pipeline._lake import quarantine_table, silver_table
from ringmain.recording._format import ENVELOPE_COLUMNS, SCHEMA
from ringmain.spark._decode import Decoding
from ringmain.spark._source import arrow_of, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KEY = ("topic", "epoch", "seq")
KNOWN = "_known"
RESULT = "topic string, path string, quarantined boolean, duplicates bigint"
ROWS_PER_TASK = 1 << 18
BYTES_PER_TASK = 256 << 20
ROWS_PER_FILE = 1 << 20
_GROUP_ROWS, _GROUP_BYTES = 1 << 17, 64 << 20  # of a Parquet row group
_SORTED = ("topic", "date", "epoch", "seq", "record_time", "recorder", "segment", "row")
_RESULT = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("path", pa.string()),
        pa.field("quarantined", pa.bool_()),
        pa.field("duplicates", pa.int64()),
    ]
)


def mark_known(messages: DataFrame, known: DataFrame | None) -> DataFrame:
    """With a column that says whether an earlier batch has written the message."""
    if known is None:
        return messages.withColumn(KNOWN, F.lit(False))
    keys = known.select(*KEY).distinct().withColumn(KNOWN, F.lit(True))
    return messages.join(keys, list(KEY), "left").withColumn(KNOWN, F.coalesce(KNOWN, F.lit(False)))


def in_order(messages: DataFrame, rows: int, size: int) -> DataFrame:
    """Sorted by topic and sequence, so that the copies of a message stand side by side, in as many partitions as the
    work is worth."""
    tasks = max(1, -(-rows // ROWS_PER_TASK), -(-size // BYTES_PER_TASK))
    # A range and not a hash of the topic: one topic may have nearly all the rows.
    spread = messages.coalesce(1) if tasks == 1 else messages.repartitionByRange(tasks, *_SORTED[:4])
    return spread.select(*ENVELOPE_COLUMNS, "payload", "segment", "row", "date", KNOWN).sortWithinPartitions(*_SORTED)


def write(ordered: DataFrame, folder: Path, decodings: Mapping[str, Decoding]) -> list[SilverFile]:
    """Write the tables below `folder`; a line for each file, and for each topic and task that met duplicates."""
    writer = SilverWriter(str(folder), {topic: Columns.of(decoding) for topic, decoding in decodings.items()})
    return [SilverFile(*row) for row in ordered.mapInArrow(writer, RESULT).collect()]


@dataclass(frozen=True)
class SilverFile:
    topic: str
    path: str | None
    quarantined: bool
    duplicates: int


@dataclass(frozen=True)
class Columns:
    """How a typed topic's rows look in silver."""

    decoding: Decoding
    schema: pa.Schema

    @classmethod
    def of(cls, decoding: Decoding) -> Columns:
        fields = [*_envelope_fields(), *decoding.columns()]
        return cls(decoding, arrow_of(spark_schema(pa.schema(fields))))


@dataclass(frozen=True)
class SilverWriter:
    """What runs in the workers, on rows in order. What a failed try leaves behind is never reported, hence never
    read."""

    folder: str
    typed: Mapping[str, Columns]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        duplicates: dict[str, int] = {}
        last: tuple[object, ...] | None = None
        files = Files(Path(self.folder))
        for batch in batches:
            if not len(batch):
                continue
            copies, last = _copies(batch, last)
            for topic, date, part, copied in _parts(batch, copies):
                count = int(np.count_nonzero(copied))
                if count:
                    duplicates[topic] = duplicates.get(topic, 0) + count
                    part = part.filter(pa.array(~copied))
                self._write(files, topic, date, part)
        written = files.close()
        lines: list[tuple[str, str | None, bool, int]] = [
            (topic, path, quarantined, 0) for topic, path, quarantined in written
        ]
        lines += [(topic, None, False, count) for topic, count in duplicates.items()]
        columns = [pa.array([line[i] for line in lines], f.type) for i, f in enumerate(_RESULT)]
        yield pa.RecordBatch.from_arrays(columns, schema=_RESULT)

    def _write(self, files: Files, topic: str, date: str, rows: pa.RecordBatch) -> None:
        if not len(rows):
            return
        columns = self.typed.get(topic)
        envelope = {f.name: rows.column(f.name).cast(f.type) for f in _envelope_fields()}
        if columns is None:
            fields = [*_envelope_fields(), SCHEMA.field("payload")]
            arrays = [*envelope.values(), rows.column("payload").cast(pa.binary())]
            files.add(topic, False, date, pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
            return
        decoded, reasons = columns.decoding.apply(rows)
        names = [f.name for f in columns.decoding.columns()]
        there = envelope | dict(zip(names, decoded, strict=True))
        good = pa.RecordBatch.from_arrays([there[f.name] for f in columns.schema], schema=columns.schema)
        if reasons.null_count < len(reasons):
            bad = reasons.is_valid()
            good = good.filter(pc.invert(bad))
            fields = [*_envelope_fields(), SCHEMA.field("payload"), pa.field("reason", pa.string())]
            arrays = [*envelope.values(), rows.column("payload").cast(pa.binary()), reasons]
            wrong = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)).filter(bad)
            files.add(topic, True, date, wrong)
        files.add(topic, False, date, good)


@dataclass
class Files:
    """The Parquet files being written. Rows come in order, so only those of one topic and day are open at a time."""

    folder: Path
    _open: dict[bool, OpenFile] = field(default_factory=dict)
    _at: tuple[str, str] | None = None
    _done: list[tuple[str, str, bool]] = field(default_factory=list)

    def add(self, topic: str, quarantined: bool, date: str, rows: pa.RecordBatch) -> None:
        if not len(rows):
            return
        if self._at != (topic, date):
            self.close()
            self._at = (topic, date)
        if quarantined not in self._open:
            table = quarantine_table(topic) if quarantined else silver_table(topic)
            folder = self.folder / table / f"date={date}"
            folder.mkdir(parents=True, exist_ok=True)
            # In order of time, also beside those of other tasks; and no other try has the same.
            epoch, seq = (rows.column(name)[0].as_py() for name in ("epoch", "seq"))
            path = folder / f"{epoch:020d}-{seq:020d}-{uuid.uuid4().hex}.parquet"
            self._open[quarantined] = OpenFile(path, pq.ParquetWriter(path, rows.schema, compression="zstd"))
        file = self._open[quarantined]
        file.add(rows)
        if file.rows >= ROWS_PER_FILE:
            self._finish(quarantined)

    def close(self) -> list[tuple[str, str, bool]]:
        for quarantined in list(self._open):
            self._finish(quarantined)
        return self._done

    def _finish(self, quarantined: bool) -> None:
        file = self._open.pop(quarantined)
        file.close()
        assert self._at is not None
        self._done.append((self._at[0], os.fspath(file.path), quarantined))


@dataclass
class OpenFile:
    """Rows are gathered into row groups of a good size."""

    path: Path
    writer: pq.ParquetWriter
    rows: int = 0
    _waiting: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        self.rows += len(rows)
        self._waiting.append(rows)
        size = sum(batch.nbytes for batch in self._waiting)
        if sum(map(len, self._waiting)) >= _GROUP_ROWS or size >= _GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self.writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self.writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []


def _envelope_fields() -> list[pa.Field]:
    return [SCHEMA.field(name).with_nullable(True) for name in ENVELOPE_COLUMNS]


def _copies(batch: pa.RecordBatch, last: tuple[object, ...] | None) -> tuple[np.ndarray, tuple[object, ...]]:
    """(which rows are copies, the last row's key). Copies stand right behind the one that was recorded first; `last` is
    the key of the row before this batch."""
    copies = batch.column(KNOWN).to_numpy(zero_copy_only=False).astype(bool)
    same = np.zeros(len(batch), bool)
    if len(batch) > 1:
        one, other = batch.slice(0, len(batch) - 1), batch.slice(1)
        pairs = [pc.equal(one.column(name), other.column(name)).to_numpy(zero_copy_only=False) for name in KEY]
        same[1:] = np.logical_and.reduce(pairs)
    same[0] = last is not None and last == tuple(batch.column(name)[0].as_py() for name in KEY)
    return copies | same, tuple(batch.column(name)[-1].as_py() for name in KEY)


def _parts(batch: pa.RecordBatch, copies: np.ndarray) -> Iterator[tuple[str, str, pa.RecordBatch, np.ndarray]]:
    """The batch cut where the topic or the day changes."""
    edges = np.zeros(len(batch), bool)
    edges[0] = True
    for name in ("topic", "date"):
        column = batch.column(name)
        changed = pc.not_equal(column.slice(1), column.slice(0, len(batch) - 1))
        edges[1:] |= changed.to_numpy(zero_copy_only=False).astype(bool)
    starts = [*np.flatnonzero(edges).tolist(), len(batch)]
    for first, end in pairwise(starts):
        topic, date = batch.column("topic")[first].as_py(), batch.column("date")[first].as_py()
        yield topic, str(date), batch.slice(first, end - first), copies[first:end]
