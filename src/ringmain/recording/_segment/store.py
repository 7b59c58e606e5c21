"""Where the files of a recording are, and which segments it has.

The invariant owned here: *every row is seen exactly once while segments are being sealed, uploaded and deleted*. A
segment goes from a stream to a sealed file, and with `sealed_uri` from there to the store; each place is written before
the one before is removed. They are listed in this order, so a segment that moves meanwhile is seen twice and counted
once, never missed; and one that is gone when it is opened is opened in the next place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyarrow import fs as pafs

from ringmain.errors import RecordingCorrupt, RecordingError, RecordingNotFound, RingmainError
from ringmain.recording import _checksum
from ringmain.recording._format import (
    LATCHED,
    RETIRED,
    Position,
    Retired,
    parse_segment_name,
    sealed_name,
    stream_name,
)
from ringmain.recording._meta import Meta, read_meta
from ringmain.recording._segment.latched import LatchedSegment, latched_by, lives_that_keep
from ringmain.recording._segment.object_store import is_object_store, open_filesystem
from ringmain.recording._segment.parquet_segment import Footer, ParquetSegment
from ringmain.recording._segment.segment import Segment
from ringmain.recording._segment.segment_reader import StreamSegment

_PIECE_BYTES = 1 << 20
_FOOTERS_KEPT, _FOOTERS_BYTES = 1024, 64 << 20  # one may have megabytes: it carries what is latched


class Kept(NamedTuple):
    """The rows of an incident: those before `end`, if it has one, published in [since_ns, until_ns)."""

    incident: str
    end: Position | None
    since_ns: int
    until_ns: int

    @classmethod
    def parse(cls, found: Sequence[Any]) -> Kept:
        """One that has been JSON."""
        incident, end, since_ns, until_ns = found
        return cls(incident, Position(*end) if end is not None else None, since_ns, until_ns)


@dataclass(frozen=True, slots=True)
class Store:
    """Where a recording's files are: in a local directory, at a URI that pyarrow.fs opens, or, once they are sealed, at
    the URI and until then in the directory. `options` are those of `open_filesystem`, in pairs."""

    directory: Path | None
    sealed_uri: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    id: str = ""
    """Of the recording in the directory, empty in format 1. What is only at the URI has it in its meta.json there."""
    only_incidents: bool = False
    """Of the segments in the directory, only those that incidents pin go to `sealed_uri`."""
    pinned: tuple[int, int] | None = None
    """The segments of an incident, [first, end): these alone are listed, also where retention left them behind."""
    kept: Kept | None = None
    """Of the rows in these, only those of the incident are planned and scanned."""

    @classmethod
    def of(cls, location: str | Path, options: Mapping[str, str] | None = None) -> Store:
        """The store of an existing recording; the meta.json of a local one says where its sealed segments are."""
        pairs = tuple((options or {}).items())
        if isinstance(location, str) and "://" in location:
            return cls(None, location, pairs)
        directory = Path(location)
        if not directory.is_dir():
            raise RecordingNotFound(f"no recording at {directory}: there is no such directory")
        meta = read_meta(cls(directory))
        if meta is None:
            return cls(directory)
        return cls(directory, meta.sealed_uri, pairs, meta.id, meta.upload == "incidents")

    @property
    def shown(self) -> str:
        """Its address, to be printed."""
        return str(self.directory) if self.directory is not None else shown(self.sealed_uri)

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        """The file system of the sealed segments, and the directory in it."""
        if self.sealed_uri:
            return open_filesystem(self.sealed_uri, dict(self.options))
        return pafs.LocalFileSystem(), str(self.directory)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file of JSON beside the segments, None when there is none."""
        if self.directory is not None:
            try:
                return (self.directory / name).read_bytes()
            except FileNotFoundError:
                return None
        filesystem, path = self.filesystem()
        for is_last in (False, True):
            try:
                source = filesystem.open_input_stream(f"{path}/{name}")
            except FileNotFoundError:
                return None
            # Deleted or replaced meanwhile, it is an error, or as long as the one before: cut off, or followed by
            # whatever was in memory. That is no JSON: once more.
            try:
                with source:
                    data = bytes(source.read())
            except OSError:
                if is_last:
                    raise
            else:
                if is_last or _is_json(data):
                    return data
        return None

    def names_in(self, folder: str) -> list[str]:
        """The JSON files of a folder beside the segments."""
        if self.directory is not None:
            found = [path.name for path in (self.directory / folder).glob("*.json")]
        else:
            filesystem, path = self.filesystem()
            infos = filesystem.get_file_info(pafs.FileSelector(f"{path}/{folder}", allow_not_found=True))
            found = [info.base_name for info in infos if info.base_name.endswith(".json")]
        return sorted(found)

    def shows(self, first: int, segment: int) -> bool:
        """Is this segment listed, where retention has deleted those before `first`?"""
        return segment >= first if self.pinned is None else self.pinned[0] <= segment < self.pinned[1]

    def recorded_in(self, segment: int) -> int:
        """The segment by whose recorder a row is; an incident's latched rows are by that of its first segment."""
        return self.pinned[0] if segment == LATCHED and self.pinned is not None else segment

    def upload(self, name: str, read: Callable[[int], bytes], *, sync: bool) -> None:
        """Copy to the sealed segments' file system so that the name appears only when all bytes are there."""
        filesystem, directory = self.filesystem()
        direct = is_object_store(filesystem)
        if not direct:
            filesystem.create_dir(f"{directory}/{name}".rpartition("/")[0], recursive=True)
        # Recordings that share an address by mistake must not write one temporary file.
        target = f"{directory}/{name}" if direct else f"{directory}/{name}.{self.id}.tmp"
        # The buffer hands bytes on: deltalake's files take nothing else.
        with filesystem.open_output_stream(target, buffer_size=_PIECE_BYTES) as sink:
            while piece := read(_PIECE_BYTES):
                sink.write(piece)
        sync = sync and isinstance(filesystem, pafs.LocalFileSystem)
        if sync:
            _checksum.sync_file(Path(target))
        if not direct:
            filesystem.move(target, f"{directory}/{name}")
        if sync:
            _checksum.sync_directory(Path(directory))


