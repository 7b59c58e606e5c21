"""Verify and repair: check every byte of a recording, and set aside what is damaged.

The invariants owned here: `verify()` changes nothing; `repair()` moves what cannot be read to DIR/damaged instead of
deleting it, and rows that can be read keep their numbers.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs as pafs

from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum
from ringmain.recording._format import (
    CONSUMERS,
    DAMAGED,
    INCIDENTS,
    META,
    RETIRED,
    UPLOADED,
    Consumer,
    Retired,
    Uploaded,
    sealed_name,
    stream_name,
)
from ringmain.recording._meta import Meta, new_meta
from ringmain.recording._segment.parquet_segment import write_sealed
from ringmain.recording._segment.sealer import publish_sealed, seal_segment, tidy
from ringmain.recording._segment.segment import Damage
from ringmain.recording._segment.segment_reader import StreamSegment
from ringmain.recording._segment.store import SegmentRef, Store, list_segments
from ringmain.recording._upkeep.incidents import Incident
from ringmain.recording._upkeep.lock import DirectoryLock, is_locked


@dataclass
class Report:
    """What was checked, what is damaged, and, after a repair, what was done about it."""

    segments: int = 0
    rows: int = 0
    damage: list[Damage] = field(default_factory=list)
    files: list[str] = field(default_factory=list)  # damaged files other than segments
    done: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Is every flushed row readable? A torn end is not damage: no flushed row is in it."""
        return not self.files and all(damage.torn for damage in self.damage)

    @property
    def rows_lost(self) -> int | None:
        """How many rows cannot be read; None if that is not known."""
        ends = [(d.end_row, d.row) for d in self.damage if not d.torn]
        return sum(end - row for end, row in ends if end is not None) if all(e is not None for e, _ in ends) else None

    def __str__(self) -> str:
        lines = [f"{self.segments} segments, {self.rows} rows: " + ("intact" if self.ok else "DAMAGED")]
        lines += [str(damage) for damage in self.damage]
        lines += [f"{name} does not pass its checksum" for name in self.files]
        return "\n".join(lines + self.done)


def verify(store: Store, *, recorder_is_gone: bool = False) -> Report:
    """Read and check everything. While a recorder runs, an unfinished end is not reported: it is being written."""
    report = Report()
    alive = not recorder_is_gone and store.directory is not None and is_locked(store.directory)
    for ref in list_segments(store):
        rows, damage = check_segment(ref, alive=alive)
        report.segments += 1
        report.rows += rows
        report.damage += damage
    report.files = _bad_files(store)
    return report


def check_segment(ref: SegmentRef, *, alive: bool) -> tuple[int, list[Damage]]:
    """(readable rows, damage) of one segment."""
    found: list[Damage] = []
    try:
        segment = ref.open()
    except RecordingCorrupt as error:
        return 0, [Damage(ref.number, 0, None, ref.size_bytes, str(error))]
    try:
        rows = sum(len(batch) for _, batch in segment.batches(on_damage=found.append))
        if isinstance(segment, StreamSegment) and not alive:
            torn = segment.torn()
            if torn is not None:
                found.append(torn)
    finally:
        segment.close()
    return rows, found


def _bad_files(store: Store) -> list[str]:
    kinds: list[tuple[str, type[Meta | Retired | Uploaded | Consumer | Incident]]] = [
        (META, Meta), (RETIRED, Retired), (UPLOADED, Uploaded)
    ]  # fmt: skip
    if store.directory is not None and (store.directory / CONSUMERS).is_dir():
        names = sorted(path.name for path in (store.directory / CONSUMERS).glob("*.json"))
        kinds += [(f"{CONSUMERS}/{name}", Consumer) for name in names]
    kinds += [(f"{INCIDENTS}/{name}", Incident) for name in store.names_in(INCIDENTS)]
    bad = []
    for name, kind in kinds:
        data = store.read(name)
        if (data is None and name == META) or (data is not None and _checksum.load_json(data, kind) is None):
            bad.append(name)
    return bad


