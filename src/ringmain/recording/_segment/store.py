"""Segments seen from outside: find them, open them, read rows by number. What Spark and `Recording` stand on.

The invariant owned here: *every row is seen exactly once while segments are being sealed and deleted*. A
sealed file wins over a stream of the same number; streams are listed before sealed files, so a segment that
is sealed between the two looks is seen twice and counted once, never missed; a stream that vanishes before it
is opened is sealed by now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyarrow import fs as pafs

from ringmain.errors import RecordingCorrupt, RecordingNotFound
from ringmain.recording import _checksum
from ringmain.recording._format import (
    COLUMNS,
    ENVELOPE,
    META,
    RETIRED,
    Meta,
    Retired,
    parse_segment_name,
    sealed_name,
    stream_name,
)
from ringmain.recording._segment.parquet_segment import SealedSegment, SealStats, TopicStats, merge_stats, topic_stats
from ringmain.recording._segment.segment_reader import StreamIndex, map_stream, read_block
from ringmain.recording._segment.segment_writer import Block, Damage


@dataclass(frozen=True, slots=True)
class Store:
    """Where a recording's files are: a local directory, an address that pyarrow.fs opens, or first one, then
    the other."""

    directory: Path | None
    sealed_uri: str = ""

    @classmethod
    def of(cls, location: str | Path) -> Store:
        """The store of an existing recording; a local one says in meta.json where its sealed segments
        went."""
        if isinstance(location, str) and "://" in location:
            return cls(None, location)
        directory = Path(location)
        if not directory.is_dir():
            raise RecordingNotFound(f"no recording at {directory}: there is no such directory")
        meta = read_meta(cls(directory))
        return cls(directory, meta.sealed_uri if meta is not None else "")

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        """The file system of the sealed segments, and the directory in it."""
        if self.sealed_uri:
            filesystem, path = pafs.FileSystem.from_uri(self.sealed_uri)
            return filesystem, path.rstrip("/")
        return pafs.LocalFileSystem(), str(self.directory)

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file beside the segments, None when there is none."""
        if self.directory is not None:
            try:
                return (self.directory / name).read_bytes()
            except FileNotFoundError:
                return None
        filesystem, path = self.filesystem()
        try:
            with filesystem.open_input_stream(f"{path}/{name}") as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None


def read_meta(store: Store) -> Meta | None:
    """meta.json, or None when it is missing or damaged: the segments are readable without it."""
    data = store.read(META)
    return _checksum.load_json(data, Meta) if data is not None else None


def read_retired(store: Store) -> Retired:
    data = store.read(RETIRED)
    found = _checksum.load_json(data, Retired) if data is not None else None
    return found if found is not None else Retired("")


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment as it was when listed. Small and picklable: it travels to Spark's workers."""

    number: int
    sealed: bool
    store: Store
    size_bytes: int

    @property
    def stream_path(self) -> Path:
        assert self.store.directory is not None
        return self.store.directory / stream_name(self.number)

    def open(self) -> Segment:
        """Raises RecordingNotFound when it is no longer there, RecordingCorrupt when it cannot be read at
        all."""
        if not self.sealed:
            try:
                return StreamSegment(self)
            except FileNotFoundError:
                pass  # sealed since it was listed
        filesystem, directory = self.store.filesystem()
        try:
            source = filesystem.open_input_file(f"{directory}/{sealed_name(self.number)}")
        except FileNotFoundError as error:
            raise RecordingNotFound(
                f"segment {self.number:09d} is no longer in {directory}: retention or somebody deleted it"
            ) from error
        return ParquetSegment(self.number, source)


def list_segments(store: Store) -> list[SegmentRef]:
    """All segments in order, without opening any."""
    streams: dict[int, int] = {}
    if store.directory is not None:
        try:
            for entry in store.directory.iterdir():
                parsed = parse_segment_name(entry.name)
                if parsed is not None and not parsed[1]:
                    try:
                        streams[parsed[0]] = entry.stat().st_size
                    except FileNotFoundError:
                        streams[parsed[0]] = 0  # sealed or deleted just now: the next look tells
        except FileNotFoundError as error:
            raise RecordingNotFound(f"no recording at {store.directory}: the directory is gone") from error
    filesystem, directory = store.filesystem()
    found = filesystem.get_file_info(pafs.FileSelector(directory, allow_not_found=True))
    sealed = {}
    for info in found:
        parsed = parse_segment_name(info.base_name)
        if parsed is not None and parsed[1]:
            sealed[parsed[0]] = info.size
    first = read_retired(store).first_segment
    numbers = sorted(n for n in streams.keys() | sealed.keys() if n >= first)
    return [SegmentRef(n, n in sealed, store, sealed.get(n, streams.get(n, 0))) for n in numbers]


