"""The figures of a recording for `ringmain metrics`, read from its files. No lock is taken and no recorder notices."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from ringmain.recording._format import LOCK, sealed_name
from ringmain.recording._reader import Recording
from ringmain.recording._segment.store import SegmentRef, list_here, read_retired
from ringmain.recording._upkeep.lock import recorder_pid
from ringmain.recording._upkeep.retention import consumers
from ringmain.recording._upkeep.uploads import waiting

Figures = tuple[dict[str, str], dict[str, float]]  # labels, values


class RecordingFigures:
    """Reads the figures of one recording. The rows of sealed segments never change, and are counted once."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._sealed_rows: dict[int, int] = {}

    def read(self, lag_by_process: Mapping[str, float] = MappingProxyType({})) -> list[Figures]:
        """`lag_by_process`: the messages that the readers of a process have not read, by its pid."""
        recording = Recording(self._path, skip_damage=True)
        labels = {"recording": self._path}
        directory = recording.store.directory
        try:
            refs = recording.segments()
        except OSError:  # the store of its sealed segments does not answer: what is here is told
            refs = list_here(recording.store)
        retired = read_retired(recording.store)
        kept = recording.incidents() if directory is not None else []
        uploaded = {number: rows for number, rows in self._sealed_rows.items() if number >= retired.first_segment}
        counts = uploaded | {ref.number: self._rows_of(recording, ref) for ref in refs}
        values: dict[str, float] = {
            "ringmain_recording_rows_total": sum(retired.rows) + sum(counts.values()),
            "ringmain_recording_bytes": sum(ref.size_bytes for ref in refs),
            "ringmain_recording_segments": len(refs),
            "ringmain_recording_unsealed_segments": sum(not ref.sealed for ref in refs),
            "ringmain_recording_waiting_uploads": len(waiting(recording.store)) if directory is not None else 0,
            "ringmain_recording_incidents": len(kept),
            "ringmain_recording_incidents_open": sum(incident.is_open for incident in kept),
        }
        found: list[Figures] = [(labels, values)]
        if directory is None:
            return found
        sealed_at = [directory / sealed_name(ref.number) for ref in refs if ref.sealed]
        with suppress(ValueError, OSError):  # none is sealed, or they are elsewhere
            values["ringmain_recording_last_seal_timestamp_seconds"] = max(p.stat().st_mtime for p in sealed_at)
        room = os.statvfs(directory)
        values["ringmain_recording_disk_free_bytes"] = room.f_bavail * room.f_frsize
        running = _is_flocked(directory / LOCK)
        values["ringmain_recording_recorder_running"] = int(running)
        if running:
            values["ringmain_recording_lag_messages"] = lag_by_process.get(recorder_pid(directory), 0)
        for name, position in consumers(directory).items():
            left = sum(rows for number, rows in counts.items() if number >= position.segment)
            if position.segment in counts:
                left -= min(position.row, counts[position.segment])
            found.append(({**labels, "consumer": name}, {"ringmain_consumer_lag_rows": left}))
        return found

    def _rows_of(self, recording: Recording, ref: SegmentRef) -> int:
        if ref.number in self._sealed_rows:
            return self._sealed_rows[ref.number]
        with recording.opened(ref) as segment:
            rows = segment.end_row if segment is not None else 0
        if ref.sealed:
            self._sealed_rows[ref.number] = rows
        return rows


def _is_flocked(path: Path) -> bool:
    """Does a process have this lock? Asks the kernel's list: trying the lock would keep a recorder from starting."""
    try:
        inode = path.stat().st_ino
        locks = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return False
    return any(_is_lock_on(line.split(), inode) for line in locks)


def _is_lock_on(words: Sequence[str], inode: int) -> bool:
    return len(words) >= 6 and words[1] == "FLOCK" and words[5].rpartition(":")[2] == str(inode)