def repair(store: Store) -> Report:
    """Set aside what cannot be read and seal the rest. Takes the directory's lock, so no recorder may run."""
    if store.directory is None:
        raise ValueError(f"repair the recording in its own directory, not through {store.sealed_uri}")
    lock = DirectoryLock(store.directory)
    try:
        report = verify(store, recorder_is_gone=True)
        tidy(store)
        for ref in list_segments(store):
            mine = [damage for damage in report.damage if damage.segment == ref.number]
            if not ref.sealed:
                _repair_stream(store, ref, report, damaged=any(not d.torn for d in mine))
            elif mine:
                _repair_sealed(store, ref, report)
        _repair_meta(store, report)
    finally:
        lock.release()
    return report


def _repair_stream(store: Store, ref: SegmentRef, report: Report, *, damaged: bool) -> None:
    assert store.directory is not None
    if damaged:
        _keep_copy(store.directory, ref.stream_path, report)
    left_out: list[Damage] = []
    stats = seal_segment(store, ref.number, sync=True, on_damage=left_out.append)
    report.done.append(f"{stream_name(ref.number)}: sealed {stats.rows if stats is not None else 0} rows")


def _repair_sealed(store: Store, ref: SegmentRef, report: Report) -> None:
    assert store.directory is not None
    filesystem, path = ref.location()
    name = sealed_name(ref.number)
    set_aside = store.directory / DAMAGED / name
    set_aside.parent.mkdir(exist_ok=True)
    pafs.copy_files(path, str(set_aside), filesystem, pafs.LocalFileSystem())
    try:
        segment = ref.open()
    except RecordingCorrupt:
        filesystem.delete_file(path)
        report.done.append(f"{name}: no row could be read; moved to {DAMAGED}/")
        return
    temporary = store.directory / f"{name}.tmp"
    left_out: list[Damage] = []
    kept = segment.batches(on_damage=left_out.append)
    stats = write_sealed(temporary, ref.number, kept, segment.end_row, schema=segment.schema)
    segment.close()
    if isinstance(filesystem, pafs.LocalFileSystem) and path == str(store.directory / name):
        publish_sealed(store, temporary, ref.number, sync=True)
    else:
        with open(temporary, "rb") as source:
            store.upload(ref.stored_name, source.read, sync=True)
        temporary.unlink()
    report.done.append(f"{name}: kept {stats.rows} rows of {stats.end_row}; the damaged file is in {DAMAGED}/")


def _keep_copy(directory: Path, path: Path, report: Report) -> None:
    target = directory / DAMAGED / path.name
    target.parent.mkdir(exist_ok=True)
    target.unlink(missing_ok=True)
    os.link(path, target)
    report.done.append(f"{path.name}: the damaged file is kept in {DAMAGED}/")


def _repair_meta(store: Store, report: Report) -> None:
    assert store.directory is not None
    for name in report.files:
        path = store.directory / name
        if path.exists():
            target = store.directory / DAMAGED / path.name
            target.parent.mkdir(exist_ok=True)
            os.replace(path, target)
            report.done.append(f"{name}: moved to {DAMAGED}/")
        if name == META:
            _checksum.replace_file(path, _checksum.dump_json(_rebuild_meta(store)), sync=True)
            report.done.append(f"{META}: made new; the topics' contracts and schemas are not in it")


def _rebuild_meta(store: Store) -> Meta:
    """A new meta.json; the recorder's name is in every row."""
    for ref in list_segments(store):
        try:
            segment = ref.open()
        except RecordingCorrupt:
            continue
        for _, batch in segment.batches(0, 1, ["recorder"], on_damage=lambda _: None):
            return new_meta(batch.column("recorder")[0].as_py(), store.sealed_uri)
    return new_meta(None, store.sealed_uri)
