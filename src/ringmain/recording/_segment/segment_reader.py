"""Reading a growing segment: which batches are complete, where they are, and what is damaged.

Heads are read with `pread`, so that a file that changes meanwhile does no harm, and payloads are not read. Rows are
then read from a mapping, and only in blocks whose heads passed their checksum. The invariant owned here: no row is
handed out, and none is called torn, because of bytes that fail their checksum.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum
from ringmain.recording._format import ENVELOPE_COLUMNS, EXTENSION, SCHEMA, SEGMENT_VERSION, STORED
from ringmain.recording._segment.segment import (
    LATCHED_KEY,
    Damage,
    Segment,
    TopicStats,
    merge_stats,
    topic_stats,
    with_columns,
)
from ringmain.recording._segment.segment_writer import CONTINUATION, END_OF_STREAM, MARKER, PREFIX, Block

MAX_HEAD_BYTES = 1 << 20
MAX_SCHEMA_BYTES = 128 << 20  # with what was latched
_FIRST_READ_BYTES = 4096
_LINE = re.compile(
    rb"ringmain/%d head=([0-9a-f]{8}) id=([0-9a-f]{8}) segment=(\d{9}) row=(\d{12}) rows=(\d{10}) "
    rb"length=(\d{12}) data=(\d{12}) front=([0-9a-f]{8}) back=([0-9a-f]{8}) "
    rb"min=([+-]\d{19}) max=([+-]\d{19})" % SEGMENT_VERSION
)
_SCHEMA_LINE = re.compile(
    rb"ringmain/%d head=([0-9a-f]{8}) id=([0-9a-f]{8}) segment=(\d{9}) heads=(\d{7})" % SEGMENT_VERSION
)


class StreamSegment(Segment):
    """A growing segment, as far as it was complete when opened or last refreshed."""

    runs: list[Block]

    def __init__(self, path: Path, number: int) -> None:
        self.path, self.number, self.sealed = path, number, False
        self.runs = []
        self.end_row = 0  # the number of the next row: complete rows, if none is damaged
        self.finished = False  # the end mark is there
        self._holes: list[Damage] = []
        self._tail: Damage | None = None
        self._end = 0  # bytes up to here are accounted for
        self._id: bytes | None = None
        self._head_bytes = 0  # of every batch of this stream: all have the same columns and a line of the same width
        self._mapped: pa.Buffer | None = None
        self.refresh()

    @property
    def damage(self) -> list[Damage]:  # type: ignore[override]
        tail = self._tail
        return self._holes + ([tail] if tail is not None and not tail.torn else [])

    def torn(self) -> Damage | None:
        """The unfinished end, if there is one: a batch that is being written, or was when its recorder died."""
        return self._tail if self._tail is not None and self._tail.torn else None

    def refresh(self) -> int:
        """Find the batches that were added since; returns how many new rows there are."""
        before = self.end_row
        if self.finished:
            return 0
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            if self._end == 0:
                self._walk_schema(fd, size)
            while self._end < size and self._step(fd, size):
                pass
            self._tail = self._check_tail(fd, size - self._end)
        finally:
            os.close(fd)
        if self.runs and (self._mapped is None or self._mapped.size < self.runs[-1].end):
            # Not when rows are read: by then the stream may have been sealed and removed.
            self._mapped = map_stream(self.path)
        return self.end_row - before

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        if self._mapped is None:
            raise ValueError(f"{self.path} has been closed")
        batch = read_block(self._mapped, self.runs[index], self.number, self.schema, payload="payload" in columns)
        return [with_columns(batch, columns)]

    def stats(self) -> list[TopicStats]:
        merged: dict[tuple[str, int], TopicStats] = {}
        for _, batch in self.batches(columns=ENVELOPE_COLUMNS, on_damage=lambda _: None):
            merge_stats(merged, topic_stats(pa.Table.from_batches([batch])))
        return list(merged.values())

    def close(self) -> None:
        self._mapped = None

    def _check_tail(self, fd: int, left: int) -> Damage | None:
        """What is after the last whole batch. A write that was cut short leaves the beginning of a batch or of the end
        mark, and nothing else: then it is torn, or still being written. Anything else is damage."""
        if self.finished or left <= 0:
            return None
        torn = self._is_beginning(fd, left)
        reason = "never finished" if torn else "the last batch does not pass its checksum"
        return Damage(self.number, self.end_row, None, left, reason, torn=torn)

    def _is_beginning(self, fd: int, left: int) -> bool:
        if self._id is None:
            return left < _FIRST_READ_BYTES and not self.runs and _begins_schema(os.pread(fd, left, self._end), left)
        prefix = os.pread(fd, min(left, PREFIX.size), self._end)
        expected = PREFIX.pack(CONTINUATION, self._head_bytes - PREFIX.size)
        if prefix != expected[: len(prefix)]:
            return left < PREFIX.size and prefix == END_OF_STREAM[: len(prefix)]
        if left < self._head_bytes:
            return True
        head = _read_head(fd, self._end)
        block = self._parse(head, self._end) if head is not None else None
        return block is not None and block.row == self.end_row and block.bytes > left - self._head_bytes

    def _walk_schema(self, fd: int, size: int) -> None:
        head = _read_head(fd, 0, MAX_SCHEMA_BYTES)
        if head is not None:
            match = _SCHEMA_LINE.search(head)
            if match and int(match[3]) == self.number and _checksum.is_intact(head, MARKER):
                self._id, self._head_bytes, self._end = match[2], int(match[4]), len(head)
                schema = pa.ipc.read_schema(pa.py_buffer(head))
                self.latched = (schema.metadata or {}).get(LATCHED_KEY.encode(), b"")
                self.schema = STORED if EXTENSION.name in schema.names else SCHEMA
                return
        if self._resync(fd, size, "its opening does not pass its checksum"):
            self.schema = self._guessed_schema(fd, self.runs[0])

    def _guessed_schema(self, fd: int, block: Block) -> pa.Schema:
        """Where the opening cannot tell: the other one's batches have another number of columns."""
        head = os.pread(fd, block.head_bytes + block.bytes, block.offset)
        try:
            pa.ipc.read_record_batch(pa.ipc.read_message(pa.py_buffer(head)), STORED)
        except (pa.ArrowInvalid, OSError):
            return SCHEMA
        return STORED

    def _step(self, fd: int, size: int) -> bool:
        if self._end + PREFIX.size == size and os.pread(fd, PREFIX.size, self._end) == END_OF_STREAM:
            self.finished, self._end = True, size
            return False
        head = _read_head(fd, self._end)
        block = self._parse(head, self._end) if head is not None else None
        if block is None or block.row != self.end_row:
            return self._resync(fd, size, "the head of a batch does not pass its checksum")
        if block.end > size:
            return False  # still being written, or torn
        self._accept(block)
        return True

    def _accept(self, block: Block) -> None:
        self.runs.append(block)
        self.end_row = block.end_row
        self._end = block.end

    def _parse(self, head: bytes, offset: int) -> Block | None:
        match = _LINE.search(head)
        if match is None or int(match[3]) != self.number or (self._id is not None and match[2] != self._id):
            return None
        if not _checksum.is_intact(head, MARKER):
            return None
        row, rows, length, data = (int(match[i]) for i in (4, 5, 6, 7))
        return Block(
            row, rows, length, int(match[10]), int(match[11]),
            offset, len(head), data, int(match[8], 16), int(match[9], 16),
        )  # fmt: skip

    def _resync(self, fd: int, size: int, reason: str) -> bool:
        """Search for the next head that passes its checksum. Payloads may hold copies of other recordings, so it must
        have this stream's id, and a row number not below the next."""
        found = _find_head(fd, self._end, size, self)
        if found is None:
            return False
        self._holes.append(Damage(self.number, self.end_row, found.row, found.offset - self._end, reason))
        self._accept(found)
        return True


