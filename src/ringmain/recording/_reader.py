"""`Recording`: what is in a recording, its messages, its rows as Arrow; also while it is being written.

The invariant owned here: a row that is handed out has passed its checksum. Rows that have not raise RecordingCorrupt,
or with `skip_damage=True` are left out and listed in `Recording.damage`; none is left out silently.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import RecordingNotFound, TopicNotFound
from ringmain.recording._decode import Decoding
from ringmain.recording._directory_watch import DirectoryWatch
from ringmain.recording._filters import Filter, as_ns
from ringmain.recording._format import (
    BEGINNING,
    COLUMNS,
    ENVELOPE_COLUMNS,
    FIRST,
    HOST,
    INCIDENTS_COLUMN,
    LATCHED,
    LATCHED_COLUMN,
    STORED,
    Position,
)
from ringmain.recording._in_incidents import InIncidents
from ringmain.recording._message import Decoder, RecordedMessage, decoder_for, messages_of
from ringmain.recording._meta import Meta, TopicMeta, host_of, read_meta
from ringmain.recording._segment.segment import Damage, Segment, TopicStats, merge_stats, time_ns_of, topic_stats
from ringmain.recording._segment.segment_reader import StreamSegment
from ringmain.recording._segment.store import SegmentRef, Store, list_segments, read_retired, shown
from ringmain.recording._upkeep import repair
from ringmain.recording._upkeep.incidents import Incident, find_incident, incidents_in, store_of
from ringmain.recording._upkeep.retention import missed_rows

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl


_ALL = (*COLUMNS, HOST.name)
_FIELDS = {field.name: field for field in (*STORED, HOST, INCIDENTS_COLUMN, LATCHED_COLUMN)}


class Gap(msgspec.Struct, frozen=True):
    """The recorder missed `lost` messages just before the message `seq`."""

    topic: str
    epoch: int
    seq: int
    lost: int
    time_ns: int


class Recording:
    """A recording, by its directory or by a URI that pyarrow.fs opens. Opening reads meta.json only.

    storage_options: of an object store, like {"AWS_REGION": ...}; by default it is all in the environment.
    incident: of a flight recorder, by its id or a part of it: then the recording is what that incident has.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        skip_damage: bool = False,
        decode: Callable[[bytes], Decoder] | None = None,
        storage_options: Mapping[str, str] | None = None,
        incident: str | None = None,
    ) -> None:
        self.store = Store.of(path, storage_options)
        self.incident = find_incident(self.store, incident) if incident is not None else None
        if self.incident is not None:
            self.store = store_of(self.store, self.incident)
        self.meta: Meta | None = read_meta(self.store)
        self.damage: list[Damage] = []
        self._path, self._skip_damage, self._decode = path, skip_damage, decode
        if self.meta is None and not list_segments(self.store):
            raise RecordingNotFound(f"no recording at {path}: neither meta.json nor a segment is there")

    def of_incident(self, incident: Incident) -> Recording:
        """What an incident of it has."""
        found = copy.copy(self)
        found.store, found.incident, found.damage = store_of(self.store, incident), incident, []
        return found

    def __repr__(self) -> str:
        return f"Recording({shown(str(self._path))!r})"

    # Content

    def segments(self) -> list[SegmentRef]:
        return list_segments(self.store)

    def topics(self) -> dict[str, TopicStats]:
        """What was recorded of each topic, over all its lives."""
        merged: dict[tuple[str, int], TopicStats] = {}
        for stats in self.lives():
            merge_stats(merged, [msgspec.structs.replace(stats, epoch=0)])
        return {stats.topic: stats for stats in sorted(merged.values(), key=lambda s: s.topic)}

    def lives(self) -> list[TopicStats]:
        """What was recorded of each life (epoch) of each topic: sequence numbers start again with each."""
        merged: dict[tuple[str, int], TopicStats] = {}
        if self.incident is not None:
            for where, batch in self.batches(columns=ENVELOPE_COLUMNS):
                found = topic_stats(pa.Table.from_batches([batch]))
                if where[0].as_py()["segment"] == LATCHED:  # they are of no moment before the window
                    at_ns = self.incident.start_ns
                    found = [msgspec.structs.replace(stats, min_ns=at_ns, max_ns=at_ns) for stats in found]
                merge_stats(merged, found)
        else:
            for ref in self.segments():
                with self.opened(ref) as segment:
                    if segment is not None:
                        merge_stats(merged, segment.stats())
        return sorted(merged.values(), key=lambda s: (s.topic, s.min_ns))

    @property
    def time_range_ns(self) -> tuple[int, int] | None:
        """The first and last publish time, None while there is nothing."""
        stats = self.topics().values()
        return (min(s.min_ns for s in stats), max(s.max_ns for s in stats)) if stats else None

    def __len__(self) -> int:
        """How many messages are in it now."""
        total = 0
        if self.incident is not None:
            return sum(stats.rows for stats in self.lives())
        for ref in self.segments():
            with self.opened(ref) as segment:
                total += segment.rows if segment is not None else 0
        return total

    @property
    def latched(self) -> int:
        """How many of its messages were latched before the window: of an incident."""
        total = 0
        for ref in self.segments():
            if ref.number == LATCHED:
                with self.opened(ref) as segment:
                    total += segment.rows if segment is not None else 0
        return total

    def schemas(self) -> dict[tuple[str, int], TopicMeta]:
        """The contract and schema of each life of each topic."""
        self.meta = read_meta(self.store) or self.meta
        return {(t.name, t.epoch): t for t in self.meta.topics} if self.meta is not None else {}

    def incidents(self) -> list[Incident]:
        """What a flight recorder has kept here, oldest first."""
        return incidents_in(self.store)

    def gaps(self, topics: str | Sequence[str] | None = None) -> list[Gap]:
        """Every point where messages were lost before they were recorded, in the order recorded."""
        found = []
        for _, batch in self.batches(topics=topics, columns=ENVELOPE_COLUMNS):
            batch = batch.filter(pc.greater(batch.column("lost"), 0))
            for row, time_ns in zip(batch.to_pylist(), time_ns_of(batch).to_pylist(), strict=True):
                found.append(Gap(row["topic"], row["epoch"], row["seq"], row["lost"], time_ns))
        return found

    def end(self) -> Position:
        """The position after the last complete row."""
        if self.incident is not None and self.incident.end is not None:
            return self.incident.end
        segments = self.segments()
        if not segments:
            return Position(read_retired(self.store).first_segment, 0)
        with self.opened(segments[-1]) as segment:
            return Position(segments[-1].number, segment.end_row if segment is not None else 0)

    # Rows

    def batches(
        self,
        *,
        topics: str | Sequence[str] | None = None,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        first_seq: int | None = None,
        end_seq: int | None = None,
        start: Position | None = None,
        columns: Sequence[str] = COLUMNS,
        follow: bool = False,
        idle_timeout_s: float | None = None,
        latched: bool = True,
    ) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """(row positions, rows), in the order recorded. `topics` are names or patterns (`camera/*`); publish times are
        in [since, until), as ns or datetime; sequence numbers in [first_seq, end_seq). The positions are a struct array
        of `segment` and `row`. `columns` may also name `host`: where the recorder ran, `incidents`: those of a flight
        recorder that a row is in, `latched`, and `extension`: what ringmain's own parts say of it. With `follow`,
        waits for more rows until none came for `idle_timeout_s`.

        An incident begins with what was latched when its window began: of topics that keep the last message of each
        kind, that message. Their segment is -1, and to `since` and `until` they are at the beginning of the window.
        `latched=False` leaves them out."""
        since_ns, until_ns = as_ns(since), as_ns(until)
        of_latched = Filter(topics, None, None, first_seq, end_seq)
        if self.incident is not None:
            at_ns = self.incident.start_ns
            latched = latched and (since_ns or at_ns) <= at_ns and (until_ns is None or at_ns < until_ns)
            since_ns = max(self.incident.start_ns, since_ns or self.incident.start_ns)
            until_ns = min(self.incident.end_ns, self.incident.end_ns if until_ns is None else until_ns)
        wanted = Filter(topics, since_ns, until_ns, first_seq, end_seq)
        kept = InIncidents(self.store) if INCIDENTS_COLUMN.name in columns else None
        read = {*columns, *wanted.columns, *(kept.needs if kept is not None else ())}
        needed = tuple(name for name in STORED.names if name in read) or ("seq",)
        host = functools.cache(lambda segment: host_of(read_meta(self.store) or self.meta, segment))
        if start is None and self.incident is not None:
            start = FIRST if latched else BEGINNING
        for number, row, batch in self._walk(start, wanted, needed, follow, idle_timeout_s):
            rows, batch = (of_latched if number == LATCHED else wanted).apply(row, batch)
            if HOST.name in columns:
                batch = batch.append_column(HOST, pa.repeat(host(self.store.recorded_in(number)), len(batch)))
            if LATCHED_COLUMN.name in columns:
                batch = batch.append_column(LATCHED_COLUMN, pa.repeat(number == LATCHED, len(batch)))
            if kept is not None:
                batch = batch.append_column(INCIDENTS_COLUMN, kept.of(number, rows, batch))
            if len(batch):
                where = pa.StructArray.from_arrays([pa.repeat(number, len(batch)), rows], ["segment", "row"])
                yield where, batch.select(list(columns))

    def messages(self, **filters: Any) -> Iterator[RecordedMessage]:
        """Messages one by one; takes the arguments of `batches()`, except `columns`."""
        decoder = functools.cache(lambda *life: decoder_for(self.schemas().get(life), self._decode))
        for where, batch in self.batches(**filters, columns=STORED.names):
            yield from messages_of(batch, where[0].as_py()["segment"], where.field("row").to_pylist(), decoder)

    def __iter__(self) -> Iterator[RecordedMessage]:
        return self.messages()

    def decoded_batches(self, topic: str | None = None, **filters: Any) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """One topic's rows with the fields of its messages as columns, over all its schema versions: the columns, and
        the batches. `topic` may be left out where only one was recorded; the filters are those of `batches()`, except
        `topics` and `columns`."""
        name, more = self._one_topic(topic), self._more_columns
        lives = {epoch: meta.schema for (known, epoch), meta in self.schemas().items() if known == name}
        decoding = Decoding.of(name, lives)
        rows = self.batches(topics=name, columns=(*_ALL, *more), **filters)
        return decoding.schema(more), (decoding.rows(batch, more) for _, batch in rows)

    def to_arrow(self, topics: str | Sequence[str] | None = None, *, decode: bool = False, **filters: Any) -> pa.Table:
        """All rows, or those that the filters of `batches()` let through, as one table, with the `host`, and of an
        incident whether they are `latched`. With `decode=True` the rows of one topic, with the fields of its messages
        as columns, and the others as `rm_topic`, `rm_seq`, ... A field that a version of the schema did not have is
        null, and a row that does not decode has its `rm_payload` and a reason in `rm_decode_error`."""
        if decode:
            columns = filters.pop("columns", None)
            topic = topics if topics is None or isinstance(topics, str) else ", ".join(topics)
            schema, batches = self.decoded_batches(topic, **filters)
            table = pa.Table.from_batches(batches, schema)
            return table if columns is None else table.select(list(columns))
        columns = filters.pop("columns", (*_ALL, *self._more_columns))
        schema = pa.schema([_FIELDS[name] for name in columns])
        rows = self.batches(topics=topics, columns=columns, **filters)
        return pa.Table.from_batches([batch for _, batch in rows], schema)

    def to_pandas(self, topics: str | Sequence[str] | None = None, **options: Any) -> pd.DataFrame:
        """The same as a pandas DataFrame."""
        _needed("pandas", "to_pandas()")
        frame: pd.DataFrame = self.to_arrow(topics, **options).to_pandas()
        return frame

    def to_polars(self, topics: str | Sequence[str] | None = None, **options: Any) -> pl.DataFrame:
        """The same as a polars DataFrame."""
        frame: pl.DataFrame = _needed("polars", "to_polars()").from_arrow(self.to_arrow(topics, **options))
        return frame

    # Verify and repair

    def verify(self) -> repair.Report:
        """Check every byte and report exactly what is damaged. Changes nothing."""
        return repair.verify(self.store)

    def repair(self) -> repair.Report:
        """Set aside what cannot be read, seal what a recorder that died left, and report how much was lost. Refused
        while a recorder runs on the directory."""
        report = repair.repair(self.store)
        self.meta = read_meta(self.store)
        return report

    # Internals

    @property
    def _more_columns(self) -> tuple[str, ...]:
        """Beyond those that all recordings have, where none are asked for by name."""
        return (LATCHED_COLUMN.name,) if self.incident is not None else ()

    def _one_topic(self, topic: str | None) -> str:
        """The topic to decode: the given one, or the only one."""
        declared = {name for name, _ in self.schemas()}
        if topic is not None and topic in declared:
            return topic
        there = sorted(declared | self.topics().keys())
        if topic is not None and topic not in there:
            raise TopicNotFound(
                f"there is no topic {topic!r} in {self._path}; it has {', '.join(there) or 'none'}", topic=topic
            )
        if topic is None and len(there) != 1:
            raise ValueError(
                f"decoding takes one topic: name one of those in {self._path}, {', '.join(there) or 'none'}"
            )
        return topic or there[0]

    @contextlib.contextmanager
    def opened(self, ref: SegmentRef) -> Iterator[Segment | None]:
        segment = self._open(ref)
        try:
            yield segment
        finally:
            if segment is not None:
                segment.close()

    def _again(self, growing: StreamSegment | None, ref: SegmentRef) -> Segment | None:
        """The segment that grew, with what was added. Opened anew if it was sealed: perhaps since it was listed."""
        if growing is not None and growing.number == ref.number and not ref.sealed:
            with contextlib.suppress(FileNotFoundError):
                growing.refresh()
                return growing
        return self._open(ref)

    def _open(self, ref: SegmentRef) -> Segment | None:
        try:
            return ref.open()
        except ValueError as error:
            if not self._skip_damage:
                raise
            self._note(Damage(ref.number, 0, None, ref.size_bytes, str(error)))
            return None

    def _note(self, damage: Damage) -> None:
        if damage not in self.damage:
            self.damage.append(damage)

    def _first(self, start: Position | None) -> Position:
        """Where to begin. Raises when retention has deleted rows from `start` on, with how many."""
        if self.incident is not None:
            return start or FIRST
        retired = read_retired(self.store)
        if start is None or start.segment >= retired.first_segment:
            return start or Position(retired.first_segment, 0)
        gone = missed_rows(retired, start)
        if not self._skip_damage:
            raise RecordingNotFound(
                f"{gone} rows from position {start} on have been deleted by retention; the oldest left "
                f"is at {Position(retired.first_segment, 0)}. Register a consumer to have rows kept"
            )
        self._note(Damage(start.segment, start.row, None, 0, f"{gone} rows were deleted by retention"))
        return Position(retired.first_segment, 0)

    def _walk(
        self,
        start: Position | None,
        wanted: Filter,
        columns: Sequence[str],
        follow: bool,
        idle_timeout_s: float | None,
    ) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """(segment, row, rows) of every run that may match, and with `follow` of those written later."""
        position = self._first(start)
        end = self.incident.end if self.incident is not None else None
        growing: StreamSegment | None = None
        on_damage = self._note if self._skip_damage else None
        with DirectoryWatch(self.store.directory) if follow else contextlib.nullcontext() as watch:
            news_at = time.monotonic()
            while True:
                before = position
                for ref in self.segments():
                    if ref.number < position.segment:
                        continue
                    first_row = position.row if ref.number == position.segment else 0
                    segment = self._again(growing, ref)
                    if segment is None:
                        position = Position(ref.number + 1, 0)
                        continue
                    for row, batch in segment.batches(
                        first_row,
                        end.row if end is not None and end.segment == ref.number else None,
                        columns,
                        min_ns=wanted.since_ns if ref.number != LATCHED else None,
                        max_ns=wanted.until_ns,
                        on_damage=on_damage,
                    ):
                        yield ref.number, row, batch
                    position = Position(ref.number, max(first_row, segment.end_row))
                    growing = segment if isinstance(segment, StreamSegment) else None
                if watch is None:
                    return
                now = time.monotonic()
                if position != before:
                    news_at = now
                    watch.found_something()
                elif idle_timeout_s is not None and now - news_at >= idle_timeout_s:
                    return
                else:
                    watch.wait(None if idle_timeout_s is None else idle_timeout_s - (now - news_at))


def _needed(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ModuleNotFoundError(f"{what} needs {module}: pip install 'ringmain[{module}]'", name=module) from error
