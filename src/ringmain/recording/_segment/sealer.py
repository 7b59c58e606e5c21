"""The sealer: turns a finished stream into a sealed segment, in the background, while recording goes on.

    read the stream back and check it -> NUMBER.parquet.tmp -> (fsync) -> rename to NUMBER.parquet -> remove the stream

The invariant owned here: at least one complete copy of the segment exists at every moment, and readers use the sealed
one as soon as it has its name. The sealed rows are those read back from disk, not those in memory.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from pathlib import Path

from ringmain import _crash
from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum
from ringmain.recording._format import sealed_name, stream_name
from ringmain.recording._segment.parquet_segment import SealStats, write_sealed
from ringmain.recording._segment.segment import Damage
from ringmain.recording._segment.segment_reader import StreamSegment
from ringmain.recording._segment.store import Store, list_here


def seal_segment(
    store: Store, number: int, *, sync: bool, on_damage: Callable[[Damage], None] | None = None
) -> SealStats | None:
    """Seal one finished stream. None when it has no rows and
    carries nothing: then it is only removed. A damaged stream is left as it is
    and raises RecordingCorrupt, unless `on_damage` receives what is left out. The caller holds the lock."""
    assert store.directory is not None
    stream = store.directory / stream_name(number)
    segment = StreamSegment(stream, number)
    temporary = store.directory / (sealed_name(number) + ".tmp")
    stats = None
    if segment.damage and on_damage is None:
        raise RecordingCorrupt(f"{stream} is damaged and was not sealed: {segment.damage[0]}")
    if segment.end_row or segment.latched:
        try:
            stats = write_sealed(
                temporary,
                number,
                segment.batches(on_damage=on_damage),
                segment.end_row,
                segment.latched,
                segment.schema,
            )
            if sync:
                _sync_file(temporary)
        except BaseException:
            segment.close()
            temporary.unlink(missing_ok=True)  # it may be what fills the disk
            raise
        _crash.point("seal: parquet written, not named")
        publish_sealed(store, temporary, number, sync=sync)
        _crash.point("seal: parquet named, stream kept")  # both files exist: readers use the sealed one
    segment.close()
    stream.unlink(missing_ok=True)
    return stats


def publish_sealed(store: Store, temporary: Path, number: int, *, sync: bool) -> None:
    """Give a sealed file its final name in this directory."""
    assert store.directory is not None
    os.replace(temporary, store.directory / sealed_name(number))
    if sync:
        _checksum.sync_directory(store.directory)


def tidy(store: Store) -> list[int]:
    """Clean up after a recorder that died; returns the streams that are still to be sealed."""
    assert store.directory is not None
    for leftover in store.directory.glob("*.tmp"):
        leftover.unlink(missing_ok=True)
    listed = list_here(store)
    for ref in listed:
        if ref.sealed:
            (store.directory / stream_name(ref.number)).unlink(missing_ok=True)
    return [ref.number for ref in listed if not ref.sealed]


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Sealer:
    """A thread that seals segments one after the other. An error stops it; `check()` raises the error."""

    def __init__(self, store: Store, *, sync: bool, after: Callable[[int], object]) -> None:
        self._store, self._sync, self._after = store, sync, after
        self._queue: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._error: Exception | None = None
        self.damaged: list[int] = []  # streams left as they are, for repair()
        self.waiting = 0
        self._thread = threading.Thread(target=self._run, name="ringmain-sealer", daemon=True)
        self._thread.start()

    def submit(self, number: int) -> None:
        self.waiting += 1
        self._queue.put(number)

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Seal the waiting segments, then stop. Ctrl-C ends the wait; the next recorder seals the rest."""
        self._queue.put(None)
        while self._thread.is_alive():
            self._thread.join(0.2)
        self.check()

    def _run(self) -> None:
        while (number := self._queue.get()) is not None:
            if self._error is None:
                try:
                    if seal_segment(self._store, number, sync=self._sync) is not None:
                        self._after(number)
                except RecordingCorrupt:
                    self.damaged.append(number)
                except Exception as error:
                    self._error = error
            self.waiting -= 1
