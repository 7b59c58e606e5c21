"""What one task of a batch does: it reads ranges of recordings, decodes, writes files, and reports to the driver.

Rows go from the recording to their table's files without passing through the JVM and without a shuffle. Most tasks read
ranges one after the other. Lives that several recordings have may be there twice, in the stretches of time where those
recordings overlap: there a second kind of task, for a slice of time, reads all recordings, and keeps the copy of each
message that was recorded first. A message has the same publish time in every copy, so copies meet in one slice.

The invariant owned here: *nothing disappears*. A row is in silver, or in quarantine with the reason, or was counted as
a copy of one that is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.pipeline._fields import Field, Reason, measure_fields, measure_reasons
from ringmain.pipeline._ledger import TopicCount
from ringmain.pipeline._partials import GAPS_SCHEMA, Health, Sender, measure, merge
from ringmain.recording._decode import Decoding, conform, merge_types
from ringmain.recording._format import ENVELOPE_COLUMNS, HOST, SCHEMA
from ringmain.spark._plan import Range
from ringmain.spark._read_lake import delta_type
from ringmain.spark._scan import Scan, source_schema
from ringmain.spark._tables import FileSet, Tables, Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

R = TypeVar("R")
Tasks = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
REPORT = "report binary"
REPORT_SCHEMA = pa.schema([pa.field("report", pa.binary())])
_ENVELOPE = [*(SCHEMA.field(name).with_nullable(True) for name in ENVELOPE_COLUMNS), HOST.with_nullable(True)]
_PAYLOAD = SCHEMA.field("payload").with_nullable(True)
RAW_SCHEMA = pa.schema([*_ENVELOPE, _PAYLOAD])
QUARANTINE_SCHEMA = pa.schema([*_ENVELOPE, _PAYLOAD, pa.field("reason", pa.string())])
BRONZE_SCHEMA = pa.schema(
    [*(f.with_nullable(True) for f in source_schema(None, True, True)), pa.field("recording", pa.string())]
)
_FIRST_STAYS = ("topic", "epoch", "seq", "record_time", "recorder", "recording", "segment", "row")
_LONG_RUN = 32  # rows: shorter ones are sorted, longer ones copied, which takes a tenth of the time
_TOGETHER_BYTES = 4 << 20  # smaller ranges are decoded and written together, because each costs about a millisecond


class Report(msgspec.Struct):
    """What a task has done."""

    read: dict[str, int] = {}  # by recording
    topics: dict[str, TopicCount] = {}
    put_off: dict[str, int] = {}  # rows that are a slice's work
    sliced: dict[str, int] = {}  # rows that a slice has read
    files: list[Written] = []
    health: list[Health] = []
    senders: list[Sender] = []
    fields: list[Field] = []
    reasons: list[Reason] = []


@dataclass(frozen=True)
class Task:
    """Ranges to read; of a slice, those that have rows in [since_ns, until_ns), and the files that may have copies."""

    ranges: tuple[Range, ...]
    since_ns: int | None = None
    until_ns: int | None = None
    known: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # (topic, table, files)


@dataclass(frozen=True)
class Columns:
    """How a typed topic's rows look in silver."""

    decoding: Decoding
    schema: pa.Schema

    @classmethod
    def of(cls, decoding: Decoding, there: pa.Schema | None) -> Columns:
        """Beside the columns that the table has. A field whose type does not fit in its column gets a new one,
        NAME_v2."""
        known = {} if there is None else {f.name: delta_type(f.type) for f in there}
        fields = []
        for f in decoding.columns():
            wanted, name, version = delta_type(f.type), f.name, 1
            while name in known and not merge_types(known[name], wanted).equals(known[name]):
                version += 1
                name = f"{f.name}_v{version}"
            fields.append(pa.field(name, known.get(name, wanted)))
        return cls(decoding, pa.schema([*_ENVELOPE, *fields]))

    @property
    def fields(self) -> list[str]:
        return list(self.schema.names[len(_ENVELOPE) :])

    def apply(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        decoded, reasons = self.decoding.apply(rows)
        fields = list(self.schema)[len(_ENVELOPE) :]
        fitted = [conform(array, f.type) for array, f in zip(decoded, fields, strict=True)]
        return pa.RecordBatch.from_arrays([*_envelope(rows), *fitted], schema=self.schema), reasons


@dataclass(frozen=True)
class Shared:
    """Which messages may be there twice: these lives, within these stretches of time."""

    lives: Mapping[str, frozenset[int]]  # topic -> epochs
    stretches: tuple[tuple[int, int], ...]  # [since, until) in ns

    def mask(self, topic: str, rows: pa.RecordBatch) -> np.ndarray | None:
        """Which rows they are; None for none of them."""
        epochs = self.lives.get(topic)
        if not epochs:
            return None
        at = rows.column("publish_time").cast(pa.int64()).to_numpy() * 1000
        at = at + rows.column("publish_ns").to_numpy().astype(np.int64)
        inside = np.zeros(len(rows), bool)
        for since, until in self.stretches:
            inside |= (at >= since) & (at < until)
        inside &= np.isin(rows.column("epoch").to_numpy(), list(epochs))
        return inside if inside.any() else None


@dataclass(frozen=True)
class Work:
    """All tasks of a batch. Picklable: it is sent to the workers, each of which runs the tasks whose numbers it gets.
    What a failed try leaves behind is never reported, hence never read."""

    lake: Tables
    batch: int
    window_us: int
    tasks: tuple[Task, ...]
    scan: Scan
    typed: Mapping[str, Columns]
    shared: Shared
    copy: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                done = msgspec.msgpack.encode(self.run(number))
                yield pa.RecordBatch.from_arrays([pa.array([done], pa.binary())], schema=REPORT_SCHEMA)

    def run(self, number: int) -> Report:
        task, report, files = self.tasks[number], Report(), FileSet(self.lake, self.batch)
        if task.since_ns is None:
            self._read(task, report, files)
        else:
            self._slice(task, report, files)
        report.fields, report.reasons = merge(report.fields), merge(report.reasons)
        report.files = files.close()
        for one in report.files:
            kind, _, folder = one.table.partition("/")
            if kind in ("silver", "quarantine"):
                count = report.topics[folder.replace("~", "/")]
                count.rows_out += one.rows if kind == "silver" else 0
                count.quarantined += one.rows if kind == "quarantine" else 0
        return report

    def _read(self, task: Task, report: Report, files: FileSet) -> None:
        health: list[Health] = []
        senders: list[Sender] = []
        waiting: dict[str, list[pa.RecordBatch]] = {}
        size = 0
        for item in task.ranges:
            for rows in self.scan.read(item):
                report.read[item.key] = report.read.get(item.key, 0) + len(rows)
                if self.copy:
                    named = [*rows.columns, pa.repeat(pa.scalar(item.key), len(rows))]
                    files.add("bronze", pa.RecordBatch.from_arrays(named, schema=BRONZE_SCHEMA))
                for topic, part in by_topic(rows):
                    more, silences = measure(item.key, topic, part, self.window_us)
                    health += more
                    senders += silences
                    waiting.setdefault(topic, []).append(part)
                size += rows.nbytes
                if size >= _TOGETHER_BYTES:
                    self._take(waiting, report, files)
                    size = 0
        self._take(waiting, report, files)
        report.health, report.senders = merge(health), merge(senders)

    def _take(self, waiting: dict[str, list[pa.RecordBatch]], report: Report, files: FileSet) -> None:
        for topic, parts in waiting.items():
            rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            count = report.topics.setdefault(topic, TopicCount(topic))
            count.rows_in += len(rows)
            count.bytes += pc.sum(rows.column("size")).as_py()
            self._gaps(files, count, rows)
            shared = self.shared.mask(topic, rows)
            if shared is not None:
                report.put_off[topic] = report.put_off.get(topic, 0) + int(shared.sum())
                rows = rows.filter(pa.array(~shared))
            self._write(report, files, topic, rows)
        waiting.clear()

    def _slice(self, task: Task, report: Report, files: FileSet) -> None:
        """The rows of shared lives in a slice of time, each once."""
        scan = replace(self.scan, topics=tuple(self.shared.lives), since_ns=task.since_ns, until_ns=task.until_ns)
        found = []
        for item in task.ranges:
            for rows in scan.read(item):
                for topic, part in by_topic(rows):
                    shared = self.shared.mask(topic, part)
                    if shared is None:
                        continue
                    part = part.filter(pa.array(shared))
                    report.sliced[topic] = report.sliced.get(topic, 0) + len(part)
                    found.append(part.append_column("recording", pa.repeat(pa.scalar(item.key), len(part))))
        if not found:
            return
        table = pa.Table.from_batches(found).sort_by([(name, "ascending") for name in _FIRST_STAYS])
        for rows in table.combine_chunks().to_batches():  # one batch, as long as payloads fit in one
            for topic, part in by_topic(rows):
                copies = _copies(part) | self._known(task, topic, part)
                count = report.topics.setdefault(topic, TopicCount(topic))
                count.duplicates += int(copies.sum())
                self._write(report, files, topic, part.filter(pa.array(~copies)))

    def _known(self, task: Task, topic: str, rows: pa.RecordBatch) -> np.ndarray:
        """Which rows earlier batches have written."""
        found = np.zeros(len(rows), bool)
        epochs, seqs = rows.column("epoch").to_numpy(), rows.column("seq").to_numpy()
        for of_topic, table, names in task.known:
            if of_topic != topic:
                continue
            for there in self.lake.read_files(table, names, ["epoch", "seq"]):
                for epoch in pc.unique(there.column("epoch")).to_pylist():
                    numbers = there.filter(pc.equal(there.column("epoch"), epoch)).column("seq").to_numpy()
                    found |= (epochs == epoch) & np.isin(seqs, numbers)
        return found

    def _gaps(self, files: FileSet, count: TopicCount, rows: pa.RecordBatch) -> None:
        lossy = rows.filter(pc.greater(rows.column("lost"), 0))
        if len(lossy):
            count.lost += pc.sum(lossy.column("lost")).as_py()
            named = ("publish_time", "topic", "recorder", "epoch", "seq", "lost", "host")
            columns = [lossy.column(name) for name in named]
            files.add("gold/gaps", pa.RecordBatch.from_arrays(columns, schema=GAPS_SCHEMA))

    def _write(self, report: Report, files: FileSet, topic: str, rows: pa.RecordBatch) -> None:
        if not len(rows):
            return
        columns = self.typed.get(topic)
        if columns is None:
            raw = [*_envelope(rows), rows.column("payload")]
            files.add(silver_table(topic), pa.RecordBatch.from_arrays(raw, schema=RAW_SCHEMA))
            return
        good, reasons = columns.apply(rows)
        if reasons.null_count < len(reasons):
            bad = reasons.is_valid()
            good = good.filter(pc.invert(bad))
            wrong = [*_envelope(rows), rows.column("payload"), reasons]
            refused = pa.RecordBatch.from_arrays(wrong, schema=QUARANTINE_SCHEMA).filter(bad)
            report.reasons += measure_reasons(topic, refused, self.window_us)
            files.add(quarantine_table(topic), refused)
        if len(good):
            report.fields += measure_fields(topic, good, columns.fields, self.window_us)
            files.add(silver_table(topic), good)


def run_tasks(frame: DataFrame, work: Tasks, kind: type[R]) -> list[R]:
    """What Spark's workers report. The job is waited for in another thread: PySpark's handler of Ctrl-C cancels it
    through the JVM, which fails with pages of errors in a thread that is in the middle of a call to the JVM."""
    with ThreadPoolExecutor(1) as pool:
        rows = pool.submit(frame.mapInArrow(work, REPORT).collect).result()
    return [msgspec.msgpack.decode(bytes(row.report), type=kind) for row in rows]


def by_topic(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in the order they are in."""
    encoded = rows.column("topic").dictionary_encode()
    names = encoded.dictionary.to_pylist()
    if len(names) == 1:
        yield names[0], rows
        return
    codes = encoded.indices.to_numpy()
    if np.count_nonzero(np.diff(codes)) * _LONG_RUN > len(codes):
        order = np.argsort(codes, kind="stable")
        rows, codes = rows.take(pa.array(order)), codes[order]
    edges = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    runs: dict[int, list[pa.RecordBatch]] = {}
    for begin, end in pairwise(edges):
        runs.setdefault(codes[begin], []).append(rows.slice(begin, end - begin))
    for code, parts in runs.items():
        yield names[code], parts[0] if len(parts) == 1 else pa.concat_batches(parts)


def _copies(rows: pa.RecordBatch) -> np.ndarray:
    """Which rows are the same message as the row before, where copies stand side by side."""
    same = np.zeros(len(rows), bool)
    if len(rows) > 1:
        epoch, seq = rows.column("epoch").to_numpy(), rows.column("seq").to_numpy()
        same[1:] = (epoch[1:] == epoch[:-1]) & (seq[1:] == seq[:-1])
    return same


def _envelope(rows: pa.RecordBatch) -> list[pa.Array]:
    return [rows.column(f.name) for f in _ENVELOPE]


def folder_name(topic: str) -> str:
    """A topic's name as one directory: `camera/left` is `camera~left`. No topic's name has a tilde."""
    return topic.replace("/", "~")


def silver_table(topic: str) -> str:
    return f"silver/{folder_name(topic)}"


def quarantine_table(topic: str) -> str:
    return f"quarantine/{folder_name(topic)}"
