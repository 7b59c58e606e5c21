"""`import_bag`: a recording made of an MCAP file, a ROS bag or a dataset.

The invariants owned here: every message of the bag is one row, or the import fails; and the directory appears when the
recording is complete, so an import that is interrupted or fails leaves none.

The order of the rows is that of the bag, a few megabytes at a time from topic to topic. Messages are numbered from 0 in
each topic: a bag does not say what was lost before it was written. A topic whose messages have several schemas has a
life for each.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import get_args

import pyarrow as pa

from ringmain import _names
from ringmain._contracts import ContractName
from ringmain.errors import InvalidArgument, RecordingError, RecordingNotFound
from ringmain.recording._format import FRAMES
from ringmain.recording._import.channel import Channel, Conversion, conversion_of
from ringmain.recording._import.sources import Piece, Source, open_bag
from ringmain.recording._record.row_builder import ring_rows
from ringmain.recording._record.writer import RecordingWriter
from ringmain.typed import Schema

_BATCH_BYTES = 8 << 20  # of all topics together, before they are written
_BATCH_MESSAGES = 50_000
_SAMPLE_BYTES = 1 << 20
_CONTRACTS = get_args(ContractName)


@dataclass(slots=True)
class ImportedTopic:
    """What became of a bag's topic."""

    source: str
    """Its name in the bag."""
    topic: str
    type: str
    """Of its messages; `bytes` where they are as in the bag."""
    why_raw: str = ""
    messages: int = 0
    bytes: int = 0
    """Of the payloads, as recorded."""
    unconverted: int = 0
    """Messages that do not match the schema: recorded as in the bag."""


@dataclass(slots=True)
class ImportStatus:
    """How far an import is, and at its end what it did."""

    path: str
    messages: int = 0
    bytes: int = 0
    """Of the payloads, as in the bag."""
    share: float = 0.0
    """Of the bag that is read, from 0 to 1."""
    ends_early: str = ""
    """Why not all of the bag could be read, if so."""
    topics: list[ImportedTopic] = field(default_factory=list)


