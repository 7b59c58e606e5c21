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

import os
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum, _crash
from ringmain.recording._format import ENVELOPE_BYTES, ENVELOPE_COLUMNS, FORMAT_VERSION, SCHEMA, TABLE, sealed_name
from ringmain.recording._segment.segment import Run, Segment, TopicStats, merge_stats, time_ns_of, topic_stats

# The quotes keep a topic's name in the JSON beside it from looking like the marker: there they are escaped.
MARKER = b'ringmain/%d "tail"=' % FORMAT_VERSION
SEAL_KEY, STATS_KEY = "ringmain.seal", "ringmain.stats"
ROW_GROUP_BYTES = 64 << 20
ROW_GROUP_ROWS = 1 << 19
_LINE = re.compile(re.escape(MARKER) + rb"([0-9a-f]{8}) data=(\d{15}) chunks=((?:[0-9a-f]{8})*)")
_FOOTER = struct.Struct("<I4s")
_MAGIC = b"PAR1"
_DICTIONARY = [column.name for column in TABLE if column.encoding == "dictionary"]
_DELTA = {column.name: "DELTA_BINARY_PACKED" for column in TABLE if column.encoding == "delta"}


class SealStats(msgspec.Struct):
    """The JSON beside the seal line, in the footer."""

    segment: int
    end_row: int  # one more than the last row's number
    groups: list[tuple[int, int, int, int]]  # first row, rows, least and greatest publish time (ns)
    topics: list[TopicStats]

    @property
    def rows(self) -> int:
        return sum(group[1] for group in self.groups)


def write_sealed(path: Path, segment: int, blocks: Iterable[tuple[int, pa.RecordBatch]], end_row: int) -> SealStats:
    """Write `blocks` (number of first row, rows) as a sealed segment at `path`, a temporary name."""
    stats = SealStats(segment, end_row, [], [])
    topics: dict[tuple[str, int], TopicStats] = {}
    with pa.OSFile(str(path), "wb") as sink:
        writer = pq.ParquetWriter(
            sink,
            SCHEMA,
            compression="zstd",
            compression_level=1,
            use_dictionary=_DICTIONARY,
            column_encoding=_DELTA,
            write_statistics=list(ENVELOPE_COLUMNS),
            write_page_index=True,
            write_page_checksum=True,
        )
        try:
            for row, table in _row_groups(blocks):
                bounds = pc.min_max(time_ns_of(table)).as_py()
                stats.groups.append((row, table.num_rows, bounds["min"], bounds["max"]))
                merge_stats(topics, topic_stats(table))
                writer.write_table(table, row_group_size=max(1, table.num_rows))
                _crash.point("R5")  # [CRASH-R5] part of the Parquet file is written, under its temporary name
            stats.topics = list(topics.values())
            chunks = _checksum.BLANK * (len(stats.groups) * len(SCHEMA))
            line = MARKER + _checksum.BLANK + b" data=%015d chunks=" % 0 + chunks
            writer.add_key_value_metadata({SEAL_KEY: line, STATS_KEY: msgspec.json.encode(stats)})
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


class ParquetSegment(Segment):
    """A sealed segment, read through anything with pyarrow's random access."""

    def __init__(self, number: int, source: pa.NativeFile) -> None:
        self.number, self.sealed, self.damage = number, True, ()
        self._source = source
        try:
            crcs = self._check_tail()
            self._file = pq.ParquetFile(source)
            metadata = self._file.metadata
            self.seal = self._read_seal(metadata)
        except BaseException:
            source.close()
            raise
        self.end_row = self.seal.end_row
        row_bytes = ENVELOPE_BYTES + sum(topic.bytes for topic in self.seal.topics) // max(1, self.seal.rows)
        self.runs = [Run(row, rows, rows * row_bytes, least, most) for row, rows, least, most in self.seal.groups]
        self._ranges = _chunk_ranges(metadata)
        self._crcs = [int(crcs[i : i + 8], 16) for i in range(0, len(crcs), 8)]
        self._columns = {metadata.schema.column(i).name: i for i in range(metadata.num_columns)}

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        run = self.runs[index]
        for name in columns:
            chunk = index * len(SCHEMA) + self._columns[name]
            offset, size = self._ranges[chunk]
            if _checksum.crc32(self._source.read_at(size, offset)) != self._crcs[chunk]:
                raise RecordingCorrupt(
                    f"{sealed_name(self.number)}: rows {run.row} to {run.end_row}: "
                    f"column {name} does not pass its checksum; repair() sets such rows aside"
                )
        wanted = list(columns)
        batches: list[pa.RecordBatch] = self._file.read_row_group(index, columns=wanted).select(wanted).to_batches()
        return batches

    def stats(self) -> list[TopicStats]:
        return self.seal.topics

    def close(self) -> None:
        self._file.close()
        self._source.close()

    def _read_seal(self, metadata: Any) -> SealStats:
        name = sealed_name(self.number)
        try:
            seal = msgspec.json.decode(metadata.metadata[STATS_KEY.encode()], type=SealStats)
        except (KeyError, TypeError, msgspec.DecodeError) as error:
            raise RecordingCorrupt(f"{name}: its seal cannot be read: {error}") from error
        if seal.segment != self.number:
            raise RecordingCorrupt(f"{name} holds segment {seal.segment:09d}: was the file renamed?")
        return seal

    def _check_tail(self) -> bytes:
        """Check the footer before anything in it is used; returns the chunks' checksums as hex digits."""
        size = self._source.size()
        name = sealed_name(self.number)
        problem = f"{name}: its footer does not pass its checksum, so none of its rows can be trusted"
        if size < len(_MAGIC) + _FOOTER.size or self._source.read_at(len(_MAGIC), 0) != _MAGIC:
            raise RecordingCorrupt(problem)
        footer_bytes, magic = _FOOTER.unpack(self._source.read_at(_FOOTER.size, size - _FOOTER.size))
        if magic != _MAGIC or footer_bytes > size - _FOOTER.size - len(_MAGIC):
            raise RecordingCorrupt(problem)
        footer = self._source.read_at(footer_bytes, size - _FOOTER.size - footer_bytes)
        match = _LINE.match(footer, max(0, footer.rfind(MARKER)))
        data_end = int(match[2]) if match else size
        if match is None or not len(_MAGIC) <= data_end <= size - _FOOTER.size - footer_bytes:
            raise RecordingCorrupt(problem)
        tail = self._source.read_at(size - data_end, data_end)
        at = tail.rfind(MARKER) + len(MARKER)
        if tail[at : at + _checksum.DIGITS] != _checksum.hex_crc(_checksum.stamped_crc(tail, at)):
            raise RecordingCorrupt(problem)
        return bytes(match[3])
