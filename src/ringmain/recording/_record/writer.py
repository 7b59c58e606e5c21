"""Writing a recording: ring batches in, a crash-tolerant directory out.

    append() ── gather ──► spool (thread) ──► growing stream ── full or old ──► sealer (thread) ──► Parquet
                                                                                    └─► retention

The invariants owned here: rows are numbered once, in the order of append(); what flush() returned from is in
the kernel's hands, so that no death of this process can lose it; and a stream is written by one process only:
after an error or a crash, recording goes on in a new segment, never in the old one.

Writing to the file goes on in a thread while the next batch is prepared; what goes wrong there is raised by the
next call. The writer starts no clock of its own: whoever drains the topics calls `append()` and `tick()`, which flush,
rotate and fsync what is due. That keeps the recorder a loop, and every error in the hands of the one who can
stop.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

import pyarrow as pa

from ringmain.errors import RecordingCorrupt, RecordingError
from ringmain.recording import _checksum, _crash
from ringmain.recording._format import MAX_SEGMENT, META, RING_SCHEMA, Position, TopicMeta, stream_name
from ringmain.recording._meta import new_session, open_meta
from ringmain.recording._record.row_builder import Envelope, ring_batch
from ringmain.recording._record.spool import Spool
from ringmain.recording._segment.sealer import Sealer, tidy, upload
from ringmain.recording._segment.segment_writer import StreamWriter, payload_bytes
from ringmain.recording._segment.store import Store, list_segments, read_retired
from ringmain.recording._upkeep.lock import DirectoryLock
from ringmain.recording._upkeep.retention import finish_retiring, retire

DATA = RING_SCHEMA.get_field_index("data")
ENVELOPE_BYTES = 80  # of a row besides its payload, about
Fsync = Literal["never", "interval", "seal"]

_GATHER_BYTES = 1 << 20  # less than half of this is gathered: each batch written costs 0.15 ms and 1 KB besides
_GATHER_BATCHES = 1024
_MAX_BATCH_BYTES = 1 << 30  # a `binary` column counts its bytes in 31 bits


class _Pending(NamedTuple):
    """A batch that was taken from a ring and is not written yet."""

    topic: str
    epoch: int
    ring: pa.RecordBatch
    record_ns: int
    size: int
    in_place: Sequence[memoryview] = ()
    written: tuple[Callable[[], None], ...] = ()


class _UnderWay(NamedTuple):
    """What has been handed to the spool."""

    number: int
    rows: int
    then: Position
    written: list[Callable[[], None]]


class RecordingWriter:
    """Records into a directory, new or continued. Use from one thread, with `with` or `close()`."""

    def __init__(
        self,
        path: str | Path,
        *,
        recorder: str | None = None,
        flush_interval_s: float = 0.1,
        fsync: Fsync = "seal",
        segment_bytes: int = 256 << 20,
        segment_age_s: float = 3600.0,
        keep_bytes: int | None = None,
        keep_age_s: float | None = None,
        keep_force: bool = False,
        sealed_uri: str = "",
    ) -> None:
        if fsync not in ("never", "interval", "seal"):
            raise ValueError(f"fsync={fsync!r}: choose 'never', 'interval' or 'seal'")
        if segment_bytes < 1 or segment_age_s <= 0 or flush_interval_s < 0:
            raise ValueError("segment_bytes and segment_age_s must be positive, flush_interval_s not negative")
        self.path = Path(path)
        self._flush_interval_s, self._fsync = flush_interval_s, fsync
        self._segment_bytes, self._segment_age_s = segment_bytes, segment_age_s
        self._keep = (keep_bytes, keep_age_s, keep_force)
        self._failed: RecordingError | None = None
        self._stream: StreamWriter | None = None
        self._sealer: Sealer | None = None
        self._spool = Spool()
        self._under_way: deque[_UnderWay] = deque()
        self._pending: list[_Pending] = []
        self._pending_bytes = 0
        self._topics: dict[tuple[str, int], TopicMeta] = {}
        self._dirty = False  # has anything been written since the last flush?
        self._in_hand = 0  # rows that are being appended and not among the pending ones yet
        self._undeclared = False  # is there a topic that meta.json does not have yet?
        self._damaged: list[int] = []
        self._flushed_at = self._opened_at = time.monotonic()
        self.rows = self.bytes = self.lost = 0  # what this writer was given
        with self._stopping_on_error("open"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(self.path)
        try:
            with self._stopping_on_error("open"):
                self._begin(recorder, sealed_uri)
        except BaseException:
            self._lock.release()
            raise

    def _begin(self, recorder: str | None, sealed_uri: str) -> None:
        self._meta = open_meta(self.path, recorder, sealed_uri)
        self._topics = {(t.name, t.epoch): t for t in self._meta.topics}
        self._store = Store(self.path, self._meta.sealed_uri)
        self._envelope = Envelope(self._meta.recorder)
        unsealed = tidy(self._store)
        finish_retiring(self._store)
        taken = [ref.number for ref in list_segments(self._store)]
        self._next = max([read_retired(self._store).first_segment - 1, *taken]) + 1
        self._position = Position(self._next, 0)
        self._meta.sessions.append(new_session(self._next))
        self._write_meta()
        self._sealer = Sealer(self._store, sync=self._fsync != "never", after=self._retain)
        for number in unsealed:
            self._sealer.submit(number)

    @property
    def recorder(self) -> str:
        """Who records, as in the column of that name."""
        return self._meta.recorder

    @property
    def position(self) -> Position:
        """The position after the last row that is in the file."""
        return self._position

    @property
    def busy(self) -> bool:
        """Is something being written?"""
        self._note_written()
        return bool(self._under_way)

    @property
    def segments_waiting(self) -> int:
        """Finished segments that are not sealed yet."""
        return self._sealer.waiting if self._sealer is not None else 0

    @property
    def damaged(self) -> list[int]:
        """Segments that an earlier recorder left and that fail their checksums: `Recording.repair()` is for them."""
        return list(self._sealer.damaged) if self._sealer is not None else list(self._damaged)

    @property
    def store(self) -> Store:
        """Where the recording's files are."""
        return self._store

    @property
    def declared(self) -> dict[tuple[str, int], TopicMeta]:
        """The lives (topic, epoch) that have been declared, here and by the recorders before."""
        return dict(self._topics)

    def declare(self, topic: str, *, epoch: int, contract: str = "", schema: bytes = b"", first_seq: int = 0) -> None:
        """Note a topic's contract and schema, and where recording of this life begins (the first to say so is
        believed). They are in meta.json before the first of its rows is in a segment: it is written with the next
        flush, once for all topics declared until then."""
        known = self._topics.get((topic, epoch))
        entry = TopicMeta(topic, epoch, contract, schema, first_seq if known is None else known.first_seq)
        if known != entry:
            self._topics[topic, epoch] = entry
            self._undeclared = True

    def append(
        self,
        topic: str,
        epoch: int,
        batch: object,
        *,
        record_time_ns: int | None = None,
        in_place: Sequence[memoryview] = (),
        written: Callable[[], None] | None = None,
    ) -> int:
        """Record a batch that a topic's `recv_batch` gave; returns its number of messages. No Python object is made for
        a message. The batch's memory is kept until the next flush. With `in_place` the payloads are taken from there,
        one after the other, and the batch's own says only how long each is; `written` is called, by this or some later
        call of this writer's, once they are not needed any more. It need not have been when this call raises."""
        now_ns = time.time_ns() if record_time_ns is None else record_time_ns
        ring = ring_batch(topic, batch)
        self._in_hand = len(ring)
        try:
            self._check()
            for part in _parts(ring) if not in_place else (ring,):
                self._gather(_Pending(topic, epoch, part, now_ns, _size(part), in_place))
            if written is not None:
                self._tell_when_written(written)
        finally:
            self._in_hand = 0
        self.tick()
        return len(ring)

    def _gather(self, entry: _Pending) -> None:
        if entry.in_place or self._pending_bytes + entry.size > _MAX_BATCH_BYTES:
            self._write_pending()
        self._pending.append(entry)
        self._pending_bytes += entry.size
        self._in_hand -= len(entry.ring)
        self.rows += len(entry.ring)
        self.bytes += entry.size
        if entry.in_place or self._pending_bytes >= _GATHER_BYTES or len(self._pending) >= _GATHER_BATCHES:
            self._write_pending()

    def _tell_when_written(self, written: Callable[[], None]) -> None:
        """Once all that was appended so far is."""
        if self._pending:
            last = self._pending[-1]
            self._pending[-1] = last._replace(written=(*last.written, written))
        elif self._under_way:
            self._under_way[-1].written.append(written)
        else:
            written()

    def tick(self) -> float:
        """Do what is due: flush, fsync, rotate; raise what went wrong in the background. Returns the seconds
        until it should be called again, for the recorder's wait."""
        self._check()
        if time.monotonic() - self._flushed_at >= self._flush_interval_s:
            self._flush(wait=self._fsync == "interval" or self._flush_interval_s == 0)
        now = time.monotonic()
        stream = self._stream
        if stream is not None and (stream.size >= self._segment_bytes or now - self._opened_at >= self._segment_age_s):
            self.rotate()
        return max(0.0, self._flushed_at + self._flush_interval_s - time.monotonic())

    def flush(self) -> None:
        """Hand everything appended to the kernel; with fsync='interval', to the disk."""
        self._check()
        self._flush(wait=True)

    def _flush(self, *, wait: bool) -> None:
        """Unless it shall `wait`, the spool may still be at it: what is under way is a moment's, and bounded."""
        self._flushed_at = time.monotonic()
        if self._undeclared:
            with self._stopping_on_error("describe a topic in"):
                self._write_meta()
        if not self._pending and not self._dirty and not self._under_way:
            return
        self._write_pending()
        self._dirty = False
        if wait:
            self.settle()
        with self._stopping_on_error("write"):
            if self._stream is not None:
                if not self._stream.is_in_place():
                    raise FileNotFoundError(f"{self._stream.path} was deleted or moved away while being written")
                if self._fsync == "interval":
                    self._stream.sync()

    def settle(self) -> None:
        """Wait until what was handed over is in the file. After an error there is nothing to wait for."""
        if self._failed is None:
            with self._stopping_on_error("write"):
                self._spool.wait()
            self._note_written()

    def _note_written(self) -> None:
        written = self._spool.written
        while self._under_way and self._under_way[0].number <= written:
            done = self._under_way.popleft()
            self._position = done.then
            _call_all(done.written)

    def rotate(self) -> None:
        """Finish the current segment and let it be sealed; the next row opens a new one."""
        self.flush()
        if self._stream is not None:
            stream, self._stream = self._stream, None
            with self._stopping_on_error("finish"):
                stream.finish()
                self._position = Position(self._next, 0)
                _crash.point("R4")  # [CRASH-R4] the stream has its end mark, and nobody is sealing it
                assert self._sealer is not None
                self._sealer.submit(stream.segment)

    def close(self) -> None:
        """Flush, seal what there is, and let go of the directory. Safe to call twice, and after an error."""
        try:
            if self._failed is None and self._lock.held:
                self.rotate()
        finally:
            self._shut()

    def abandon(self) -> None:
        """Let go of the directory at once, sealing nothing and flushing nothing: as a crash would, but in
        order."""
        self._shut()

    def _let_go(self) -> None:
        """Close the file as it is. Whatever was to be written from where it lies is not needed any more."""
        if self._stream is not None:
            self._stream.abandon()
            self._stream = None
        self._note_written()
        left = [call for entry in self._under_way for call in entry.written]
        left += [call for entry in self._pending for call in entry.written]
        self._under_way.clear()
        self._pending, self._pending_bytes = [], 0
        _call_all(left)

    def _shut(self) -> None:
        self._let_go()
        sealer, self._sealer = self._sealer, None
        try:
            if sealer is not None:
                stopped_before = self._failed is not None
                try:
                    with self._stopping_on_error("seal"):
                        sealer.close()
                except RecordingError:
                    if not stopped_before:  # otherwise the first error has been told, and this one follows from it
                        raise
                self._damaged = sealer.damaged
        finally:
            self._lock.release()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._sealer is None:
            raise ValueError(f"the recording at {self.path} is closed")
        with self._stopping_on_error("seal"):
            self._sealer.check()
        self._note_written()
        if self._spool.failed:
            self.settle()  # raises it

    def _write_pending(self) -> None:
        with self._stopping_on_error("write"):
            # Joining copies, so a batch that is large by itself is not joined with what came before it.
            if len(self._pending) > 1 and self._pending[-1].size >= _GATHER_BYTES // 2:
                self._write_first(len(self._pending) - 1)
            if self._pending:
                self._write_first(len(self._pending))
            self._pending_bytes = 0

    def _write_first(self, count: int) -> None:
        """Write the first `count` pending batches as one; they stop pending only once the spool has them."""
        if self._undeclared:
            self._write_meta()
        if self._stream is None:
            self._open_stream()
        assert self._stream is not None
        wrapped = []
        for (topic, epoch), run in groupby(self._pending[:count], key=lambda p: (p.topic, p.epoch)):
            pieces = list(run)
            ring = pieces[0].ring if len(pieces) == 1 else pa.concat_batches([p.ring for p in pieces])
            wrapped.append(self._envelope.wrap(topic, epoch, ring, [(len(p.ring), p.record_ns) for p in pieces]))
        joined = wrapped[0][0] if len(wrapped) == 1 else pa.concat_batches([w[0] for w in wrapped])
        in_place = self._pending[0].in_place if count == 1 else ()
        number = self._stream.write(joined, min(w[1] for w in wrapped), max(w[2] for w in wrapped), in_place)
        tell = [call for entry in self._pending[:count] for call in entry.written]
        then = Position(self._stream.segment, self._stream.rows)
        self._under_way.append(_UnderWay(number, joined.num_rows, then, tell))
        del self._pending[:count]
        self._note_written()
        self.lost += sum(w[3] for w in wrapped)
        self._dirty = True
        if _crash.is_next("R3"):
            self._spool.wait()
        _crash.point("R3")  # [CRASH-R3] a batch is written, and nobody has been told

    def _open_stream(self) -> None:
        if self._next > MAX_SEGMENT:
            raise RecordingCorrupt(f"{self.path} has used up its {MAX_SEGMENT + 1} segment numbers; start a new one")
        self._stream = StreamWriter(self.path / stream_name(self._next), self._next, self._spool)
        self._position = Position(self._next, 0)
        if self._fsync == "interval":
            _checksum.sync_directory(self.path)
        self._next += 1
        self._opened_at = time.monotonic()

    def _retain(self) -> None:
        """Runs in the sealer's thread, after each seal."""
        keep_bytes, keep_age_s, force = self._keep
        if keep_bytes is not None or keep_age_s is not None:
            sync = self._fsync != "never"
            retire(self._store, keep_bytes=keep_bytes, keep_age_s=keep_age_s, force=force, sync=sync)

    def _write_meta(self) -> None:
        self._meta.topics = list(self._topics.values())
        data = _checksum.dump_json(self._meta)
        # [CRASH-R8] the new meta.json is written under its temporary name: the old one still counts
        _checksum.replace_file(
            self.path / META, data, sync=self._fsync != "never", before_rename=lambda: _crash.point("R8")
        )
        if self._meta.sealed_uri:
            pieces = iter([data, b""])
            upload(Store(self.path, self._meta.sealed_uri), META, lambda _: next(pieces))
        self._undeclared = False

    @contextlib.contextmanager
    def _stopping_on_error(self, doing: str):  # type: ignore[no-untyped-def]
        """Turn what the operating system says into an error that says what is lost and what is not."""
        try:
            yield
        except RecordingError:
            raise
        except (OSError, pa.ArrowException) as error:
            if isinstance(error, BlockingIOError):
                raise
            with contextlib.suppress(OSError):
                self._spool.wait()
            self._note_written()
            unwritten = self._in_hand + sum(len(entry.ring) for entry in self._pending)
            unwritten += sum(entry.rows for entry in self._under_way)
            code = getattr(error, "errno", None)
            reason = os.strerror(code) if isinstance(code, int) else str(error)
            self._failed = RecordingError(
                code or 0,
                f"could not {doing} the recording at {self.path}: {reason}. Recording has stopped; "
                f"{unwritten} messages that were taken are not in it, all that was flushed before is, "
                "and stays readable",
            )
            self._let_go()
            raise self._failed from error

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _size(ring: pa.RecordBatch) -> int:
    return payload_bytes(ring.column(DATA)) + len(ring) * ENVELOPE_BYTES


def _parts(ring: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Its rows in pieces that a batch can hold."""
    if _size(ring) > _MAX_BATCH_BYTES and len(ring) > 1:
        half = len(ring) // 2
        yield from _parts(ring.slice(0, half))
        yield from _parts(ring.slice(half))
    elif len(ring):
        yield ring


def _call_all(calls: Sequence[Callable[[], None]]) -> None:
    """One that raises does not keep the others from being called."""
    with contextlib.ExitStack() as stack:
        for call in reversed(calls):
            stack.callback(call)