def _begins_schema(start: bytes, left: int) -> bool:
    """Is this what a recorder leaves that dies during its first write?"""
    if left < PREFIX.size:
        return start[:4] == b"\xff\xff\xff\xff"[:left]
    mark, length = PREFIX.unpack_from(start)
    return bool(mark == CONTINUATION and length > left - PREFIX.size)


def _read_head(fd: int, offset: int, most: int = MAX_HEAD_BYTES) -> bytes | None:
    first = os.pread(fd, _FIRST_READ_BYTES, offset)
    if len(first) < PREFIX.size:
        return None
    mark, length = PREFIX.unpack_from(first)
    total = PREFIX.size + length
    if mark != CONTINUATION or length <= 0 or total > most:
        return None
    head = first[:total] if total <= len(first) else os.pread(fd, total, offset)
    return head if len(head) == total else None


def _find_head(fd: int, start: int, size: int, segment: StreamSegment) -> Block | None:
    """The first complete block after `start`: search for the marker, then step back to the IPC prefix."""
    window, overlap = 1 << 22, len(MARKER)
    at = start
    while at < size:
        chunk = os.pread(fd, window + overlap, at)
        hit = chunk.find(MARKER)
        if hit < 0:
            at += window
            continue
        marker_at = at + hit
        lowest = max(start + (start == 0) * 8, marker_at - MAX_HEAD_BYTES)
        for offset in range(marker_at & ~7, lowest - 8, -8):
            if os.pread(fd, 4, offset) != b"\xff\xff\xff\xff":
                continue
            head = _read_head(fd, offset)
            block = segment._parse(head, offset) if head is not None else None
            if block is not None and block.row >= segment.end_row and block.end <= size:
                return block
            if marker_at - offset > _FIRST_READ_BYTES:
                break
        at = marker_at + 1
    return None


def map_stream(path: Path) -> pa.Buffer:
    """The bytes that the stream has now, mapped. The mapping exists as long as any batch read from it."""
    with pa.memory_map(str(path), "r") as source:
        return source.read_buffer()


def read_block(
    mapped: pa.Buffer, block: Block, segment: int, schema: pa.Schema, *, payload: bool = True
) -> pa.RecordBatch:
    """The rows of a block, without a copy. With `payload=False` the payloads are not read, and the batch has the other
    columns only. Raises RecordingCorrupt when a checksum does not match."""
    body_at = block.offset + block.head_bytes
    split = block.end - block.data_bytes
    view = memoryview(mapped)
    ok = _checksum.crc32(view[body_at:split]) == block.front_crc
    if ok and payload:
        ok = _checksum.crc32(view[split : block.end]) == block.back_crc
    if not ok:
        raise RecordingCorrupt(
            f"segment {segment:09d}: rows {block.row} to {block.end_row} do not pass their "
            "checksum; verify() lists all damage, repair() sets it aside"
        )
    message = pa.ipc.read_message(mapped.slice(block.offset, block.end - block.offset))
    batch = pa.ipc.read_record_batch(message, schema)
    return batch if payload else batch.select(schema.names[:-1])
