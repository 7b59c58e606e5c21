"""Reading a recording: what is in it, its messages, its rows as Arrow; also while it is being written.

The invariant owned here: a row that is handed out has passed its checksum. What has not is raised as
RecordingCorrupt, or with `skip_damage=True` left out and noted in `Recording.damage`; nothing is left out in
silence.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import RecordingNotFound
from ringmain.recording._directory_watch import DirectoryWatch
from ringmain.recording._filters import Filter, as_ns
from ringmain.recording._format import COLUMNS, ENVELOPE, FRAMES, SCHEMA, Meta, Position, TopicMeta
from ringmain.recording._segment.parquet_segment import TopicStats, merge_stats, time_ns_of
from ringmain.recording._segment.segment_writer import Damage
from ringmain.recording._segment.store import (
    Segment,
    SegmentRef,
    Store,
    StreamSegment,
    list_segments,
    read_meta,
    read_retired,
)
from ringmain.recording._upkeep.retention import missed_rows

if TYPE_CHECKING:
    import pandas as pd

    from ringmain.recording._upkeep.repair import Report

Decoder = Callable[[bytes], Any]


class _LazyDecoder:
    """Made from a topic's schema when the first value is asked for: most readers want the bytes alone."""

    def __init__(self, schema: bytes, make: Callable[[bytes], Decoder]) -> None:
        self._schema, self._make = schema, make
        self._decode: Decoder | None = None

    def __call__(self, data: bytes) -> Any:
        if self._decode is None:
            self._decode = self._make(self._schema)
        return self._decode(data)


def _typed_decoder(schema: bytes) -> Decoder:
    typed = importlib.import_module("ringmain.typed")
    decoder: Decoder = typed.codec_from_schema(typed.Schema.from_bytes(schema)).decode
    return decoder


def _frame_decoder(_: bytes) -> Decoder:
    return importlib.import_module("ringmain.recording._frames").RecordedFrame  # type: ignore[no-any-return]


class RecordedMessage(msgspec.Struct, frozen=True):
    """One message, as the ring carried it, and where it is in the recording."""

    topic: str
    epoch: int
    seq: int
    time_ns: int
    record_time_ns: int
    sender: str
    kind: str
    lost: int
    data: bytes
    position: Position
    decoder: Decoder | None = None

    @property
    def value(self) -> Any:
        """The payload decoded by the topic's recorded schema; the bytes themselves when the topic was not typed; of a
        stream of frames a `RecordedFrame`, which has the array."""
        return self.data if self.decoder is None else self.decoder(self.data)


class Gap(msgspec.Struct, frozen=True):
    """The recorder missed `lost` messages just before the message `seq`."""

    topic: str
    epoch: int
    seq: int
    lost: int
    time_ns: int


