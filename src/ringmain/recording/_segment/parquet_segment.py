"""The sealed segment: a Parquet file (zstd) in which every byte is covered by a checksum.

Parquet's own page checksums cover neither page headers nor the footer, so a flipped bit there could change a row. The
footer therefore has a *seal line* in its key-value metadata:

    ringmain/1 "tail"=HHHHHHHH data=N chunks=HHHHHHHHHHHHHHHH...

`tail` is a stamp over everything after the last column chunk (page index and footer), `chunks` are the CRC-32s of the
column chunks, row group by row group. A reader checks only the chunks that it reads. For other programs it is an
ordinary Parquet file with page checksums.

The invariant owned here: a row group has consecutive rows, and the seal has the number of its first row, so rows keep
their numbers even after a repair has left some out.
"""

from __future__ import annotations

import atexit
import io
import os
import re
import struct
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringmain import _crash
from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum
from ringmain.recording._format import (
    ENVELOPE_BYTES,
    ENVELOPE_COLUMNS,
    EXTENSION,
    SCHEMA,
    SEGMENT_VERSION,
    STORED,
    TABLE,
    sealed_name,
)
from ringmain.recording._segment.segment import (
    LATCHED_KEY,
    Run,
    Segment,
    TopicStats,
    merge_stats,
    time_ns_of,
    topic_stats,
    with_columns,
    with_latched,
)

# The quotes keep a topic's name in the JSON beside it from looking like the marker: there they are escaped.
MARKER = b'ringmain/%d "tail"=' % SEGMENT_VERSION
SEAL_KEY, STATS_KEY = "ringmain.seal", "ringmain.stats"
ROW_GROUP_BYTES = 8 << 20  # in memory. What damage costs: a row group whose checksum fails is not read
ROW_GROUP_ROWS = 1 << 17
_LINE = re.compile(re.escape(MARKER) + rb"([0-9a-f]{8}) data=(\d{15}) chunks=((?:[0-9a-f]{8})*)")
_FOOTER = struct.Struct("<I4s")
_MAGIC = b"PAR1"
_TAIL_BYTES = 64 << 10  # of a file: nearly always its whole footer
_NEAR_BYTES = 64 << 10
_DICTIONARY = [*(column.name for column in TABLE if column.encoding == "dictionary"), EXTENSION.name]
_DELTA = {column.name: "DELTA_BINARY_PACKED" for column in TABLE if column.encoding == "delta"}


class RowGroup(NamedTuple):
    """Of a sealed segment; in the footer an array."""

    row: int  # the first one's number
    rows: int
    min_ns: int  # publish time
    max_ns: int


class SealStats(msgspec.Struct):
    """The JSON beside the seal line, in the footer."""

    segment: int
    end_row: int  # one more than the last row's number
    groups: list[RowGroup]
    topics: list[TopicStats]

    @property
    def rows(self) -> int:
        return sum(group.rows for group in self.groups)


def write_sealed(
    path: Path,
    segment: int,
    blocks: Iterable[tuple[int, pa.RecordBatch]],
    end_row: int,
    latched: bytes = b"",
    schema: pa.Schema = STORED,
) -> SealStats:
    """Write `blocks` (number of first row, rows of `schema`) as a sealed segment at `path`, a temporary name; it
    carries `latched`."""
    stats = SealStats(segment, end_row, [], [])
    topics: dict[tuple[str, int], TopicStats] = {}
    with pa.OSFile(str(path), "wb") as sink:
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in _DICTIONARY if name in schema.names],
            column_encoding=_DELTA,
            write_statistics=list(ENVELOPE_COLUMNS),
            write_page_index=True,
            write_page_checksum=True,
        )
        try:
            for row, table in _row_groups(blocks):
                bounds = pc.min_max(time_ns_of(table)).as_py()
                stats.groups.append(RowGroup(row, table.num_rows, bounds["min"], bounds["max"]))
                merge_stats(topics, topic_stats(table))
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                _crash.point("seal: parquet half written")
            stats.topics = list(topics.values())
            chunks = _checksum.BLANK * (len(stats.groups) * len(schema))
            line = MARKER + _checksum.BLANK + b" data=%015d chunks=" % 0 + chunks
            writer.add_key_value_metadata(
                {SEAL_KEY: line, STATS_KEY: msgspec.json.encode(stats), **with_latched(latched)}
            )
            writer.close()
        finally:
            writer.is_open = False  # or its destructor would write a footer after the file has been closed
    _stamp_file(path, line)
    return stats


