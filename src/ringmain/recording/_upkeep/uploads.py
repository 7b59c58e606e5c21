"""Uploads: sealed segments go from the recorder's directory to `sealed_uri`, in the background. While the store does
not answer they wait on disk, and recording goes on.

    N.parquet here -> all of it at sealed_uri -> uploaded.json -> remove N.parquet here
    the last segment of an incident that is over -> its manifest at sealed_uri

The invariants owned here: a sealed segment is in the directory until the store has given all of it back; no upload
replaces another recording's segment, because their names differ, by the recording's id; and a recorder needs nothing
from the store to start, because uploaded.json has the next segment's number, and the last message of each life that was
uploaded. A manifest at `sealed_uri` is of an incident that is there as a whole.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyarrow import fs as pafs

from ringmain.errors import RecordingCorrupt, RecordingError, RecordingNotFound
from ringmain.recording import _checksum
from ringmain.recording._format import INCIDENTS, MAX_SEGMENT, META, UPLOADED, Uploaded, UploadedLife, sealed_name
from ringmain.recording._meta import Meta, read_meta
from ringmain.recording._segment.parquet_segment import ParquetSegment
from ringmain.recording._segment.segment import newest_in
from ringmain.recording._segment.store import SegmentRef, Store, list_here, list_segments, shown
from ringmain.recording._upkeep.incidents import incidents_in

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
_PIECE = 1 << 20
_TIMES_KEPT = 1000  # of more segments than the window before a trigger has


class UploadRefused(RecordingError):
    """What is at `sealed_uri` is not this recording's. To try again does not help."""


def read_uploaded(store: Store) -> Uploaded | None:
    data = store.read(UPLOADED)
    return _checksum.load_json(data, Uploaded) if data is not None else None


def begin(store: Store, *, new: bool, sync: bool) -> Uploaded:
    """What has been uploaded. Of a recording whose uploaded.json is lost, the store is asked."""
    found = read_uploaded(store)
    if found is None:
        found = Uploaded("")
        for ref in [] if new else list_segments(store):
            if ref.sealed and not ref.waiting:
                _note(found, ref)
        _write(store, found, sync=sync)
    return found


def upload_segment(store: Store, number: int, *, sync: bool) -> None:
    """Move one sealed segment to `sealed_uri`. Raises an OSError when the store does not answer."""
    assert store.directory is not None
    here = store.directory / sealed_name(number)
    uploaded = read_uploaded(store) or Uploaded("")
    ref = SegmentRef(number, True, store, 0, waiting=True)
    _note(uploaded, ref)
    _refuse_address_of_another(store)
    filesystem, directory = store.filesystem()
    there = f"{directory}/{ref.stored_name}"
    if not _is_same(here, filesystem, there):  # a recorder that died after the upload leaves both
        if _is_intact(number, filesystem, there):
            raise UploadRefused(
                0, f"{shown(store.sealed_uri)} has another {ref.stored_name}: record to an address of its own"
            )
        with open(here, "rb") as source:
            store.upload(ref.stored_name, source.read, sync=sync)
        if not _is_same(here, filesystem, there):
            raise OSError(f"{shown(store.sealed_uri)} does not give back {ref.stored_name} as it was uploaded")
    _write(store, uploaded, sync=sync)
    here.unlink()


def upload_meta(store: Store, *, sync: bool) -> None:
    """Copy meta.json to `sealed_uri`, unless that is another recording's place."""
    data = store.read(META)
    if data is None or _checksum.load_json(data, Meta) is None:
        return
    _refuse_address_of_another(store)
    _upload_bytes(store, META, data, sync=sync)
    _refuse_address_of_another(store)  # which may have taken it in the same moment


def _upload_bytes(store: Store, name: str, data: bytes, *, sync: bool) -> None:
    pieces = iter([data])
    store.upload(name, lambda _: next(pieces, b""), sync=sync)


def waiting(store: Store) -> list[int]:
    """The sealed segments that are to be at `sealed_uri`, and are not yet."""
    if not store.sealed_uri:
        return []
    if not store.only_incidents:
        return [ref.number for ref in list_here(store) if ref.sealed]
    known = incidents_in(store)
    return [ref.number for ref in _all_here(store) if ref.sealed and any(one.pins(ref.number) for one in known)]


def upload_incidents(store: Store, *, sync: bool) -> None:
    """Upload the manifests of incidents all of whose segments are there, and remove those that were forgotten here."""
    assert store.directory is not None
    known = {incident.id: incident for incident in incidents_in(store)}
    uploaded = read_uploaded(store) or Uploaded("")
    here = [ref.number for ref in _all_here(store)]
    for forgotten in [id for id in uploaded.incidents if id not in known]:
        filesystem, directory = store.filesystem()
        with suppress(FileNotFoundError):
            filesystem.delete_file(f"{directory}/{_manifest(forgotten)}")
        uploaded.incidents.remove(forgotten)
        _write(store, uploaded, sync=sync)
    for incident in known.values():
        if incident.id in uploaded.incidents or incident.is_open or any(map(incident.pins, here)):
            continue
        _refuse_address_of_another(store)
        _upload_bytes(store, _manifest(incident.id), store.read(_manifest(incident.id)) or b"", sync=sync)
        uploaded.incidents.append(incident.id)
        _write(store, uploaded, sync=sync)


