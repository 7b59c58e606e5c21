"""meta.json, as a recorder finds it or begins it: who records, and each life of the recorder. What it says of topics is
the writer's."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from ringmain.errors import RecordingCorrupt
from ringmain.recording import _checksum
from ringmain.recording._format import FORMAT_VERSION, META, Clocks, Meta, Session


def open_meta(directory: Path, recorder: str | None, sealed_uri: str) -> Meta:
    """What is there, or what a new recording begins with. A recording that was begun otherwise stays as it was."""
    path = directory / META
    if not path.exists():
        name = recorder or f"{socket.gethostname()}-{os.urandom(4).hex()}"
        return Meta("", FORMAT_VERSION, name, sealed_uri)
    meta = _checksum.load_json(path.read_bytes(), Meta)
    if meta is None:
        raise RecordingCorrupt(
            f"{path} does not pass its checksum; Recording({str(directory)!r}).repair() makes a new one"
        )
    if meta.format != FORMAT_VERSION:
        raise RecordingCorrupt(
            f"{directory} is a recording of format {meta.format}, this ringmain writes {FORMAT_VERSION}; "
            "record to a new directory"
        )
    for given, known, what in (
        (recorder, meta.recorder, "recorder"),
        (sealed_uri, meta.sealed_uri, "sealed_uri"),
    ):
        if given and given != known:
            raise ValueError(
                f"{directory} was begun with {what}={known!r}, not {given!r}: it stays as it was, "
                "so leave it out or record to a new directory"
            )
    return meta


def new_session(first_segment: int) -> Session:
    """The life of a recorder that begins here and now."""
    clocks = Clocks(time.time_ns(), time.monotonic_ns(), _boot_id())
    return Session(first_segment, os.getpid(), socket.gethostname(), clocks)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