def shown(text: str) -> str:
    """A text to be printed, without the name and password that an address in it may have."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def one_line(error: Exception) -> str:
    """An error of a store, without colours, and without what an address may have of credentials."""
    return shown(" ".join(re.sub(r"\x1b\[[\d;]*m", "", str(error)).split()))


@contextmanager
def reading(address: str) -> Iterator[None]:
    """Around what reads recordings: an error of the system or a store becomes one that says which could not be read."""
    try:
        yield
    except (RingmainError, FileNotFoundError):
        raise
    except OSError as error:
        raise RecordingError(f"recording {shown(address)} cannot be read: {one_line(error)}") from error


def check_address(sealed_uri: str) -> None:
    """Refuses credentials in an address that is written to meta.json."""
    if shown(sealed_uri) != sealed_uri:
        raise ValueError(
            f"sealed_uri={shown(sealed_uri)!r} was given with a name or password, which would be written to meta.json: "
            "leave them out, and set them in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        )


def _is_json(data: bytes) -> bool:
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True


def read_retired(store: Store) -> Retired:
    data = store.read(RETIRED)
    found = _checksum.load_json(data, Retired) if data is not None else None
    return found if found is not None else Retired("")


_FOOTERS: dict[tuple[Store, str], Footer] = {}  # of the files in stores that this process has opened last


def _keep(key: tuple[Store, str], footer: Footer) -> None:
    _FOOTERS.pop(key, None)
    _FOOTERS[key] = footer
    size = sum(each.metadata.serialized_size for each in list(_FOOTERS.values()))
    while _FOOTERS and (len(_FOOTERS) > _FOOTERS_KEPT or size > _FOOTERS_BYTES):
        oldest = _FOOTERS.pop(next(iter(_FOOTERS)), None)
        size -= 0 if oldest is None else oldest.metadata.serialized_size


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment as it was when listed. Small and picklable: it travels to Spark's workers."""

    number: int
    sealed: bool
    store: Store
    size_bytes: int
    waiting: bool = False
    """Sealed, and in the directory until it is uploaded to `sealed_uri`."""
    recording: str = ""
    """The id in the file's name at `sealed_uri`."""

    @property
    def stream_path(self) -> Path:
        assert self.store.directory is not None
        return self.store.directory / stream_name(self.number)

    def open(self, *, known: bool = False) -> Segment:
        """Raises RecordingNotFound when the file is gone, RecordingCorrupt when none of it can be read. With `known`
        the footer of a file in a store is not read again: sealed files do not change."""
        if self.number == LATCHED:
            return self._latched()
        if not self.sealed:
            try:
                return StreamSegment(self.stream_path, self.number)
            except FileNotFoundError:
                pass  # sealed since it was listed
        for filesystem, path in self._locations():
            with suppress(FileNotFoundError):  # uploaded since it was listed, and removed here
                source = filesystem.open_input_file(path)
                break
        else:
            raise RecordingNotFound(
                f"segment {self.number:09d} is no longer at {path}: it was deleted, by retention or by hand"
            )
        if not known or isinstance(filesystem, pafs.LocalFileSystem):
            return ParquetSegment(self.number, source)
        segment = ParquetSegment(self.number, source, _FOOTERS.get((self.store, path)))
        _keep((self.store, path), segment.footer)
        return segment

    def _latched(self) -> Segment:
        """The latched rows of an incident, of what it pins."""
        kept = self.store.kept
        assert kept is not None
        meta = read_meta(self.store)
        pinned = (ref.open() for ref in _list_files(self.store, None, meta))
        found = latched_by(pinned, lives_that_keep(meta), kept.since_ns, kept.end)
        return LatchedSegment(*found)

    def location(self) -> tuple[pafs.FileSystem, str]:
        """Where the sealed file is: the file system, and the path in it."""
        here = self.store.directory / sealed_name(self.number) if self.store.directory is not None else None
        if here is not None and self.store.sealed_uri and here.exists():
            return pafs.LocalFileSystem(), str(here)
        *_, stored = self._locations()
        return stored

    def _locations(self) -> Iterator[tuple[pafs.FileSystem, str]]:
        """Where the sealed file may be: in the directory until it is uploaded, and where it stays."""
        if self.store.directory is not None and self.store.sealed_uri:
            yield pafs.LocalFileSystem(), str(self.store.directory / sealed_name(self.number))
        filesystem, directory = self.store.filesystem()
        yield filesystem, f"{directory}/{self.stored_name}"

    @property
    def stored_name(self) -> str:
        """Of the sealed file where it stays: at `sealed_uri`, or in the directory."""
        return sealed_name(self.number, (self.recording or self.store.id) if self.store.sealed_uri else "")