def _row_groups(blocks: Iterable[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[int, pa.Table]]:
    """Join consecutive rows into tables of the size of a row group; a gap in the numbers begins a new one."""
    first, rows, size = 0, 0, 0
    held: list[pa.RecordBatch] = []
    for row, batch in blocks:
        if held and (
            row != first + rows or size + batch.nbytes > ROW_GROUP_BYTES or rows + len(batch) > ROW_GROUP_ROWS
        ):
            yield first, pa.Table.from_batches(held)
            held, rows, size = [], 0, 0
        if not held:
            first = row
        held.append(batch)
        rows += len(batch)
        size += batch.nbytes
    if held:
        yield first, pa.Table.from_batches(held)


def _chunk_ranges(metadata: Any) -> list[tuple[int, int]]:
    """(offset, bytes) of every column chunk, row group by row group."""
    ranges = []
    for g in range(metadata.num_row_groups):
        group = metadata.row_group(g)
        for c in range(group.num_columns):
            column = group.column(c)
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:
                start = min(start, column.dictionary_page_offset)
            ranges.append((start, column.total_compressed_size))
    return ranges


def _stamp_file(path: Path, line: bytes) -> None:
    ranges = _chunk_ranges(pq.read_metadata(path))
    with open(path, "r+b") as file:
        crcs = bytearray()
        for offset, size in ranges:
            crcs += _checksum.hex_crc(_crc_at(file.fileno(), offset, size))
        data_end = max((offset + size for offset, size in ranges), default=len(_MAGIC))
        file.seek(data_end)
        tail = bytearray(file.read())
        at = tail.rindex(line)
        tail[at : at + len(line)] = MARKER + _checksum.BLANK + b" data=%015d chunks=" % data_end + crcs
        at += len(MARKER)
        tail[at : at + _checksum.DIGITS] = _checksum.hex_crc(_checksum.stamped_crc(tail, at))
        file.seek(data_end)
        file.write(tail)


def _crc_at(fd: int, offset: int, size: int) -> int:
    crc, end = 0, offset + size
    while offset < end:
        piece = os.pread(fd, min(1 << 20, end - offset), offset)
        if not piece:
            raise RecordingCorrupt(f"a sealed segment ends at byte {offset} while being checked; expected {end}")
        crc = _checksum.crc32(piece, crc)
        offset += len(piece)
    return crc


class Footer(NamedTuple):
    """What the end of a sealed segment says of it. It has passed its checksum."""

    size: int  # of the file
    metadata: Any
    seal: SealStats
    ranges: list[tuple[int, int]]  # (offset, bytes) of every column chunk, row group by row group
    crcs: list[int]  # theirs


def read_footer(number: int, source: pa.NativeFile) -> Footer:
    """Check the end of the file before anything in it is used. That is one read, or two if it is a long one."""
    size, name = source.size(), sealed_name(number)
    problem = f"{name}: its footer does not pass its checksum, so none of its rows can be trusted"
    begin = max(0, size - _TAIL_BYTES)
    tail = source.read_at(size - begin, begin)
    if len(tail) < len(_MAGIC) + _FOOTER.size:
        raise RecordingCorrupt(problem)
    footer_bytes, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
    footer_at = size - _FOOTER.size - footer_bytes
    if magic != _MAGIC or footer_at < len(_MAGIC):
        raise RecordingCorrupt(problem)
    if footer_at < begin:
        tail, begin = source.read_at(begin - footer_at, footer_at) + tail, footer_at
    match = _LINE.match(tail, max(0, tail.rfind(MARKER, footer_at - begin)))
    data_end = int(match[2]) if match else size
    if match is None or not len(_MAGIC) <= data_end <= footer_at:
        raise RecordingCorrupt(problem)
    if data_end < begin:
        tail, begin = source.read_at(begin - data_end, data_end) + tail, data_end
    tail = tail[data_end - begin :]
    at = tail.rfind(MARKER) + len(MARKER)
    if tail[at : at + _checksum.DIGITS] != _checksum.hex_crc(_checksum.stamped_crc(tail, at)):
        raise RecordingCorrupt(problem)
    metadata = pq.read_metadata(pa.BufferReader(tail))
    try:
        seal = msgspec.json.decode(metadata.metadata[STATS_KEY.encode()], type=SealStats)
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise RecordingCorrupt(f"{name}: its seal cannot be read: {error}") from error
    if seal.segment != number:
        raise RecordingCorrupt(f"{name} holds segment {seal.segment:09d}: was the file renamed?")
    digits = match[3]
    crcs = [int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)]
    return Footer(size, metadata, seal, _chunk_ranges(metadata), crcs)


