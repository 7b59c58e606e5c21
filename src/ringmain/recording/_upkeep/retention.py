"""Retention: which sealed segments may be deleted, and which consumers still need them.

A consumer that must not miss any row registers: a small file with the first position it still needs. The invariant
owned here: a segment that a registered consumer needs is deleted only by force, and deleted rows are counted first
(retired.json), so that a late reader learns exactly how many rows it has missed.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from pyarrow import fs as pafs

from ringmain import _crash
from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum
from ringmain.recording._format import (
    BEGINNING,
    CONSUMERS,
    RETIRED,
    Consumer,
    Position,
    Retired,
    consumer_path,
    parse_segment_name,
    sealed_name,
    stream_name,
)
from ringmain.recording._segment.parquet_segment import ParquetSegment
from ringmain.recording._segment.segment import newest_in
from ringmain.recording._segment.store import SegmentRef, Store, list_segments, read_retired
from ringmain.recording._upkeep.incidents import pinned_in


def register(directory: Path, name: str, position: Position = BEGINNING, *, sync: bool = False) -> None:
    """Register a consumer, or move it on: it needs no row before `position`."""
    path = consumer_path(directory, name)
    path.parent.mkdir(exist_ok=True)
    record = Consumer("", name, position.segment, position.row, time.time_ns())
    _checksum.replace_file(path, _checksum.dump_json(record), sync=sync)


def unregister(directory: Path, name: str) -> None:
    """Remove a consumer; segments are no longer kept for it."""
    consumer_path(directory, name).unlink(missing_ok=True)


def consumers(directory: Path) -> dict[str, Position]:
    """Each consumer's position. A file that fails its checksum counts as (0, 0), so that no segment is deleted."""
    found = {}
    folder = directory / CONSUMERS
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        record = _checksum.load_json(path.read_bytes(), Consumer)
        found[path.stem] = Position(record.segment, record.row) if record is not None else Position(0, 0)
    return found


def retire(
    store: Store,
    *,
    keep_bytes: int | None = None,
    keep_age_s: float | None = None,
    leave_from_ns: int | None = None,
    force: bool = False,
    sync: bool = False,
    now_ns: int | None = None,
    while_counting: AbstractContextManager[object] | None = None,
) -> list[int]:
    """Delete the oldest sealed segments that exceed `keep_bytes` or whose every message is older than `keep_age_s`;
    returns their numbers. What was published from `leave_from_ns` on is not too old: an incident may begin that wants
    it. The newest segment always stays, so that no number is used twice, and so does the file of one that an incident
    pins: it is counted as deleted, and only incidents have its rows. No incident may begin `while_counting`, which does
    not ask the store at `sealed_uri`. The caller holds the directory's lock."""
    if store.directory is None:
        raise ValueError(f"retention runs in the recorder's own directory, not in {store.sealed_uri}")
    while_counting = nullcontext() if while_counting is None else while_counting
    finish_retiring(store, while_counting)
    if keep_bytes is None and keep_age_s is None:
        return []
    listed = list_segments(store)
    held_from = min((p.segment for p in consumers(store.directory).values()), default=None)
    doomed: list[tuple[SegmentRef, int, int]] = []
    total = sum(ref.size_bytes for ref in listed)
    oldest_ns = (time.time_ns() if now_ns is None else now_ns) - int((keep_age_s or 0) * 1e9)
    oldest_ns = oldest_ns if leave_from_ns is None else min(oldest_ns, leave_from_ns)
    for ref in listed[:-1]:
        if not ref.sealed or (held_from is not None and ref.number >= held_from and not force):
            break
        try:
            segment = ref.open()
        except RecordingCorrupt:
            break  # its number of rows is not known before repair()
        rows, newest_ns = segment.end_row, newest_in(segment)
        segment.close()
        too_much = keep_bytes is not None and total > keep_bytes
        too_old = keep_age_s is not None and newest_ns < oldest_ns
        if not (too_much or too_old) or not isinstance(segment, ParquetSegment):
            break
        total -= ref.size_bytes
        doomed.append((ref, rows, newest_ns))
    if not doomed:
        return []
    retired = read_retired(store)
    for ref, rows, newest_ns in doomed:
        retired.rows += [0] * (ref.number - len(retired.rows)) + [rows]
        retired.newest_ns += [0] * (ref.number - len(retired.newest_ns)) + [newest_ns]
    retired.first_segment = doomed[-1][0].number + 1
    numbers = [ref.number for ref, _, _ in doomed]
    with while_counting:
        write_retired(store.directory, retired, sync=sync)
        _crash.point("retain: segments counted, not deleted")  # readers ignore them, the next recorder deletes
        pinned = pinned_in(store, numbers)
    _delete(store, set(numbers) - pinned)
    return numbers


def missed_rows(retired: Retired, position: Position) -> int:
    """How many rows from `position` on have been deleted."""
    rows = retired.rows[position.segment : retired.first_segment]
    return max(0, sum(rows) - position.row) if position.segment < retired.first_segment else 0


def write_retired(directory: Path, retired: Retired, *, sync: bool) -> None:
    _checksum.replace_file(directory / RETIRED, _checksum.dump_json(retired), sync=sync)


def finish_retiring(store: Store, while_counting: AbstractContextManager[object] | None = None) -> None:
    """Delete segments that a recorder that died had counted as deleted, or that no incident pins any more. No incident
    may begin `while_counting`."""
    first = read_retired(store).first_segment
    if first == 0:
        return
    if store.directory is not None and store.sealed_uri:
        finish_retiring(Store(store.directory), while_counting)
    filesystem, directory = store.filesystem()
    names = [i.base_name for i in filesystem.get_file_info(pafs.FileSelector(directory, allow_not_found=True))]
    parsed = [p for p in map(parse_segment_name, names) if p is not None]
    numbers = {one.number for one in parsed if one.sealed and one.number < first}
    with nullcontext() if while_counting is None else while_counting:
        pinned = pinned_in(store, numbers)
    _delete(store, numbers - pinned)


def _delete(store: Store, numbers: Collection[int]) -> None:
    filesystem, directory = store.filesystem()
    for number in sorted(numbers):
        with suppress(FileNotFoundError):
            filesystem.delete_file(f"{directory}/{SegmentRef(number, True, store, 0).stored_name}")
        if store.directory is not None:
            (store.directory / stream_name(number)).unlink(missing_ok=True)
            (store.directory / sealed_name(number)).unlink(missing_ok=True)
