"""The registry of topics on `ipc://`: a file of each publisher, and of each pipe's reader, beside the sockets.

Owns this invariant: the file (an advertisement) is locked as long as its process lives. So one that can be locked is of
a process that died, and two publishers never share an address.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NoReturn

import msgspec

from ringmain import _file_lock, _names
from ringmain.backends.zmq._address import Address, ZmqContract
from ringmain.errors import SystemFailure, TopicBusy

MAX_PATH_BYTES = 88
"""The kernel's limit for the path of a Unix socket is 107, and the epoch in its name takes 17."""
LOCK_TRIES, LOCK_RETRY_S = 20, 0.002
Side = Literal["writer", "reader"]


class Advertisement(msgspec.Struct):
    """What a publisher on `ipc://` says beside its socket: what `info` shows, and what a subscriber must know."""

    topic: str
    contract: ZmqContract
    capacity: int
    epoch: int
    pid: int
    uid: int
    name: str
    endpoint: str
    schema: bytes = b""
    pid_namespace: int = 0


def _directory() -> Path:
    return Path(_names.runtime_directory()) / ".zmq"


def make_directory() -> None:
    directory = _directory()
    directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.mkdir(mode=0o700, exist_ok=True)


def _socket_path(topic: str) -> str:
    path = str(_directory() / topic.replace("/", "+"))
    if len(path.encode()) > MAX_PATH_BYTES:
        path = str(_directory() / hashlib.blake2b(topic.encode(), digest_size=16).hexdigest())
    if len(path.encode()) > MAX_PATH_BYTES:
        raise ValueError(f"RINGMAIN_DIR is too long for a Unix socket: {path} has more than {MAX_PATH_BYTES} bytes")
    return path


def own_address(topic: str, epoch: int) -> Address:
    """In the runtime directory. Each life of a topic has a socket file of its own: ZeroMQ removes the file of a closed
    socket some time later, and that must not be its successor's file."""
    return Address(f"ipc://{_socket_path(topic)}~{epoch:x}")


def _path(topic: str, side: Side) -> str:
    return f"{_socket_path(topic)}~{side}"  # no topic's name has a '~', so this is no other topic's socket


class Registration:
    """The advertisement of this process as a topic's writer, or as a pipe's reader, with its lock."""

    def __init__(self, advertisement: Advertisement, side: Side) -> None:
        make_directory()
        self._socket_path = advertisement.endpoint.removeprefix("ipc://") if side == "writer" else None
        self._path = _path(advertisement.topic, side)
        for _ in range(LOCK_TRIES):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(self._fd, self._path):  # otherwise its owner has just removed it
                    self.update(advertisement)
                    return
            except BlockingIOError:
                time.sleep(LOCK_RETRY_S)  # perhaps another process only checks whether it is locked
            os.close(self._fd)
        self._refuse(advertisement.topic, side)

    def _refuse(self, topic: str, side: Side) -> NoReturn:
        there = _read(self._path)
        who = f"{side} {there.name!r} ({_names.describe_pid(there.pid, there.pid_namespace)})" if there else f"a {side}"
        raise TopicBusy(f"topic '{topic}' has its one {side}: {who}; close it first", topic=topic)

    def update(self, advertisement: Advertisement) -> None:
        data = msgspec.json.encode(advertisement)
        try:
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
        except OSError as error:
            raise SystemFailure(f"cannot write {self._path}: {error}") from error

    def remove(self) -> None:
        """Remove the advertisement, and the socket with it."""
        if self._fd >= 0:
            if self._socket_path is not None:
                Path(self._socket_path).unlink(missing_ok=True)
            os.unlink(self._path)
            self.forget()

    def forget(self) -> None:
        """In a child that inherited it through fork: the advertisement is the parent's."""
        os.close(self._fd)
        self._fd = -1


def _same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _read(path: str) -> Advertisement | None:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Advertisement)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None  # not there, or being written


def _is_locked(path: str) -> bool:
    try:
        return _file_lock.is_locked(path)
    except NotADirectoryError:
        return False


def _read_living(path: str) -> Advertisement | None:
    return _read(path) if _is_locked(path) else None


def living_publisher(topic: str) -> Advertisement | None:
    """The topic's publisher, if its process lives."""
    return _read_living(_path(topic, "writer"))


def living_reader(topic: str) -> Advertisement | None:
    """A pipe's reader, if its process lives."""
    return _read_living(_path(topic, "reader"))


def living_publishers() -> Iterator[Advertisement]:
    """All publishers on `ipc://` in the runtime directory whose processes live."""
    for path in sorted(_directory().glob("*~writer")):
        if (advertisement := _read_living(str(path))) is not None:
            yield advertisement


def remove_dead() -> list[str]:
    """Remove the advertisements and sockets of processes that died; returns the topics of the publishers."""
    gone = []
    for path in sorted(_directory().glob("*~*er")):
        if _is_locked(str(path)):
            continue
        advertisement = _read(str(path))
        path.unlink(missing_ok=True)
        if advertisement is not None and path.name.endswith("~writer"):
            Path(advertisement.endpoint.removeprefix("ipc://")).unlink(missing_ok=True)
            gone.append(advertisement.topic)
    return gone