class ParquetSegment(Segment):
    """A sealed segment, read through anything with pyarrow's random access."""

    def __init__(self, number: int, source: pa.NativeFile, footer: Footer | None = None) -> None:
        """`footer`: that of the file when it was opened before."""
        self.number, self.sealed, self.damage = number, True, ()
        self._source = source
        try:
            known = footer is not None and footer.size == source.size()
            self.footer = footer if footer is not None and known else read_footer(number, source)
        except BaseException:
            source.close()
            raise
        seal, metadata = self.footer.seal, self.footer.metadata
        self.end_row = seal.end_row
        self.latched = metadata.metadata.get(LATCHED_KEY.encode(), b"")
        row_bytes = ENVELOPE_BYTES + sum(topic.bytes for topic in seal.topics) // max(1, seal.rows)
        self.runs = [Run(g.row, g.rows, g.rows * row_bytes, g.min_ns, g.max_ns) for g in seal.groups]
        self._columns = {metadata.schema.column(i).name: i for i in range(metadata.num_columns)}
        self.schema = STORED if EXTENSION.name in self._columns else SCHEMA

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        """The bytes of the columns are fetched once. They are checked and decoded from memory."""
        run, fetched = self.runs[index], _Fetched(self.footer.size)
        wanted = [name for name in columns if name in self._columns]
        chunks = {name: index * len(self._columns) + self._columns[name] for name in wanted}
        # The file's first bytes, which no checksum covers, are read with the first row group.
        first = [(0, len(_MAGIC))] if index == 0 else []
        for offset, size in _joined(first + [self.footer.ranges[chunk] for chunk in chunks.values()]):
            fetched.add(offset, self._source.read_at(size, offset))
        where = f"{sealed_name(self.number)}: rows {run.row} to {run.end_row}"
        if first and fetched.at(0, len(_MAGIC)) != _MAGIC:
            raise RecordingCorrupt(f"{where}: the file does not begin like Parquet; repair() sets such rows aside")
        for name, chunk in chunks.items():
            if _checksum.crc32(fetched.at(*self.footer.ranges[chunk])) != self.footer.crcs[chunk]:
                raise RecordingCorrupt(
                    f"{where}: column {name} does not pass its checksum; repair() sets such rows aside"
                )
        texts = [f.name for f in SCHEMA if pa.types.is_string(f.type)] if self.dictionaries else None

        def decoded(threads: bool = True, **options: bool) -> pa.Table:
            source = pa.PythonFile(fetched, "r")
            with pq.ParquetFile(source, metadata=self.footer.metadata, read_dictionary=texts, **options) as file:
                return file.read_row_group(index, columns=wanted, use_threads=threads)

        try:
            table = decoded()
        except pa.ArrowException:  # the bytes are sound: there is no thread to be had
            table = decoded(threads=False, pre_buffer=False)
        return [with_columns(batch, columns) for batch in table.select(wanted).to_batches()]

    def stats(self) -> list[TopicStats]:
        return self.footer.seal.topics

    def close(self) -> None:
        self._source.close()


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges with little between them as one: a request costs more than a few bytes that are not wanted."""
    joined: list[tuple[int, int]] = []
    for offset, size in sorted(ranges):
        before, length = joined[-1] if joined else (0, -1)
        if length >= 0 and offset - (before + length) <= _NEAR_BYTES:
            joined[-1] = (before, max(length, offset + size - before))
        else:
            joined.append((offset, size))
    return joined


# Spans that pyarrow was given. Its threads let go of one a moment after the call that read it has returned, and take
# the GIL for that: a thread that comes after the interpreter has ended aborts the process.
_lent: dict[int, weakref.ref[memoryview]] = {}  # by id, since a view's hash is that of its bytes


@atexit.register
def _until_given_back(patience_s: float = 2.0) -> None:
    end_s = time.monotonic() + patience_s
    while _lent and time.monotonic() < end_s:
        time.sleep(0.001)


class _Fetched(io.RawIOBase):
    """Some spans of a file, for pyarrow to read as if they were the file."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0
        self._spans: list[tuple[int, memoryview]] = []

    def add(self, offset: int, data: bytes) -> None:
        self._spans.append((offset, memoryview(data)))

    def at(self, offset: int, size: int) -> memoryview:
        """Those bytes, without a copy; fewer where the file was too short."""
        for begin, data in self._spans:
            if begin <= offset and offset + size <= begin + len(data):
                return data[offset - begin : offset - begin + size]
        return memoryview(b"")

    def read_buffer(self, size: int) -> memoryview:
        """What pyarrow calls in place of `read`."""
        found = self.at(self._at, size)
        self._at += len(found)
        key = id(found)
        _lent[key] = weakref.ref(found, lambda _: _lent.pop(key, None))
        return found

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + (self._size if whence == os.SEEK_END else self._at if whence == os.SEEK_CUR else 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True
