"""Where the files of a recording are, and which segments it has.

The invariant owned here: *every row is seen exactly once while segments are being sealed and deleted*. A sealed file
takes precedence over a stream of the same number. Streams are listed before sealed files, so a segment that is sealed
between the two listings is seen twice and counted once, never missed. A stream that is gone when it is opened has been
sealed since.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs as pafs

from ringmain.errors import RecordingNotFound
from ringmain.recording import _checksum
from ringmain.recording._format import RETIRED, Retired, parse_segment_name, sealed_name, stream_name
from ringmain.recording._meta import read_meta
from ringmain.recording._segment.parquet_segment import ParquetSegment
from ringmain.recording._segment.segment import Segment
from ringmain.recording._segment.segment_reader import StreamSegment

# There an object appears complete, when its upload is closed, and renaming is a copy: no temporary name is needed.
_OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})


@dataclass(frozen=True, slots=True)
class Store:
    """Where a recording's files are: in a local directory, at a URI that pyarrow.fs opens, or, once they are sealed, at
    the URI and until then in the directory."""

    directory: Path | None
    sealed_uri: str = ""

    @classmethod
    def of(cls, location: str | Path) -> Store:
        """The store of an existing recording; the meta.json of a local one says where its sealed segments are."""
        if isinstance(location, str) and "://" in location:
            return cls(None, location)
        directory = Path(location)
        if not directory.is_dir():
            raise RecordingNotFound(f"no recording at {directory}: there is no such directory")
        meta = read_meta(cls(directory))
        return cls(directory, meta.sealed_uri if meta is not None else "")

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        """The file system of the sealed segments, and the directory in it."""
        if self.sealed_uri:
            filesystem, path = pafs.FileSystem.from_uri(self.sealed_uri)
            return filesystem, path.rstrip("/")
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
        direct = filesystem.type_name in _OBJECT_STORES
        if not direct:
            filesystem.create_dir(directory, recursive=True)
        target = f"{directory}/{name}" if direct else f"{directory}/{name}.tmp"
        with filesystem.open_output_stream(target) as sink:
            while piece := read(1 << 20):
                sink.write(piece)
        if not direct:
            filesystem.move(target, f"{directory}/{name}")


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
        filesystem, directory = self.store.filesystem()
        try:
            source = filesystem.open_input_file(f"{directory}/{sealed_name(self.number)}")
        except FileNotFoundError as error:
            raise RecordingNotFound(
                f"segment {self.number:09d} is no longer in {directory}: it was deleted, by retention or by hand"
            ) from error
        return ParquetSegment(self.number, source)


def list_segments(store: Store) -> list[SegmentRef]:
    """All segments in order, without opening any."""
    streams: dict[int, int] = {}
    if store.directory is not None:
        try:
            for entry in store.directory.iterdir():
                parsed = parse_segment_name(entry.name)
                if parsed is not None and not parsed[1]:
                    try:
                        streams[parsed[0]] = entry.stat().st_size
                    except FileNotFoundError:
                        streams[parsed[0]] = 0  # sealed or deleted just now: the listing below has it if it was sealed
        except FileNotFoundError as error:
            raise RecordingNotFound(f"no recording at {store.directory}: the directory is gone") from error
    filesystem, directory = store.filesystem()
    found = filesystem.get_file_info(pafs.FileSelector(directory, allow_not_found=True))
    sealed = {}
    for info in found:
        parsed = parse_segment_name(info.base_name)
        if parsed is not None and parsed[1]:
            sealed[parsed[0]] = info.size
    first = read_retired(store).first_segment
    numbers = sorted(n for n in streams.keys() | sealed.keys() if n >= first)
    return [SegmentRef(n, n in sealed, store, sealed.get(n, streams.get(n, 0))) for n in numbers]