def import_bag(
    bag: str | Path,
    directory: str | Path,
    *,
    episode: int | None = None,
    progress: Callable[[ImportStatus], None] | None = None,
) -> ImportStatus:
    """Make a recording in `directory`, which must not exist, of an .mcap file, a ROS 1 .bag, or the directory of a
    ROS 2 bag, a LeRobot dataset, or Parquet files as `datasets` has them. Of a dataset only the `episode` of this
    number; None: all. `progress` is called after every few megabytes. Needs the extra `import`, for datasets `video`.
    """
    source, target = _open_source(Path(bag), episode), Path(directory)
    if target.exists():
        raise RecordingError(f"{target} exists: an import makes a new recording, name another directory")
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{target.name}.unfinished-", dir=target.parent))
    try:
        name = _recorder_name(Path(bag))
        writer = RecordingWriter(unfinished, recorder=name)
        try:
            status = _Import(writer, name, ImportStatus(str(target))).run(source, progress or (lambda status: None))
            writer.close()
        except BaseException:
            with suppress(Exception):  # it may be in the middle of a write; the first error is raised
                writer.abandon()
            raise
        unfinished.chmod(0o777 & ~_umask())
        os.rename(unfinished, target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return status


def _open_source(path: Path, episode: int | None) -> Source:
    if not path.exists():
        raise RecordingNotFound(f"nothing to import or play at {path}: there is no such file or directory")
    if path.is_dir() and ((path / "meta" / "info.json").exists() or next(path.rglob("*.parquet"), None) is not None):
        from ringmain.recording._import.lerobot import Dataset  # only data sets need numpy

        return Dataset(path, episode)
    if episode is not None:
        raise InvalidArgument(f"{path} has no episodes: a LeRobot data set is a directory with meta/info.json")
    return open_bag(path)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _recorder_name(bag: Path) -> str:
    """The bag's name and a digest of it: the same bag imported again has the same rows, by which a pipeline knows them,
    and two bags with one name have not."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(bag.rglob("*")) if bag.is_dir() else [bag]:
        if path.is_file():
            with open(path, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest.update(b"%d" % size + file.read(_SAMPLE_BYTES))
                file.seek(max(0, size - _SAMPLE_BYTES))
                digest.update(file.read())
    return f"{bag.absolute().stem}-{digest.hexdigest()}"


def _first_epoch(recorder: str, topic: str) -> int:
    """Of a topic's first life, by the bag's name and content: no other bag has it, the same one imported again does.
    The first message's time would not do, because simulations begin at the same."""
    digest = hashlib.blake2b(f"{recorder}\0{topic}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 2 | 1


class _Life:
    """A topic with one schema, and its messages that are not written yet."""

    def __init__(self, topic: str, epoch: int) -> None:
        self.topic, self.epoch, self.written = topic, epoch, 0
        self.clear()

    def clear(self) -> None:
        self.publish_ns: list[int] = []
        self.log_ns: list[int] = []
        self.senders: list[str] = []
        self.kinds: list[str] = []
        self.payloads: list[bytes | memoryview] = []


@dataclass(slots=True)
class _Route:
    """Where the messages of a channel go."""

    life: _Life
    convert: Callable[[bytes], bytes] | None
    counts: ImportedTopic
    sender: str
    kind: str


def _parts(payloads: list[bytes | memoryview]) -> Iterator[tuple[int, int]]:
    """Where to cut, so that batches stay small: a bag may have a chunk of gigabytes."""
    first = size = 0
    for at, data in enumerate(payloads):
        if at > first and (size >= _BATCH_BYTES or at - first >= _BATCH_MESSAGES):
            yield first, at
            first, size = at, 0
        size += len(data)
    yield first, len(payloads)


def _binary(payloads: list[bytes | memoryview]) -> pa.Array:
    """In a fifth of the time that `pa.array` takes."""
    offsets = array("i", accumulate(map(len, payloads), initial=0))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(payloads))]
    return pa.Array.from_buffers(pa.binary(), len(payloads), buffers)


