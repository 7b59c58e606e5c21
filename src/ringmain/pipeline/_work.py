"""What one task of a batch does: it reads ranges of recordings, decodes, writes files, and reports to the driver.

Rows go from the recording to their table's files without passing through the JVM and without a shuffle. Most tasks read
ranges one after the other. Lives that several recordings have may be there twice, in the stretches of time where those
recordings overlap: there a second kind of task, for a slice of time, reads all recordings, and keeps the copy of each
message that was recorded first. A message has the same publish time in every copy, so copies meet in one slice.

The invariant owned here: *nothing disappears*. A row is in silver, or in quarantine with the reason, or was counted as
a copy of one that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain import typed
from ringmain.lake._bronze import BRONZE
from ringmain.lake._column_types import delta_type
from ringmain.lake._comments import with_comment
from ringmain.lake._fields import EPOCH, FIELDS, QUARANTINE, SEQ, measure_fields, measure_reasons
from ringmain.lake._files import FileSet, Written
from ringmain.lake._gold import MINUTE_US, encode
from ringmain.lake._health import GAPS, GOLD, HEALTH, measure
from ringmain.lake._ledger import TopicCount
from ringmain.lake._names import quarantine_table, silver_table, topic_name
from ringmain.lake._tables import Tables
from ringmain.recording._decode import PAYLOAD, Decoding, merge_types
from ringmain.recording._format import ENVELOPE_COLUMNS, HOST, SCHEMA, decoded_fields, decoded_name
from ringmain.recording._plan import Range
from ringmain.recording._scan import Scan, source_schema

_OURS = [*ENVELOPE_COLUMNS, HOST.name]  # what silver has of a recording
_ENVELOPE = [f.with_nullable(True) for f in decoded_fields([*(SCHEMA.field(name) for name in ENVELOPE_COLUMNS), HOST])]
_REASON = pa.field(decoded_name("reason"), pa.string())
RAW_SCHEMA = pa.schema([*_ENVELOPE, PAYLOAD])
QUARANTINE_SCHEMA = pa.schema([*_ENVELOPE, PAYLOAD, _REASON])
BRONZE_SCHEMA = pa.schema(
    [*(f.with_nullable(True) for f in source_schema(None, True, True)), pa.field("recording", pa.string())]
)
_FIRST_STAYS = ("topic", "epoch", "seq", "record_time", "recorder", "recording", "segment", "row")
_LONG_RUN = 32  # rows: shorter ones are sorted, longer ones copied, which takes a tenth of the time
_GOLD_GROUP = 4096  # rows of gold in a file that are read together
_TOGETHER_BYTES = 4 << 20  # smaller ranges are decoded and written together, because each costs about a millisecond


class Report(msgspec.Struct):
    """What a task has done."""

    read: dict[str, int] = {}  # by recording
    topics: dict[str, TopicCount] = {}
    left_to_slices: dict[str, int] = {}  # rows that are a slice's work
    read_by_slices: dict[str, int] = {}  # rows that a slice has read
    files: list[Written] = []
    apart: dict[str, int] = {}  # by host: rows whose times are far from those of the others
    gold: dict[str, bytes] = {}  # by table: rows to merge (lake/_gold.py)
    gold_files: list[Written] = []  # the same in files, if tasks merge them (_merge.py)
    gold_sample: dict[str, list[tuple[str, int]]] = {}  # of these, by table: hosts and windows
    minutes: list[int] = []  # of which it has read messages, numbered from 1970
    left_out: dict[str, int] = {}  # by incident that is read as one: rows beside it

    def leave_out(self, key: str, rows: int) -> None:
        self.left_out[key] = self.left_out.get(key, 0) + rows


@dataclass(frozen=True)
class Task:
    """Ranges to read; of a slice, those that have rows in [since_ns, until_ns), and the files that may have copies."""

    ranges: tuple[Range, ...]
    since_ns: int | None = None
    until_ns: int | None = None
    known: tuple[tuple[str, str, tuple[str, ...]], ...] = ()  # (topic, table, files)


@dataclass(frozen=True)
class Columns:
    """How a typed topic's rows look in silver. A column's type never changes: a field is in the first of NAME, NAME_v2,
    ... that its type fits in. All lives that there are have their columns chosen in the order of their epochs, and so
    it does not matter which of them a batch has."""

    decoding: Decoding
    comments: Mapping[str, str] = field(default_factory=dict)
    """What the newest schema that says so says of a field, by column."""
    about: str = ""

    @classmethod
    def of(cls, topic: str, lives: Mapping[int, bytes], there: pa.Schema | None) -> Columns:
        """Beside the columns that the table has."""
        known = {} if there is None else {f.name: delta_type(f.type) for f in there}
        chosen: dict[str, pa.DataType] = {}
        renamed: dict[bytes, dict[str, str]] = {}
        for epoch, schema in sorted(lives.items()):
            if not schema or schema in renamed:
                continue
            own = renamed[schema] = {}
            life = Decoding.of(topic, {epoch: schema})
            for f, column in zip(life.fields, life.columns(known), strict=True):
                wanted, name, version = delta_type(f.type), column.name, 1
                while name in own.values() or not _fits(wanted, known.get(name)):
                    version += 1
                    name = f"{column.name}_v{version}"
                own[f.name] = name
                chosen[name] = known.setdefault(name, wanted)
        comments, about = _said(lives, renamed)
        return cls(Decoding(topic, dict(lives), pa.schema(list(chosen.items())), renamed), comments, about)

    @property
    def schema(self) -> pa.Schema:
        fields = (with_comment(f, self.comments.get(f.name)) for f in self.decoding.fields)
        return pa.schema([*_ENVELOPE, *fields])

    def measured(self, epoch: int, field: str) -> bool:
        """Does a life have this field, or the field of which it is one? Those of other lives are null in its rows."""
        own = self.decoding.renamed.get(self.decoding.lives.get(epoch, b""), {}).values()
        return any(field == name or field.startswith((f"{name}.", f"{name}[")) for name in own)

    def apply(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        decoded, reasons = self.decoding.apply(rows)
        return pa.RecordBatch.from_arrays([*_envelope(rows), *decoded], names=self.schema.names), reasons


def _said(lives: Mapping[int, bytes], renamed: Mapping[bytes, Mapping[str, str]]) -> tuple[dict[str, str], str]:
    """What schemas say of the columns, and of the whole."""
    comments, about = dict[str, str](), ""
    for _, data in sorted(lives.items()):
        if data:
            schema, columns = typed.Schema.from_bytes(data), renamed[data]
            comments |= {columns[one.name]: one.about for one in schema.fields if one.about and one.name in columns}
            about = schema.about or about
    return comments, about


def _fits(type_: pa.DataType, column: pa.DataType | None) -> bool:
    return column is None or merge_types(column, type_).equals(column)


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
    """All tasks of a batch. Picklable: an engine sends it to its workers, which run the tasks by their numbers.
    What a failed try leaves behind is never reported, hence never read."""

    lake: Tables
    batch: int
    window_us: int
    tasks: tuple[Task, ...]
    scan: Scan
    typed: Mapping[str, Columns]
    shared: Shared
    copy: bool = False
    within: tuple[int, int] | None = None
    """[since, until) in microseconds: rows of other times go to files of their own."""
    gold_sampled: int = 0
    """What is measured for gold goes to files, and of so many rows one tells where to cut it; 0: it goes with the
    reports."""

    def __len__(self) -> int:
        return len(self.tasks)

    def run(self, number: int) -> Report:
        task, made = self.tasks[number], _Made(Report(), FileSet(self.lake, self.batch, self.within), {})
        if task.since_ns is None:
            self._read(task, made)
        else:
            self._slice(task, made)
        report = made.report
        self._give_gold(made)
        report.files, report.apart = made.files.close(), made.files.apart
        for one in report.files:
            kind, _, folder = one.table.partition("/")
            if kind in ("silver", "quarantine"):
                count = report.topics[topic_name(folder)]
                count.rows_out += one.rows if kind == "silver" else 0
                count.quarantined += one.rows if kind == "quarantine" else 0
        return report

    def _give_gold(self, made: _Made) -> None:
        files = FileSet(self.lake, self.batch)
        for table in GOLD:
            rows = table.merged(made.gold.get(table.name, ()))
            if not len(rows):
                continue
            windows = rows.column("window_start").cast(pa.int64())
            if table is HEALTH:
                made.report.minutes = np.unique(windows.to_numpy() // MINUTE_US).tolist()
            if not self.gold_sampled:
                made.report.gold[table.name] = encode(rows)
                continue
            some = pa.array(np.arange(0, len(rows), self.gold_sampled))
            hosts = pc.fill_null(rows.column("host").take(some), "").to_pylist()
            made.report.gold_sample[table.name] = [*zip(hosts, windows.take(some).to_pylist(), strict=True)]
            for part in rows.sort_by([("host", "ascending"), ("window_start", "ascending")]).to_batches(_GOLD_GROUP):
                files.put(table.name, part)
                files.end_group()
        made.report.gold_files = files.close()

    def _read(self, task: Task, made: _Made) -> None:
        waiting: list[tuple[str, pa.RecordBatch]] = []  # (recording, rows)
        size = 0
        for item in task.ranges:
            left_out = partial(made.report.leave_out, item.key) if item.ref.store.kept is not None else None
            for rows in self.scan.read(item, left_out):
                made.report.read[item.key] = made.report.read.get(item.key, 0) + len(rows)
                if self.copy:
                    named = [*rows.columns, pa.repeat(pa.scalar(item.key), len(rows))]
                    made.files.add(BRONZE, pa.RecordBatch.from_arrays(named, names=BRONZE_SCHEMA.names))
                waiting.append((item.key, rows))
                size += rows.nbytes
                if size >= _TOGETHER_BYTES:
                    self._take(waiting, made)
                    size = 0
        self._take(waiting, made)

    def _take(self, waiting: list[tuple[str, pa.RecordBatch]], made: _Made) -> None:
        if not waiting:
            return
        made.add(measure(waiting, self.window_us))
        by_name: dict[str, list[pa.RecordBatch]] = {}
        for _, rows in waiting:
            for topic, part in by_topic(rows):
                by_name.setdefault(topic, []).append(part)
        for topic, parts in by_name.items():
            rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
            count = made.report.topics.setdefault(topic, TopicCount(topic))
            count.rows_in += len(rows)
            count.bytes += pc.sum(rows.column("size")).as_py()
            self._gaps(made.files, count, rows)
            shared = self.shared.mask(topic, rows)
            if shared is not None:
                left = made.report.left_to_slices
                left[topic] = left.get(topic, 0) + int(shared.sum())
                rows = rows.filter(pa.array(~shared))
            self._write(made, topic, rows)
        waiting.clear()

    def _slice(self, task: Task, made: _Made) -> None:
        """The rows of shared lives in a slice of time, each once."""
        plain = source_schema(None, True, True)  # rows are looked for and sorted by what texts say
        scan = replace(
            self.scan, schema=plain, topics=tuple(self.shared.lives), since_ns=task.since_ns, until_ns=task.until_ns
        )
        found = []
        for item in task.ranges:
            for rows in scan.read(item):
                for topic, part in by_topic(rows):
                    shared = self.shared.mask(topic, part)
                    if shared is None:
                        continue
                    part = part.filter(pa.array(shared))
                    read = made.report.read_by_slices
                    read[topic] = read.get(topic, 0) + len(part)
                    found.append(part.append_column("recording", pa.repeat(pa.scalar(item.key), len(part))))
        if not found:
            return
        table = pa.Table.from_batches(found).sort_by([(name, "ascending") for name in _FIRST_STAYS])
        for rows in table.combine_chunks().to_batches():  # one batch, as long as payloads fit in one
            for topic, part in by_topic(rows):
                copies = _copies(part) | self._known(task, topic, part)
                count = made.report.topics.setdefault(topic, TopicCount(topic))
                count.duplicates += int(copies.sum())
                self._write(made, topic, part.filter(pa.array(~copies)))

    def _known(self, task: Task, topic: str, rows: pa.RecordBatch) -> np.ndarray:
        """Which rows earlier batches have written."""
        found = np.zeros(len(rows), bool)
        epochs, seqs = rows.column("epoch").to_numpy(), rows.column("seq").to_numpy()
        for of_topic, table, names in task.known:
            if of_topic != topic:
                continue
            for there in self.lake.read_files(table, names, [EPOCH, SEQ]):
                for epoch in pc.unique(there.column(EPOCH)).to_pylist():
                    numbers = there.filter(pc.equal(there.column(EPOCH), epoch)).column(SEQ).to_numpy()
                    found |= (epochs == epoch) & np.isin(seqs, numbers)
        return found

    def _gaps(self, files: FileSet, count: TopicCount, rows: pa.RecordBatch) -> None:
        lossy = rows.filter(pc.greater(rows.column("lost"), 0))
        if len(lossy):
            count.lost += pc.sum(lossy.column("lost")).as_py()
            named = ("publish_time", "topic", "recorder", "epoch", "seq", "lost", "host")
            columns = [lossy.column(name) for name in named]
            files.add(GAPS.name, pa.RecordBatch.from_arrays(columns, names=GAPS.schema.names))

    def _write(self, made: _Made, topic: str, rows: pa.RecordBatch) -> None:
        if not len(rows):
            return
        columns = self.typed.get(topic)
        if columns is None:
            raw = [*_envelope(rows), rows.column("payload")]
            made.files.add(silver_table(topic), pa.RecordBatch.from_arrays(raw, names=RAW_SCHEMA.names))
            return
        good, reasons = columns.apply(rows)
        if reasons.null_count < len(reasons):
            bad = reasons.is_valid()
            good = good.filter(pc.invert(bad))
            wrong = [*_envelope(rows), rows.column("payload"), reasons]
            refused = pa.RecordBatch.from_arrays(wrong, names=QUARANTINE_SCHEMA.names).filter(bad)
            made.add({QUARANTINE.name: measure_reasons(topic, refused, _REASON.name, self.window_us)})
            made.files.add(quarantine_table(topic), refused)
        if len(good):
            found = measure_fields(topic, good, columns.decoding.fields.names, self.window_us)
            pairs = zip(found["epoch"].to_pylist(), found["field"].to_pylist(), strict=True)
            made.add({FIELDS.name: found.filter(pa.array([columns.measured(*pair) for pair in pairs], pa.bool_()))})
            made.files.add(silver_table(topic), good)


class _Made(NamedTuple):
    """What a task makes: its report, files of tables, and rows of gold to merge, by table."""

    report: Report
    files: FileSet
    gold: dict[str, list[pa.Table]]

    def add(self, found: Mapping[str, pa.Table]) -> None:
        for name, rows in found.items():
            self.gold.setdefault(name, []).append(rows)


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
    return [rows.column(name) for name in _OURS]
