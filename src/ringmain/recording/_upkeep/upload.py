"""`upload()`: what a recorder could not upload, without recording."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ringmain.errors import RecordingCorrupt, RecordingError, RecordingNotFound
from ringmain.recording._meta import read_meta
from ringmain.recording._segment.sealer import seal_segment, tidy
from ringmain.recording._segment.store import Store, shown
from ringmain.recording._upkeep import uploads
from ringmain.recording._upkeep.lock import DirectoryLock


def upload(path: str | Path, storage_options: Mapping[str, str] | None = None) -> int:
    """Seal and upload what a recorder left in its directory, to the recording's `sealed_uri`; returns how many segments
    were uploaded. Takes the directory's lock: a recorder that runs uploads by itself. A damaged segment stays where it
    is, for `Recording.repair()`."""
    store = Store.of(path, storage_options)
    if store.directory is None or read_meta(store) is None:
        raise RecordingNotFound(f"no recording at {path}: give the directory that a recorder wrote to")
    if not store.sealed_uri:
        raise ValueError(f"{path} has no sealed_uri: its segments stay in the directory")
    lock = DirectoryLock(store.directory)
    try:
        for number in tidy(store):
            try:
                seal_segment(store, number, sync=True)
            except RecordingCorrupt:
                continue
        uploads.begin(store, new=False, sync=True)
        uploads.upload_meta(store, sync=True)
        numbers = uploads.waiting(store)
        for number in numbers:
            uploads.upload_segment(store, number, sync=True)
        uploads.upload_incidents(store, sync=True)
    except RecordingError:
        raise
    except OSError as error:
        left = len(uploads.waiting(store))
        raise RecordingError(
            error.errno or 0,
            f"{shown(store.sealed_uri)} does not take the segments: {shown(' '.join(str(error).split()))}. {left} wait "
            f"in {store.directory}; run this again, or record there",
        ) from error
    finally:
        lock.release()
    return len(numbers)