class Segment:
    """An open segment: blocks of consecutive rows. Subclasses know the file format."""

    number: int
    sealed: bool
    end_row: int
    damage: list[Damage]

    def spans(self) -> Sequence[tuple[int, int, int, int]]:
        """(first row, rows, least and greatest publish time) of each block."""
        raise NotImplementedError

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        raise NotImplementedError

    def stats(self) -> list[TopicStats]:
        raise NotImplementedError

    @property
    def rows(self) -> int:
        return sum(span[1] for span in self.spans())

    def batches(
        self,
        first_row: int = 0,
        end_row: int | None = None,
        columns: Sequence[str] = COLUMNS,
        *,
        min_ns: int | None = None,
        max_ns: int | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(number of the first row, rows) for rows in [first_row, end_row), skipping blocks wholly outside
        [min_ns, max_ns]. Damaged blocks raise RecordingCorrupt, or are left out and told to `on_damage`."""
        for damage in self.damage:
            if on_damage is not None:
                on_damage(damage)
            elif damage.end_row is None or damage.end_row > first_row:  # it costs rows that were asked for
                raise RecordingCorrupt(f"{damage}; verify() lists all damage, repair() sets it aside")
        for index, (row, rows, least, greatest) in enumerate(self.spans()):
            lo = max(first_row, row)
            hi = row + rows if end_row is None else min(end_row, row + rows)
            if lo >= hi or (min_ns is not None and greatest < min_ns) or (max_ns is not None and least > max_ns):
                continue
            try:
                found = self.read(index, columns)
            except RecordingCorrupt as error:
                if on_damage is None:
                    raise
                on_damage(Damage(self.number, row, row + rows, 0, str(error)))
                continue
            for batch in found:
                begin, stop = max(lo, row), min(hi, row + len(batch))
                if begin < stop:
                    yield begin, batch.slice(begin - row, stop - begin)
                row += len(batch)

    def close(self) -> None:
        """Let go of the file; batches that were read stay valid."""


class StreamSegment(Segment):
    """A growing segment. `refresh()` sees what has been added since."""

    def __init__(self, ref: SegmentRef) -> None:
        self.number, self.sealed = ref.number, False
        self.path = ref.stream_path
        self.index = StreamIndex(self.path, ref.number)
        self._mapped: pa.Buffer | None = None
        self._tail: Damage | None = None
        self.refresh()

    def refresh(self) -> int:
        """How many new rows are there now?"""
        new = self.index.refresh()
        self._tail = self.index.tail()
        blocks = self.index.blocks
        if blocks and (self._mapped is None or self._mapped.size < blocks[-1].end):
            # Now, and not when rows are asked for: by then the stream may be sealed, and gone.
            self._mapped = map_stream(self.path)
        return new

    @property
    def end_row(self) -> int:  # type: ignore[override]
        return self.index.rows

    @property
    def damage(self) -> list[Damage]:  # type: ignore[override]
        tail = self._tail
        return self.index.damage + ([tail] if tail is not None and not tail.torn else [])

    @property
    def blocks(self) -> list[Block]:
        return self.index.blocks

    def torn(self) -> Damage | None:
        """The unfinished end, if there is one: of a batch that is being written, or never will be."""
        tail = self._tail
        return tail if tail is not None and tail.torn else None

    def spans(self) -> Sequence[tuple[int, int, int, int]]:
        return [(b.row, b.rows, b.min_ns, b.max_ns) for b in self.index.blocks]

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        block = self.index.blocks[index]
        if self._mapped is None:
            raise ValueError(f"{self.path} has been closed")
        payload = "payload" in columns
        batch = read_block(self._mapped, block, self.number, payload=payload)
        return [batch if tuple(columns) == COLUMNS else batch.select(list(columns))]

    def stats(self) -> list[TopicStats]:
        merged: dict[tuple[str, int], TopicStats] = {}
        for _, batch in self.batches(columns=ENVELOPE, on_damage=lambda _: None):
            merge_stats(merged, topic_stats(pa.Table.from_batches([batch])))
        return list(merged.values())

    def close(self) -> None:
        self._mapped = None


class ParquetSegment(Segment):
    """A sealed segment."""

    def __init__(self, number: int, source: pa.NativeFile) -> None:
        self.number, self.sealed, self.damage = number, True, []
        try:
            self._file = SealedSegment(source, number)
        except BaseException:
            source.close()
            raise
        self.end_row = self._file.stats.end_row

    @property
    def seal(self) -> SealStats:
        return self._file.stats

    def spans(self) -> Sequence[tuple[int, int, int, int]]:
        return [(g.row, g.rows, g.min_ns, g.max_ns) for g in self._file.groups]

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = self._file.read_group(index, list(columns)).to_batches()
        return batches

    def stats(self) -> list[TopicStats]:
        return self._file.stats.topics

    def close(self) -> None:
        self._file.close()