class Recording:
    """A recording, by its directory or by an address that pyarrow.fs opens. Opening reads nothing but
    meta.json."""

    def __init__(
        self,
        path: str | Path,
        *,
        skip_damage: bool = False,
        decode: Callable[[bytes], Decoder] | None = None,
    ) -> None:
        self.store = Store.of(path)
        self.meta: Meta | None = read_meta(self.store)
        self.damage: list[Damage] = []
        self._path, self._skip_damage, self._decode = path, skip_damage, decode
        if self.meta is None and not list_segments(self.store):
            raise RecordingNotFound(f"no recording at {path}: neither meta.json nor a segment is there")

    def __repr__(self) -> str:
        return f"Recording({str(self._path)!r})"

    # What is in it

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
        for ref in self.segments():
            with self.opened(ref) as segment:
                total += segment.rows if segment is not None else 0
        return total

    def schemas(self) -> dict[tuple[str, int], TopicMeta]:
        """What was noted of each life of each topic: contract and schema."""
        self.meta = read_meta(self.store) or self.meta
        return {(t.name, t.epoch): t for t in self.meta.topics} if self.meta is not None else {}

    def gaps(self, topics: str | Sequence[str] | None = None) -> list[Gap]:
        """Every place where messages were lost before the recorder, in the order recorded."""
        found = []
        for _, batch in self.batches(topics=topics, columns=ENVELOPE):
            batch = batch.filter(pc.greater(batch.column("lost"), 0))
            for row, time_ns in zip(batch.to_pylist(), time_ns_of(batch).to_pylist(), strict=True):
                found.append(Gap(row["topic"], row["epoch"], row["seq"], row["lost"], time_ns))
        return found

    def end(self) -> Position:
        """The position after the last complete row."""
        segments = self.segments()
        if not segments:
            return Position(read_retired(self.store).first_segment, 0)
        with self.opened(segments[-1]) as segment:
            return Position(segments[-1].number, segment.end_row if segment is not None else 0)

    # Its rows

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
    ) -> Iterator[tuple[pa.Array, pa.RecordBatch]]:
        """(row positions, rows), in the order recorded. `topics` are names or patterns (`camera/*`); publish
        times in [since, until), as ns or datetime; sequence numbers in [first_seq, end_seq). The positions
        are a struct array of `segment` and `row`. With `follow`, waits for more until `idle_timeout_s` pass
        without any."""
        wanted = Filter(topics, as_ns(since), as_ns(until), first_seq, end_seq)
        needed = tuple(name for name in COLUMNS if name in columns or name in wanted.columns)
        for number, row, batch in self._walk(start, wanted, needed, follow, idle_timeout_s):
            rows, batch = wanted.apply(row, batch)
            if len(batch):
                where = pa.StructArray.from_arrays([pa.repeat(number, len(batch)), rows], ["segment", "row"])
                yield where, batch if needed == tuple(columns) else batch.select(list(columns))

    def messages(self, **filters: Any) -> Iterator[RecordedMessage]:
        """Messages one by one; takes what `batches()` takes, but for `columns`."""
        decoders: dict[tuple[str, int], Decoder | None] = {}
        for where, batch in self.batches(**filters):
            times = time_ns_of(batch).to_pylist()
            recorded = pc.cast(batch.column("record_time"), pa.int64()).to_pylist()
            names = ("topic", "epoch", "seq", "sender", "kind", "lost", "payload")
            values = [batch.column(name).to_pylist() for name in names]
            segment, first = where[0].as_py()["segment"], where.field("row").to_pylist()
            for i, (topic, epoch, seq, sender, kind, lost, data) in enumerate(zip(*values, strict=True)):
                key = (topic, epoch)
                if key not in decoders:
                    decoders[key] = self._decoder(*key)
                yield RecordedMessage(
                    topic, epoch, seq, times[i], recorded[i] * 1000, sender, kind, lost, data,
                    Position(segment, first[i]), decoders[key],
                )  # fmt: skip

    def __iter__(self) -> Iterator[RecordedMessage]:
        return self.messages()

    def to_arrow(self, **filters: Any) -> pa.Table:
        """All rows, or those that the filters of `batches()` let through, as one table."""
        columns = filters.get("columns", COLUMNS)
        schema = pa.schema([SCHEMA.field(name) for name in columns])
        return pa.Table.from_batches([batch for _, batch in self.batches(**filters)], schema)

    def to_pandas(self, **filters: Any) -> pd.DataFrame:
        """The same as a pandas DataFrame."""
        frame: pd.DataFrame = self.to_arrow(**filters).to_pandas()
        return frame

    # Its health

    def verify(self) -> Report:
        """Check every byte; says exactly what is damaged. Changes nothing."""
        from ringmain.recording._upkeep.repair import verify

        return verify(self.store)

    def repair(self) -> Report:
        """Set aside what cannot be read, seal what a dead recorder left, and tell how much was lost. Refuses
        while a recorder is alive on the directory."""
        from ringmain.recording._upkeep.repair import repair

        report = repair(self.store)
        self.meta = read_meta(self.store)
        return report

    # How it is done

    def _decoder(self, topic: str, epoch: int) -> Decoder | None:
        entry = self.schemas().get((topic, epoch))
        if entry is not None and entry.contract == FRAMES:
            return _LazyDecoder(b"", _frame_decoder)
        if entry is None or not entry.schema:
            return None
        return _LazyDecoder(entry.schema, self._decode or _typed_decoder)

    @contextlib.contextmanager
    def opened(self, ref: SegmentRef) -> Iterator[Segment | None]:
        segment = self._open(ref)
        try:
            yield segment
        finally:
            if segment is not None:
                segment.close()

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
        """Where to begin; an explicit start that retention has overtaken is an error that counts what is
        gone."""
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
        """(segment, row, rows) of every block that may matter, and with `follow` of those to come."""
        position = self._first(start)
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
                    if growing is not None and growing.number == ref.number and not ref.sealed:
                        segment: Segment | None = growing
                        growing.refresh()
                    else:
                        segment = self._open(ref)
                    if segment is None:
                        position = Position(ref.number + 1, 0)
                        continue
                    for row, batch in segment.batches(
                        first_row,
                        None,
                        columns,
                        min_ns=wanted.since_ns,
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
