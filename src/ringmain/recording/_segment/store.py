"""Where the files of a recording are, and which segments it has.

The invariant owned here: *every row is seen exactly once while segments are being sealed, uploaded and deleted*. A
segment goes from a stream to a sealed file, and with `sealed_uri` from there to the store; each place is written before
the one before is removed. They are listed in this order, so a segment that moves meanwhile is seen twice and counted
once, never missed; and one that is gone when it is opened is opened in the next place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyarrow import fs as pafs

from ringmain.errors import RecordingNotFound
from ringmain.recording import _checksum
from ringmain.recording._format import RETIRED, Retired, parse_segment_name, sealed_name, stream_name
from ringmain.recording._meta import read_meta
from ringmain.recording._segment.object_store import is_object_store, open_filesystem
from ringmain.recording._segment.parquet_segment import ParquetSegment
from ringmain.recording._segment.segment import Segment
from ringmain.recording._segment.segment_reader import StreamSegment

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Store:
    """Where a recording's files are: in a local directory, at a URI that pyarrow.fs opens, or, once they are sealed, at
    the URI and until then in the directory. `options` are those of `open_filesystem`, in pairs."""

    directory: Path | None
    sealed_uri: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

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
        return cls(directory, meta.sealed_uri if meta is not None else "", pairs)

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        """The file system of the sealed segments, and the directory in it."""
        if self.sealed_uri:
            return open_filesystem(self.sealed_uri, dict(self.options))
        return pafs.LocalFileSystem(), str(self.directory)

    def read(self, name: str) -> bytes | None:
        """The bytes of a small file beside the segments, None when there is none."""
        if self.directory is not None:
            try:
                return (self.directory / name).read_bytes()
            except FileNotFoundError:
                return None
        filesystem, path = self.filesystem()
        try:
            with filesystem.open_input_stream(f"{path}/{name}") as source:
                return bytes(source.read())
        except FileNotFoundError:
            return None

    def upload(self, name: str, read: Callable[[int], bytes]) -> None:
        """Copy to the sealed segments' file system so that the name appears only when all bytes are there."""
        filesystem, directory = self.filesystem()
        direct = is_object_store(filesystem)
        if not direct:
            filesystem.create_dir(directory, recursive=True)
        target = f"{directory}/{name}" if direct else f"{directory}/{name}.tmp"
        # The buffer hands bytes on: deltalake's files take nothing else.
        with filesystem.open_output_stream(target, buffer_size=_PIECE_BYTES) as sink:
            while piece := read(_PIECE_BYTES):
                sink.write(piece)
        if not direct:
            filesystem.move(target, f"{directory}/{name}")


def shown(text: str) -> str:
    """A text to be printed, without the name and password that an address in it may have."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def check_address(sealed_uri: str) -> None:
    """Refuses credentials in an address that is written to meta.json."""
    if shown(sealed_uri) != sealed_uri:
        raise ValueError(
            f"sealed_uri={shown(sealed_uri)!r} was given with a name or password, which would be written to meta.json: "
            "leave them out, and set them in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)"
        )


def read_retired(store: Store) -> Retired:
    data = store.read(RETIRED)
    found = _checksum.load_json(data, Retired) if data is not None else None
    return found if found is not None else Retired("")


@dataclass(frozen=True, slots=True)
class SegmentRef:
    """A segment as it was when listed. Small and picklable: it travels to Spark's workers."""

    number: int
    sealed: bool
    store: Store
    size_bytes: int
    waiting: bool = False
    """Sealed, and in the directory until it is uploaded to `sealed_uri`."""

    @property
    def stream_path(self) -> Path:
        assert self.store.directory is not None
        return self.store.directory / stream_name(self.number)

    def open(self) -> Segment:
        """Raises RecordingNotFound when the file is gone, RecordingCorrupt when none of it can be read."""
        if not self.sealed:
            try:
                return StreamSegment(self.stream_path, self.number)
            except FileNotFoundError:
                pass  # sealed since it was listed
        try:
            filesystem, directory = self.location()
            source = filesystem.open_input_file(f"{directory}/{sealed_name(self.number)}")
        except FileNotFoundError as error:
            raise RecordingNotFound(
                f"segment {self.number:09d} is no longer in {directory}: it was deleted, by retention or by hand"
            ) from error
        return ParquetSegment(self.number, source)

    def location(self) -> tuple[pafs.FileSystem, str]:
        """Where the sealed file is: the file system, and the directory in it."""
        here = self.store.directory
        if here is not None and self.store.sealed_uri and (here / sealed_name(self.number)).exists():
            return pafs.LocalFileSystem(), str(here)
        return self.store.filesystem()


def list_segments(store: Store) -> list[SegmentRef]:
    """All segments in order, without opening any."""
    here = list_here(store)
    if store.directory is not None and not store.sealed_uri:
        return here
    filesystem, directory = store.filesystem()
    first, sealed = read_retired(store).first_segment, {}
    for info in filesystem.get_file_info(pafs.FileSelector(directory, allow_not_found=True)):
        parsed = parse_segment_name(info.base_name)
        if parsed is not None and parsed[1] and parsed[0] >= first:
            sealed[parsed[0]] = SegmentRef(parsed[0], True, store, info.size)
    found = {ref.number: ref for ref in here}
    found |= {number: ref for number, ref in sealed.items() if number not in found or not found[number].sealed}
    return [found[number] for number in sorted(found)]


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
    numbers = sorted(n for n in streams.keys() | sealed.keys() if n >= first)
    waiting = bool(store.sealed_uri)
    return [
        SegmentRef(n, n in sealed, store, sealed.get(n, streams.get(n, 0)), waiting and n in sealed) for n in numbers
    ]
