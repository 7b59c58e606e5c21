"""Writing a growing segment: an Arrow IPC stream in which every message has its own checksums.

Each record batch carries, in its IPC custom metadata, a *head line* of fixed width:

    ringmain/1 head=HHHHHHHH id=HHHHHHHH segment=N row=N rows=N length=N data=N
        front=HHHHHHHH back=HHHHHHHH min=N max=N        (one line, a space between fields)

`head` is a stamp over the whole head (IPC prefix and flatbuffer). The body is checked in two parts: `back` covers the
payload bytes (the last `data` bytes of the body), `front` all the rest, so the envelope can be checked without reading
payloads. The heads alone give the number of complete rows.

The invariant owned here: bytes once written never change and the file never gets shorter. A mapped file that shrinks is
a SIGBUS in its readers, so a torn end stays where it is, and readers stop before it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from ringmain import _crash, _names
from ringmain._recording import Spool
from ringmain.recording import _checksum
from ringmain.recording._format import SEGMENT_VERSION, STORED
from ringmain.recording._segment.segment import Run, with_latched

MARKER = b"ringmain/%d head=" % SEGMENT_VERSION
PREFIX = struct.Struct("<Ii")  # continuation mark, bytes of metadata: how every IPC message begins
CONTINUATION = 0xFFFFFFFF
END_OF_STREAM = PREFIX.pack(CONTINUATION, 0)

HEAD_LINE = (
    f"ringmain/{SEGMENT_VERSION} "
    "head={head} id={id} segment={segment:09d} row={row:012d} rows={rows:010d} length={length:012d} "
    "data={data:012d} front={front:08x} back={back:08x} min={min_ns:+020d} max={max_ns:+020d}"
)

_AHEAD_LEAST, _AHEAD_MOST = 1 << 20, 32 << 20  # smaller files get no blocks in advance, larger ones up to this

_Piece: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"


def _head_line(**values: object) -> bytes:
    return HEAD_LINE.format(head="00000000", **values).encode()


_BLANK_LINE = _head_line(id="0" * 8, segment=0, row=0, rows=0, length=0, data=0, front=0, back=0, min_ns=0, max_ns=0)


@dataclass(frozen=True, slots=True)
class Block(Run):
    """One record batch of a stream: a run whose `bytes` are those of its body, where they are, and their checksums."""

    offset: int
    head_bytes: int
    data_bytes: int
    front_crc: int
    back_crc: int

    @property
    def end(self) -> int:
        return self.offset + self.head_bytes + self.bytes


class SegmentWriter:
    """Appends batches to one growing segment. Not thread-safe; one writer per file."""

    def __init__(
        self, path: Path, segment: int, spool: Spool, latched: bytes = b"", schema: pa.Schema = STORED
    ) -> None:
        """`latched`: what the segment carries of what was latched before it (latched.py)."""
        self._schema = schema
        self.path, self.segment, self._spool = path, segment, spool
        self.rows = self.size = self._allocated = 0
        self._forks = _names.forks()
        self._id = os.urandom(4).hex()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._inode = os.fstat(self._fd).st_ino
        _crash.point("record: stream made, empty")
        try:
            self._pieces = _Pieces()
            self._ipc = pa.ipc.new_stream(pa.PythonFile(self._pieces, "w"), schema)
            self._ipc.write_batch(_sample(schema))  # pyarrow writes the schema with the first batch: discard both
            head_bytes = PREFIX.size + len(self._encode(_sample(schema))[2])
            self._write([_schema_message(schema, self._id, segment, head_bytes, latched)])
        except BaseException:
            self.abandon()
            raise

    def write(
        self, batch: pa.RecordBatch, min_ns: int, max_ns: int, in_place: Sequence[bytes | memoryview] = ()
    ) -> int:
        """Append one batch of the schema; it is in the file once the spool's `written` has reached the number returned.
        With `in_place`, these are the payloads instead of the batch's own, which must be as long. An error leaves a
        torn end."""
        pieces = self._encode(batch)
        head_bytes = PREFIX.size + len(pieces[2])
        # The payload is the last column and its bytes the last buffer, unless all are empty: then there is none.
        back_at = _last_buffer(pieces) if payload_bytes(batch.columns[-1]) else len(pieces)
        if in_place:
            pieces[back_at : back_at + 1] = in_place
        front = back = 0
        for piece in pieces[3:back_at]:
            front = _checksum.crc32(piece, front)
        for piece in pieces[back_at:]:
            back = _checksum.crc32(piece, back)
        used = sum(map(len, pieces))
        head = bytearray(b"".join(pieces[:3]))
        at = head.index(_BLANK_LINE)
        head[at : at + len(_BLANK_LINE)] = _head_line(
            id=self._id,
            segment=self.segment,
            row=self.rows,
            rows=batch.num_rows,
            length=used - head_bytes,
            data=sum(map(len, pieces[back_at:])),
            front=front,
            back=back,
            min_ns=min_ns,
            max_ns=max_ns,
        )
        at += len(MARKER)
        head[at : at + _checksum.DIGITS] = _checksum.hex_crc(_checksum.stamped_crc(head, at))
        number = self._write([head, *pieces[3:]])
        self.rows += batch.num_rows
        return number

    def is_in_place(self) -> bool:
        """Is this file still at its path? Not when the directory was deleted, moved or mounted over."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def finish(self) -> None:
        """Write the end mark and close."""
        try:
            self._write([END_OF_STREAM])
            self._spool.wait()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close without the end mark; what was written stays readable."""
        if self._fd >= 0:
            if self._forks == _names.forks():  # in a forked child the file is the parent's
                with contextlib.suppress(OSError):  # raised by the write, or by the wait for it
                    self._spool.wait()
                if self._allocated:
                    with contextlib.suppress(OSError):  # to its own size: frees the blocks beyond its end
                        os.ftruncate(self._fd, os.fstat(self._fd).st_size)
            os.close(self._fd)
            self._fd = -1

    def _encode(self, batch: pa.RecordBatch) -> list[_Piece]:
        """The IPC message as the pieces that pyarrow writes: mark, length, flatbuffer, then the batch's own buffers and
        the padding between them. No bytes are copied."""
        self._pieces.clear()
        self._ipc.write_batch(batch, custom_metadata={"ringmain": _BLANK_LINE})
        return self._pieces.take()

    def _write(self, pieces: list[_Piece]) -> int:
        total = sum(map(len, pieces))
        if _crash.is_next("record: batch half written"):
            self._spool.wait()
            os.write(self._fd, b"".join(pieces)[: total // 2])
        _crash.point("record: batch half written")
        to_allocate = self._to_allocate(total)
        self.size += total
        return self._spool.put(self._fd, pieces, to_allocate)

    def _to_allocate(self, needed: int) -> int:
        """For how many bytes to allocate blocks before so many are written: mostly none, and then for many."""
        if self.size + needed <= max(self._allocated, _AHEAD_LEAST):
            return 0
        more = needed + min(self.size, _AHEAD_MOST)
        self._allocated = self.size + more
        return more


class _Pieces(io.RawIOBase):
    """A file object that keeps references to what is written to it, without a copy."""

    def __init__(self) -> None:
        self._list: list[_Piece] = []

    def write(self, piece: Any) -> int:
        self._list.append(piece)
        return len(piece)

    def writable(self) -> bool:
        return True

    def clear(self) -> None:
        self._list.clear()

    def take(self) -> list[_Piece]:
        taken, self._list = self._list, []
        return taken


def _last_buffer(pieces: list[_Piece]) -> int:
    """The index of the last piece that is a column's own bytes, and not padding."""
    index = len(pieces) - 1
    while isinstance(pieces[index], bytes):
        index -= 1
    return index


@functools.cache
def _sample(schema: pa.Schema) -> pa.RecordBatch:
    """Made with the first segment and not at import: the first pa.array() imports pandas, which readers do not need."""
    values = (b"-" if pa.types.is_binary(f.type) else "-" if pa.types.is_string(f.type) else 0 for f in schema)
    arrays = [pa.array([value], f.type) for value, f in zip(values, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _schema_message(schema: pa.Schema, identity: str, segment: int, head_bytes: int, latched: bytes) -> bytes:
    line = MARKER + b"00000000 id=%s segment=%09d heads=%07d" % (identity.encode(), segment, head_bytes)
    message = bytearray(schema.with_metadata({"ringmain": line, **with_latched(latched)}).serialize())
    at = message.index(line) + len(MARKER)
    message[at : at + _checksum.DIGITS] = _checksum.hex_crc(_checksum.stamped_crc(message, at))
    return bytes(message)


def payload_bytes(column: pa.Array) -> int:
    """The bytes of all values of a binary column, from its offsets alone."""
    if len(column) == 0:
        return 0
    offsets = memoryview(column.buffers()[1]).cast("B").cast("i")
    return int(offsets[column.offset + len(column)] - offsets[column.offset])