class _Import:
    def __init__(self, writer: RecordingWriter, recorder: str, status: ImportStatus) -> None:
        self._writer, self._recorder, self._status = writer, recorder, status
        self._routes: dict[int, _Route] = {}
        self._lives: dict[tuple[str, bytes, str], _Life] = {}
        self._names: dict[str, str] = {}  # a topic's name in the bag -> in the recording
        self._pending_bytes = self._pending_messages = 0

    def run(self, source: Source, progress: Callable[[ImportStatus], None]) -> ImportStatus:
        status = self._status
        for piece in source.pieces():
            self._take(piece, source.channels)
            if self._pending_bytes >= _BATCH_BYTES or self._pending_messages >= _BATCH_MESSAGES:
                self._write()
                status.share = min(1.0, source.read / max(1, source.size))
                progress(status)
        self._write()
        status.ends_early = source.ends_early
        if source.expected is not None and source.expected != status.messages and not source.ends_early:
            status.ends_early = f"the bag says that it has {source.expected} messages, and has {status.messages}"
        if self._writer.rows != status.messages:
            raise RecordingError(f"{status.messages} messages were read and {self._writer.rows} written")
        status.share = 1.0
        status.topics.sort(key=lambda topic: topic.topic)
        return status

    def _take(self, piece: Piece, channels: Mapping[int, Channel]) -> None:
        where: dict[int, list[int]] = {}
        for at, number in enumerate(piece.channels):
            where.setdefault(number, []).append(at)
        lives: dict[_Life, list[int]] = {}
        for number, rows in where.items():
            route = self._routes.get(number) or self._new_route(number, channels[number])
            if route.convert is not None:
                self._convert(route, piece.payloads, rows)
            size = sum([len(piece.payloads[at]) for at in rows])
            route.counts.messages += len(rows)
            route.counts.bytes += size
            self._pending_bytes += size
            lives.setdefault(route.life, []).extend(rows)
        for life, rows in lives.items():
            rows.sort()  # a topic may have several channels
            routes = [self._routes[piece.channels[at]] for at in rows]
            life.publish_ns += [piece.publish_ns[at] for at in rows]
            life.log_ns += [piece.log_ns[at] for at in rows]
            life.senders += [route.sender for route in routes]
            life.kinds += [route.kind for route in routes]
            life.payloads += [piece.payloads[at] for at in rows]
        self._status.messages += len(piece.payloads)
        self._status.bytes += piece.size
        self._pending_messages += len(piece.payloads)

    def _convert(self, route: _Route, payloads: list[bytes | memoryview], rows: list[int]) -> None:
        assert route.convert is not None
        for at in rows:
            try:
                payloads[at] = route.convert(payloads[at])  # type: ignore[arg-type]
            except ValueError:
                route.counts.unconverted += 1

    def _write(self) -> None:
        for life in self._lives.values():
            if not life.payloads:
                continue
            times = life.publish_ns, life.log_ns
            if min(map(min, times)) < 0 or max(map(max, times)) >= 1 << 63:
                raise RecordingError(
                    f"topic {life.topic!r}: the bag has a time that is not in 1970 to 2262", topic=life.topic
                )
            for first, end in _parts(life.payloads):
                rows = end - first
                batch = ring_rows(
                    rows, seq=range(life.written, life.written + rows), time_ns=life.publish_ns[first:end],
                    sender=life.senders[first:end], kind=life.kinds[first:end], data=_binary(life.payloads[first:end]),
                )  # fmt: skip
                self._writer.append(life.topic, life.epoch, batch, record_time_ns=life.log_ns[first:end])
                life.written += rows
            life.clear()
        self._pending_bytes = self._pending_messages = 0

    def _new_route(self, number: int, channel: Channel) -> _Route:
        conversion = conversion_of(channel)
        topic = self._topic_name(channel.topic)
        life = self._life(topic, channel, conversion)
        type_ = Schema.from_bytes(conversion.schema).type_name if conversion.schema else "bytes"
        known = (
            t
            for t in self._status.topics
            if (t.source, t.type, t.why_raw) == (channel.topic, type_, conversion.why_raw)
        )
        counts = next(known, None)
        if counts is None:
            counts = ImportedTopic(channel.topic, topic, type_, conversion.why_raw)
            self._status.topics.append(counts)
        sender, kind = (
            text.replace("\0", "").encode()[:255].decode(errors="ignore") for text in (channel.sender, channel.kind)
        )
        route = self._routes[number] = _Route(life, conversion.convert, counts, sender, kind)
        return route

    def _life(self, topic: str, channel: Channel, conversion: Conversion) -> _Life:
        raw = not channel.encoding and not conversion.schema
        contract = channel.contract if channel.contract in _CONTRACTS or (channel.contract == FRAMES and raw) else ""
        key = (topic, conversion.schema, contract)
        if key not in self._lives:
            epoch = _first_epoch(self._recorder, topic)
            while any((life.topic, life.epoch) == (topic, epoch) for life in self._lives.values()):
                epoch += 1
            self._lives[key] = _Life(topic, epoch)
            self._writer.declare(topic, epoch=epoch, contract=contract, schema=conversion.schema)
        return self._lives[key]

    def _topic_name(self, source: str) -> str:
        """The same name where ringmain allows it: no leading slash, and `_` for characters that it does not take."""
        if source not in self._names:
            parts = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in source.split("/")]
            base = "/".join("_" if part in (".", "..") else part for part in parts if part)[
                : _names.MAX_TOPIC_BYTES - 10
            ]
            base = base.rstrip("/") or "unnamed"
            name, count = base, 1
            while name in self._names.values():
                count += 1
                name = f"{base}-{count}"
            self._names[source] = _names.check_topic(name)
        return self._names[source]