def list_segments(
    store: Store, infos: Sequence[pafs.FileInfo] | None = None, meta: Meta | None = None
) -> list[SegmentRef]:
    """All segments in order, without opening any; those of an incident begin with its latched rows. `infos` are the
    files of a recording that is only in a store, where these have been listed just now; `meta` is its meta.json, if
    that has been read."""
    latched = store.kept is not None and lives_that_keep(meta or read_meta(store))
    return [*([SegmentRef(LATCHED, True, store, 0)] if latched else []), *_list_files(store, infos, meta)]


def _list_files(store: Store, infos: Sequence[pafs.FileInfo] | None, meta: Meta | None) -> list[SegmentRef]:
    here = list_here(store)
    if store.directory is not None and not store.sealed_uri:
        return here
    if infos is None or store.directory is not None:
        filesystem, directory = store.filesystem()
        infos = filesystem.get_file_info(pafs.FileSelector(directory, allow_not_found=True))
    named = [(name, info.size) for info in infos if (name := parse_segment_name(info.base_name)) and name.sealed]
    has_retired = store.directory is not None or any(info.base_name == RETIRED for info in infos)
    first = read_retired(store).first_segment if has_retired else 0
    own = _recording_at(store, {name.recording for name, _ in named}, meta)
    # A recorder's directory that was copied to a store by hand has names without an id.
    ours = {own} if store.directory is not None else {own, ""}
    sealed = {
        name.number: SegmentRef(name.number, True, store, size, recording=name.recording)
        for name, size in sorted(named, key=lambda segment: segment[0].recording)  # one with an id is the later upload
        if name.recording in ours and store.shows(first, name.number)
    }
    found = {ref.number: ref for ref in here}
    found |= {number: ref for number, ref in sealed.items() if number not in found or not found[number].sealed}
    return [found[number] for number in sorted(found)]


def _recording_at(store: Store, ids: set[str], meta: Meta | None) -> str:
    """The id of the recording whose store this is, where segments with these ids are."""
    if store.directory is not None:
        return store.id
    meta = meta or read_meta(store)
    if meta is not None:
        return meta.id
    ids = ids - {""}
    if len(ids) > 1:
        raise RecordingCorrupt(
            f"{shown(store.sealed_uri)} has segments of {len(ids)} recordings and no meta.json that says whose place "
            "it is: read each from its recorder's directory"
        )
    return next(iter(ids), "")


def list_here(store: Store) -> list[SegmentRef]:
    """The segments in the recorder's directory, in order; the store at `sealed_uri` is not asked."""
    streams: dict[int, int] = {}
    sealed: dict[int, int] = {}
    if store.directory is None:
        return []
    for found, wanted in ((streams, False), (sealed, True)):
        try:
            for entry in store.directory.iterdir():
                parsed = parse_segment_name(entry.name)
                if parsed is not None and parsed[1] == wanted:
                    try:
                        found[parsed[0]] = entry.stat().st_size
                    except FileNotFoundError:
                        found[parsed[0]] = 0  # it has moved on just now, to where it is listed next
        except FileNotFoundError as error:
            raise RecordingNotFound(f"no recording at {store.directory}: the directory is gone") from error
    first = read_retired(store).first_segment
    numbers = sorted(n for n in streams.keys() | sealed.keys() if store.shows(first, n))
    waiting = bool(store.sealed_uri)
    return [
        SegmentRef(n, n in sealed, store, sealed.get(n, streams.get(n, 0)), waiting and n in sealed) for n in numbers
    ]
