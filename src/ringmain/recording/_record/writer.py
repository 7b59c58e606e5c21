"""`RecordingWriter`: writes ring batches to a directory that survives a crash.

    append() ── gather ──► spool (thread) ──► growing stream ── full or old ──► sealer (thread) ──► Parquet
                                                                                    └─► retention

The invariants owned here: rows are numbered once, in the order of append(); when flush() returns, the kernel has
everything appended before, so the death of this process cannot lose it; and a stream is written by one process only:
after an error or a crash, recording goes on in a new segment.

A thread writes to the file while the next batch is prepared; the next call raises its errors. The writer has no timer:
the caller's loop calls `append()` and `tick()`, which flush, rotate and fsync what is due. So every error is raised in
the thread that can stop recording.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Literal, Self, get_args

import pyarrow as pa

from ringmain import _crash
from ringmain._recording import Spool
from ringmain.errors import RecordingCorrupt, RecordingError
from ringmain.recording import _checksum
from ringmain.recording._format import MAX_PAYLOAD_BYTES, MAX_SEGMENT, META, Position, Uploaded, schema_of, stream_name
from ringmain.recording._meta import NOT_KNOWN, MetaFile, Properties, TopicMeta, Uploads
from ringmain.recording._record import gather
from ringmain.recording._record.gather import Pending
from ringmain.recording._record.in_spool import InSpool, call_all
from ringmain.recording._record.latched_so_far import LatchedSoFar
from ringmain.recording._record.row_builder import RowBuilder, ring_batch
from ringmain.recording._segment.sealer import Sealer, tidy
from ringmain.recording._segment.segment_writer import SegmentWriter
from ringmain.recording._segment.store import Store, check_address, list_here, read_retired
from ringmain.recording._upkeep import uploads
from ringmain.recording._upkeep.lock import DirectoryLock
from ringmain.recording._upkeep.retention import finish_retiring, retire
from ringmain.recording._upkeep.uploads import Uploader

Fsync = Literal["never", "interval", "seal"]

_GATHER_BYTES = 1 << 20  # smaller batches are joined up to this: each batch written costs 0.15 ms and 1 KB extra
_GATHER_BATCHES = 1024


class RecordingWriter:
    """Records to a directory, new or continued. Use from one thread, with `with` or `close()`.

    leave_from_ns: what was published from here on is not too old for `keep_age_s`; an attribute too, which may move on.
    """

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
        leave_from_ns: int | None = None,
        sealed_uri: str = "",
        upload: Uploads | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        if fsync not in ("never", "interval", "seal"):
            raise ValueError(f"fsync={fsync!r}: choose 'never', 'interval' or 'seal'")
        if segment_bytes < 1 or segment_age_s <= 0 or flush_interval_s < 0:
            raise ValueError("segment_bytes and segment_age_s must be positive, flush_interval_s not negative")
        if upload not in (None, *get_args(Uploads)):
            raise ValueError(f"upload={upload!r}: choose 'all' or 'incidents'")
        self.path = Path(path)
        self._flush_interval_s, self._fsync = flush_interval_s, fsync
        self._segment_bytes, self._segment_age_s = segment_bytes, segment_age_s
        self._sync = fsync != "never"
        self._retire = functools.partial(
            retire, keep_bytes=keep_bytes, keep_age_s=keep_age_s, force=keep_force, sync=self._sync
        )
        self._retention = threading.Lock()
        self.leave_from_ns = leave_from_ns
        self._failed: RecordingError | None = None
        self._stream: SegmentWriter | None = None
        self._sealer: Sealer | None = None
        self._uploader: Uploader | None = None
        self._spool = Spool()
        self._in_spool = InSpool(self._spool)
        self._pending: list[Pending] = []
        self._pending_bytes = 0
        self._dirty = False  # has anything been written since the last flush?
        self._in_hand = 0  # rows of the current append() that are not pending yet
        self._damaged: list[int] = []
        self._flushed_at = self._opened_at = time.monotonic()
        self.rows = self.bytes = self.lost = 0  # appended so far
        with self._stopping_on_error("open"):
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(self.path)
        try:
            with self._stopping_on_error("open"):
                self._begin(recorder, sealed_uri, upload, storage_options or {})
        except BaseException:
            self._lock.release()
            raise

    def _begin(
        self, recorder: str | None, sealed_uri: str, upload: Uploads | None, storage_options: Mapping[str, str]
    ) -> None:
        check_address(sealed_uri)
        new = not (self.path / META).exists()
        if upload is not None and new and not sealed_uri:
            raise ValueError(f"upload={upload!r} needs a sealed_uri to upload to")
        self._meta = MetaFile(self.path, recorder, sealed_uri, upload)
        only_incidents = self._meta.upload == "incidents"
        options = tuple(storage_options.items())
        self._store = Store(self.path, self._meta.sealed_uri, options, self._meta.id, only_incidents)
        self._schema = schema_of(self._meta.content.format)
        self._builder = RowBuilder(self._meta.recorder, self._schema)
        unsealed = tidy(self._store)
        finish_retiring(Store(self.path))
        self._latched = LatchedSoFar(self._meta, self._builder)
        self._latched.recover(self._store)
        uploaded = uploads.begin(self._store, new=new, sync=self._sync) if self._store.sealed_uri else Uploaded("")
        taken = [ref.number + 1 for ref in list_here(self._store)]
        self._next = max([read_retired(self._store).first_segment, uploaded.next_segment, *taken])
        self._in_spool.position = Position(self._next, 0)
        self._meta.begin_session(self._next)
        self._meta.save(sync=self._sync)
        if self._store.sealed_uri:
            self._uploader = Uploader(self._store, sync=self._sync, after=self._uploaded)
        self._sealer = Sealer(self._store, sync=self._sync, after=self._sealed)
        for number in unsealed:
            self._sealer.submit(number)

    def _sealed(self, number: int) -> None:
        """Called by the sealer's thread."""
        if self._store.only_incidents:  # what is in the directory is kept as long as without a store
            self._retain(Store(self.path))
        if self._uploader is not None:
            self._uploader.look()
        else:
            self._retain(self._store)

    def _uploaded(self) -> None:
        """Called by the uploader's thread."""
        if self._store.only_incidents:
            finish_retiring(self._store, self._retention)
        else:
            self._retain(self._store)

    def _retain(self, store: Store) -> None:
        self._retire(store, leave_from_ns=self.leave_from_ns, while_counting=self._retention)

    def no_retention(self) -> contextlib.AbstractContextManager[object]:
        """While the block runs, no segment is counted as deleted, nor is one deleted that an incident pins then."""
        return self._retention

    def incidents_changed(self) -> None:
        """An incident's manifest has been written."""
        if self._uploader is not None:
            self._uploader.look()

    @property
    def recorder(self) -> str:
        """The recorder's name, as in the column `recorder`."""
        return self._meta.recorder

    @property
    def position(self) -> Position:
        """The position after the last row that is in the file."""
        return self._in_spool.position

    @property
    def busy(self) -> bool:
        """Is a batch being written?"""
        self._in_spool.note_written()
        return bool(self._in_spool)

    @property
    def segments_waiting(self) -> int:
        """Finished segments that are not sealed yet."""
        return self._sealer.waiting if self._sealer is not None else 0

    @property
    def uploads_waiting(self) -> int:
        """Sealed segments that are not at `sealed_uri` yet."""
        return self._uploader.waiting if self._uploader is not None else 0

    @property
    def upload_problem(self) -> str:
        """Why the last upload failed; it is tried again. Empty after one that did not."""
        return self._uploader.problem if self._uploader is not None else ""

    @property
    def damaged(self) -> list[int]:
        """Segments of an earlier recorder that fail their checksums: `Recording.repair()` handles them."""
        return list(self._sealer.damaged) if self._sealer is not None else list(self._damaged)

    @property
    def store(self) -> Store:
        """Where the recording's files are."""
        return self._store

    @property
    def declared(self) -> dict[tuple[str, int], TopicMeta]:
        """The lives (topic, epoch) that this and earlier recorders declared."""
        return dict(self._meta.topics)

    def declare(
        self,
        topic: str,
        *,
        epoch: int,
        contract: str = "",
        schema: bytes = b"",
        first_seq: int = 0,
        properties: Properties = NOT_KNOWN,
    ) -> None:
        """Note a topic's contract and schema, what it was created with, and where recording of this life begins (the
        first declaration counts). They are in meta.json before the first of its rows is in a segment: the next flush
        writes it, once for all topics declared until then."""
        self._meta.declare(TopicMeta(topic, epoch, contract, schema, first_seq, properties))

    def latch(self, topic: str, epoch: int, batch: object) -> None:
        """A topic that keeps the last message of each kind had these when the recorder joined it. Incidents begin with
        them, from the next segment on; this begins one."""
        if self._latched.add_kept(topic, epoch, ring_batch(topic, batch)) and self._stream is not None:
            self.rotate()

    def keep_latched(self, topics: Set[str]) -> None:
        """These topics are there; of others nothing is latched any more."""
        self._latched.keep_only(topics)

    def carry_latched(self) -> None:
        """Have a segment that carries what is latched, also if no row follows."""
        self._check()
        with self._stopping_on_error("write"):
            if self._stream is None and self._latched and not self._pending:
                if self._meta.changed:
                    self._write_meta()
                self._open_stream()
                self._spool.wait()

    def append(
        self,
        topic: str,
        epoch: int,
        batch: object,
        *,
        record_time_ns: int | Sequence[int] | None = None,
        in_place: Sequence[memoryview] = (),
        written: Callable[[], None] | None = None,
    ) -> int:
        """Record a batch that a topic's `recv_batch` gave; returns its number of messages. No Python object is made for
        a message. `record_time_ns` is when the batch was taken (default: now), or a time for each message. The batch's
        memory is kept until the next flush. With `in_place`, the payloads are these, one after the other, and the
        batch's own column only gives their sizes; `written` is called, by this or a later call, once they are not
        needed any more. When this call raises, `written` may not have been called."""
        taken_ns = time.time_ns() if record_time_ns is None else record_time_ns
        ring = ring_batch(topic, batch)
        if not isinstance(taken_ns, int) and len(taken_ns) != len(ring):
            raise ValueError(f"topic {topic!r}: {len(taken_ns)} record times for {len(ring)} messages")
        self._in_hand = len(ring)
        try:
            self._check()
            first = 0
            for part in gather.split(ring) if not in_place else (ring,):
                recorded = gather.recorded(taken_ns, first, len(part))
                self._gather(Pending(topic, epoch, part, recorded, gather.size_of(part), in_place))
                first += len(part)
            if written is not None:
                self._tell_when_written(written)
        finally:
            self._in_hand = 0
        self.tick()
        return len(ring)

    def _gather(self, entry: Pending) -> None:
        if entry.in_place or self._pending_bytes + entry.size > MAX_PAYLOAD_BYTES:
            self._write_pending()
        self._pending.append(entry)
        self._pending_bytes += entry.size
        self._in_hand -= len(entry.ring)
        self.rows += len(entry.ring)
        self.bytes += entry.size
        if entry.in_place or self._pending_bytes >= _GATHER_BYTES or len(self._pending) >= _GATHER_BATCHES:
            self._write_pending()

    def _tell_when_written(self, written: Callable[[], None]) -> None:
        """Call `written` once everything appended so far is in the file."""
        if self._pending:
            last = self._pending[-1]
            self._pending[-1] = last._replace(written=(*last.written, written))
        elif self._in_spool:
            self._in_spool.tell_after_last(written)
        else:
            written()

    def tick(self) -> float:
        """Flush, fsync and rotate if due; raise errors of the background threads. Returns the seconds until the next
        call is due."""
        self._check()
        if time.monotonic() - self._flushed_at >= self._flush_interval_s:
            self._flush(wait=self._fsync == "interval" or self._flush_interval_s == 0)
        stream, now = self._stream, time.monotonic()
        if stream is not None and (stream.size >= self._segment_bytes or now - self._opened_at >= self._segment_age_s):
            self.rotate()
        return max(0.0, self._flushed_at + self._flush_interval_s - time.monotonic())

    def flush(self) -> None:
        """Write everything appended to the kernel; with fsync='interval', to the disk."""
        self._check()
        self._flush(wait=True)

    def _flush(self, *, wait: bool) -> None:
        """Without `wait`, the spool may still be writing when this returns: at most three batches."""
        self._flushed_at = time.monotonic()
        if self._meta.changed:
            with self._stopping_on_error("describe a topic in"):
                self._write_meta()
        if not self._pending and not self._dirty and not self._in_spool:
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
        """Wait until everything given to the spool is in the file. Returns at once after an error."""
        if self._failed is None:
            with self._stopping_on_error("write"):
                self._spool.wait()
            self._in_spool.note_written()

    def rotate(self) -> None:
        """Finish the current segment and have it sealed; the next row opens a new one."""
        self.flush()
        if self._stream is not None:
            stream, self._stream = self._stream, None
            with self._stopping_on_error("finish"):
                stream.finish()
                self._in_spool.position = Position(self._next, 0)
                _crash.point("seal: stream finished, not sealed")
                assert self._sealer is not None
                self._sealer.submit(stream.segment)

    def close(self) -> None:
        """Flush, seal, and unlock the directory. Safe to call twice, and after an error."""
        try:
            if self._failed is None and self._lock.held:
                self.rotate()
        finally:
            self.abandon()

    def _let_go(self) -> None:
        """Close the file as it is, and call what waits for batches to be written: they are not needed any more."""
        if self._stream is not None:
            self._stream.abandon()
            self._stream = None
        self._in_spool.note_written()
        left = [*self._in_spool.clear(), *(call for entry in self._pending for call in entry.written)]
        self._pending, self._pending_bytes = [], 0
        call_all(left)

    def abandon(self) -> None:
        """Unlock the directory without flushing, as after a crash. Segments that wait to be sealed are sealed first."""
        self._let_go()
        sealer, self._sealer = self._sealer, None
        # After an error that was raised, one of the sealer's only follows from it.
        quiet = contextlib.suppress(RecordingError) if self._failed is not None else contextlib.nullcontext()
        try:
            if sealer is not None:
                with quiet, self._stopping_on_error("seal"):
                    sealer.close()
                self._damaged = sealer.damaged
                if self._uploader is not None:
                    self._uploader.close()
        finally:
            self._lock.release()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._sealer is None:
            raise ValueError(f"the recording at {self.path} is closed")
        with self._stopping_on_error("seal"):
            self._sealer.check()
        self._in_spool.note_written()
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
        """Write the first `count` pending batches as one; they stay pending until the spool has them."""
        if self._meta.changed:
            self._write_meta()
        if self._stream is None:
            self._open_stream()
        assert self._stream is not None
        rows = gather.join(self._pending[:count], self._builder)
        in_place = self._pending[0].in_place if count == 1 else ()
        number = self._stream.write(rows.batch, rows.min_ns, rows.max_ns, in_place)
        calls = [call for entry in self._pending[:count] for call in entry.written]
        then = Position(self._stream.segment, self._stream.rows)
        self._in_spool.add(number, rows.batch.num_rows, then, calls)
        self._latched.add(self._pending[:count], rows.batch, in_place)
        del self._pending[:count]
        self._in_spool.note_written()
        self.lost += rows.lost
        self._dirty = True
        if _crash.is_next("record: batch written, caller not told"):
            self._spool.wait()
        _crash.point("record: batch written, caller not told")

    def _open_stream(self) -> None:
        if self._next > MAX_SEGMENT:
            raise RecordingCorrupt(f"{self.path} has used all its {MAX_SEGMENT + 1} segment numbers; start a new one")
        self._stream = SegmentWriter(
            self.path / stream_name(self._next), self._next, self._spool, self._latched.carried(), self._schema
        )
        self._in_spool.position = Position(self._next, 0)
        if self._fsync == "interval":
            _checksum.sync_directory(self.path)
        self._next += 1
        self._opened_at = time.monotonic()

    def _write_meta(self) -> None:
        self._meta.save(sync=self._sync)
        if self._uploader is not None:
            self._uploader.meta_changed()

    @contextlib.contextmanager
    def _stopping_on_error(self, doing: str) -> Iterator[None]:
        """Turn an error of the operating system into one that says what is lost and what is not; recording stops."""
        try:
            yield
        except (RecordingError, BlockingIOError):
            raise
        except (OSError, MemoryError, pa.ArrowException) as error:
            with contextlib.suppress(OSError, MemoryError):
                self._spool.wait()
            self._in_spool.note_written()
            unwritten = self._in_hand + sum(len(entry.ring) for entry in self._pending) + self._in_spool.rows
            code = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
            reason = os.strerror(code) if isinstance(code, int) else str(error)
            self._failed = RecordingError(
                code or 0,
                f"could not {doing} the recording at {self.path}: {reason}. Recording has stopped; {unwritten} "
                "messages that were taken are not in it, all that was flushed before is, and stays readable",
            )
            self._let_go()
            raise self._failed from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
