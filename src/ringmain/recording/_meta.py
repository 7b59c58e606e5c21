"""meta.json: who records, each session of the recorder, and each life of a topic. All code about the file is here.

The invariants owned here: a recording keeps the recorder's name and the location of sealed segments that it began with;
and of each life of a topic, the first `first_seq` that was declared stays.
"""

from __future__ import annotations

import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from ringmain import _crash
from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum
from ringmain.recording._format import FORMAT_VERSION, META

Uploads = Literal["all", "incidents"]


class Clocks(msgspec.Struct, frozen=True):
    """Both clocks read at one moment, so that a reader can tell a step of the wall clock from a pause."""

    wall_ns: int
    monotonic_ns: int
    boot_id: str


class Session(msgspec.Struct, frozen=True):
    """One run of a recorder on this directory."""

    first_segment: int
    pid: int
    host: str
    clocks: Clocks


class Properties(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a topic was created with, so that a replay can create it as it was. 0: not known, as in formats 1 and 2.
    Who may open it is not among them: that is for the machine to say on which it is created."""

    capacity_bytes: int = 0
    max_participants: int = 0
    kept_kinds: int = 0  # of how many kinds it keeps the last message; 0: of none
    persist: bool = False
    buffers: int = 0  # of a frame topic


NOT_KNOWN = Properties()


class TopicMeta(msgspec.Struct, frozen=True):
    """One life of a topic (`epoch`), as it was when it was recorded."""

    name: str
    epoch: int
    contract: str = ""
    schema: bytes = b""  # what `Schema.from_bytes` takes; empty for a topic of plain bytes
    first_seq: int = 0  # where its recording began: from here on every message is a row, or counted in a row's `lost`
    properties: Properties = NOT_KNOWN


class Meta(msgspec.Struct):
    """The file's content. `crc` comes first and covers the file with its own eight digits read as zeros."""

    crc: str
    format: int
    recorder: str
    sealed_uri: str = ""  # where sealed segments go, when not here
    sessions: list[Session] = []
    topics: list[TopicMeta] = []
    id: str = ""  # random; in the names of the segments at `sealed_uri`. Format 1 has none
    upload: Uploads = "all"  # what of it goes to `sealed_uri`: all segments, or those that incidents pin


def host_of(meta: Meta | None, segment: int) -> str:
    """The host of the recorder that wrote a segment; empty if it is not known."""
    sessions = meta.sessions if meta is not None else []
    return next((one.host for one in reversed(sessions) if one.first_segment <= segment), "")


class Files(Protocol):
    """Where the file is: a `Store`."""

    def read(self, name: str) -> bytes | None: ...


def read_meta(files: Files) -> Meta | None:
    """The content, or None when the file is missing or damaged: the segments are readable without it."""
    data = files.read(META)
    return _checksum.load_json(data, Meta) if data is not None else None


def new_meta(recorder: str | None, sealed_uri: str, upload: Uploads | None = None) -> Meta:
    """What a recording begins with."""
    name = recorder or f"{socket.gethostname()}-{os.urandom(4).hex()}"
    return Meta("", FORMAT_VERSION, name, sealed_uri, id=os.urandom(4).hex(), upload=upload or "all")


class MetaFile:
    """The file of a recording that is being written."""

    def __init__(self, directory: Path, recorder: str | None, sealed_uri: str, upload: Uploads | None) -> None:
        self._path = directory / META
        if self._path.exists():
            self._meta = self._load(recorder, sealed_uri, upload)
        else:
            self._meta = new_meta(recorder, sealed_uri, upload)
        self.topics = {(t.name, t.epoch): t for t in self._meta.topics}
        self.changed = False  # has a topic been declared that the file does not have yet?

    @property
    def content(self) -> Meta:
        """As `save` would write it."""
        self._meta.topics = list(self.topics.values())
        return self._meta

    @property
    def recorder(self) -> str:
        return self._meta.recorder

    @property
    def sealed_uri(self) -> str:
        return self._meta.sealed_uri

    @property
    def id(self) -> str:
        return self._meta.id

    @property
    def upload(self) -> Uploads:
        return self._meta.upload

    def begin_session(self, first_segment: int) -> None:
        clocks = Clocks(time.time_ns(), time.monotonic_ns(), _boot_id())
        self._meta.sessions.append(Session(first_segment, os.getpid(), socket.gethostname(), clocks))

    def declare(self, meta: TopicMeta) -> None:
        known = self.topics.get((meta.name, meta.epoch))
        entry = meta if known is None else msgspec.structs.replace(meta, first_seq=known.first_seq)
        if known != entry:
            self.topics[meta.name, meta.epoch] = entry
            self.changed = True

    def save(self, *, sync: bool) -> bytes:
        """Replace the file; returns what was written."""
        data = _checksum.dump_json(self.content)
        unnamed = partial(_crash.point, "meta: written, not named")  # readers still see the old one
        _checksum.replace_file(self._path, data, sync=sync, before_rename=unnamed)
        self.changed = False
        return data

    def _load(self, recorder: str | None, sealed_uri: str, upload: Uploads | None) -> Meta:
        directory = self._path.parent
        meta = _checksum.load_json(self._path.read_bytes(), Meta)
        if meta is None:
            raise RecordingCorrupt(
                f"{self._path} does not pass its checksum; Recording({str(directory)!r}).repair() makes a new one"
            )
        if meta.format > FORMAT_VERSION:
            raise RecordingCorrupt(
                f"{directory} is a recording of format {meta.format}, this ringmain knows {FORMAT_VERSION}; "
                "record to a new directory"
            )
        for what, given, known in (
            ("recorder", recorder, meta.recorder),
            ("sealed_uri", sealed_uri, meta.sealed_uri),
            ("upload", upload, meta.upload),
        ):
            if given and given != known:
                raise ValueError(
                    f"{directory} was begun with {what}={known!r}, which cannot change to {given!r}: "
                    "leave it out or record to a new directory"
                )
        return meta


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