def _manifest(incident: str) -> str:
    return f"{INCIDENTS}/{incident}.json"


def _all_here(store: Store) -> list[SegmentRef]:
    """Also what retention left behind for an incident."""
    return list_here(replace(store, pinned=(0, MAX_SEGMENT + 1)))


class Uploader:
    """A thread that uploads what waits, one segment after the other. After an error it pauses, for longer each time."""

    def __init__(
        self, store: Store, *, sync: bool, after: Callable[[], object], first_pause_s: float = FIRST_PAUSE_S
    ) -> None:
        self._store, self._sync, self._after, self._first_pause_s = store, sync, after, first_pause_s
        self._wake = threading.Condition()
        self._numbers = waiting(store)
        self._meta_due, self._incidents_due, self._after_due, self._closing = True, True, True, False
        self.problem = ""
        """Why the last try failed; empty after one that did not."""
        self._thread = threading.Thread(target=self._run, name="ringmain-uploader", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._numbers)

    def look(self) -> None:
        """A segment has been sealed, or an incident has changed."""
        with self._wake:
            self._numbers = waiting(self._store)
            self._incidents_due = True
            self._wake.notify()

    def meta_changed(self) -> None:
        with self._wake:
            self._meta_due = True
            self._wake.notify()

    def close(self) -> None:
        """Stop when nothing waits, or when the next try fails. Ctrl-C ends the wait. The next recorder uploads what is
        left."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        while self._thread.is_alive():
            self._thread.join(0.2)

    def _run(self) -> None:
        pause_s = self._first_pause_s
        while True:
            with self._wake:
                while not (self._numbers or self._meta_due or self._incidents_due or self._after_due or self._closing):
                    self._wake.wait()
                last = self._closing
            try:
                self._upload()
                self.problem, pause_s = "", self._first_pause_s
            except UploadRefused as error:
                self.problem = error.strerror or str(error)
                return
            except (OSError, pa.ArrowException, RecordingCorrupt) as error:
                self.problem = shown(" ".join(str(error).split()))
            if last or (self.problem and self._closing):
                return
            if self.problem:
                with self._wake:
                    self._wake.wait_for(lambda: self._closing, pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _upload(self) -> None:
        """Everything that waits. meta.json goes first: it says whose place this is."""
        with self._wake:
            due, self._meta_due = self._meta_due, False
        if due:
            try:
                upload_meta(self._store, sync=self._sync)
            except BaseException:
                self._meta_due = True
                raise
        while self._numbers:
            with suppress(RecordingNotFound):  # its incident was forgotten, and retention has deleted it
                upload_segment(self._store, self._numbers[0], sync=self._sync)
            self.problem = ""
            with self._wake:
                self._numbers = waiting(self._store)
            self._after_due = True
        if self._incidents_due:
            self._incidents_due = False
            try:
                upload_incidents(self._store, sync=self._sync)
            except BaseException:
                self._incidents_due = True
                raise
        if self._after_due:
            self._after()
            self._after_due = False


def _note(uploaded: Uploaded, ref: SegmentRef) -> None:
    uploaded.next_segment = max(uploaded.next_segment, ref.number + 1)
    lives = {(life.topic, life.epoch): life for life in uploaded.lives}
    segment = ref.open()
    try:
        for stats in segment.stats():
            life = stats.topic, stats.epoch
            last_seq = max(stats.last_seq, lives[life].last_seq if life in lives else 0)  # incidents may share segments
            lives[life] = UploadedLife(*life, last_seq)
        newest_ns = {**uploaded.newest_ns, ref.number: newest_in(segment)}
    finally:
        segment.close()
    uploaded.lives = list(lives.values())
    uploaded.newest_ns = dict(sorted(newest_ns.items())[-_TIMES_KEPT:])


def _write(store: Store, uploaded: Uploaded, *, sync: bool) -> None:
    assert store.directory is not None
    _checksum.replace_file(store.directory / UPLOADED, _checksum.dump_json(uploaded), sync=sync)


def _refuse_address_of_another(store: Store) -> None:
    there, mine = read_meta(Store(None, store.sealed_uri, store.options)), read_meta(store)
    if there is None or mine is None:
        return
    if (there.id, there.recorder, there.sessions[:1]) != (mine.id, mine.recorder, mine.sessions[:1]):
        raise UploadRefused(
            0,
            f"{shown(store.sealed_uri)} has the recording of {there.recorder!r}: give this one an address of its own, "
            "or continue that one in its directory",
        )


def _is_intact(number: int, filesystem: pafs.FileSystem, there: str) -> bool:
    """Is there a segment, and all of it? What a loss of power has cut short is not."""
    damage: list[object] = []
    try:
        segment = ParquetSegment(number, filesystem.open_input_file(there))
    except (FileNotFoundError, RecordingCorrupt):
        return False
    try:
        deque(segment.batches(on_damage=damage.append), maxlen=0)
    finally:
        segment.close()
    return not damage


def _is_same(here: Path, filesystem: pafs.FileSystem, there: str) -> bool:
    """Byte for byte: more than a checksum tells, and stores have none that pyarrow gives."""
    if filesystem.get_file_info(there).size != here.stat().st_size:
        return False
    with open(here, "rb") as mine, filesystem.open_input_stream(there) as other:
        while piece := mine.read(_PIECE):
            if bytes(other.read(len(piece))) != piece:
                return False
        return not other.read(1)
