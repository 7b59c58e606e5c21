"""Where a topic is on the network: addresses, the table of them, and the card that a publisher on `ipc://` leaves.

Owns two invariants. Without keys nothing listens beyond this machine unless it was told to. And a card is locked as
long as its publisher lives, so a card that can be locked is a dead one's, and two publishers never share an address.
"""

from __future__ import annotations

import fcntl
import hashlib
import ipaddress
import os
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from ringmain import _names
from ringmain.errors import NotAllowed, SystemFailure, TopicBusy

TABLE_VARIABLE = "RINGMAIN_ZMQ"
MAX_PATH_BYTES = 88  # the kernel's limit for a Unix socket is 107, and a life of the topic takes 17
LOOKS, LOOK_S = 20, 0.002
ZmqContract = Literal["broadcast", "pipe"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a topic is, and what it takes to get in.

    endpoint: "tcp://host:port" or "ipc://path": what a publisher binds to and a subscriber connects to.
    bind: what the publisher binds to instead, like "tcp://*:5556".
    contract: what a subscriber finds there; only needed for a pipe on tcp.
    queue: how many messages wait for a slow peer, on each side, before they are lost (broadcast) or stop the writer.
    keys: a file with one's own CURVE keys, as `zmq.auth.create_certificates` writes it (the one ending in _secret).
    server_key: the publisher's public key (a file, or the key itself): what subscribers need if it has keys.
    clients: a directory with the public keys of those who may subscribe; without it, whoever has the server_key may.
    insecure: let a publisher without keys listen to the whole network.
    """

    endpoint: str
    bind: str | None = None
    contract: ZmqContract = "broadcast"
    queue: int = 1000
    keys: str | None = None
    server_key: str | None = None
    clients: str | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        for endpoint in filter(None, (self.endpoint, self.bind)):
            if not isinstance(endpoint, str) or not endpoint.startswith(("tcp://", "ipc://")):
                raise ValueError(f"an address is 'tcp://host:port' or 'ipc://path', not {endpoint!r}")
        if self.contract not in ("broadcast", "pipe"):
            raise ValueError(f"an address has the contract 'broadcast' or 'pipe', not {self.contract!r}")
        if self.queue < 1:
            raise ValueError(f"queue is a number of messages, at least 1, not {self.queue}")


def find(topic: str, given: str | Address | None) -> Address | None:
    """The address that was given, or that the table has. None: in the runtime directory, where a card tells."""
    if isinstance(given, Address):
        return given
    if given is not None:
        return Address(given)
    table = os.environ.get(TABLE_VARIABLE)
    if table and (entry := _read_table(table).get(topic)) is not None:
        return entry
    return None


def own_address(topic: str, epoch: int) -> Address:
    """In the runtime directory. Each life of a topic has a socket of its own: ZeroMQ takes the file of a closed one
    away at a time of its own, which must not be a successor's file."""
    return Address(f"ipc://{_socket_path(topic)}~{epoch:x}")


def _read_table(path: str) -> dict[str, Address]:
    known = {field.name for field in fields(Address)}
    try:
        raw = tomllib.loads(Path(path).read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"{TABLE_VARIABLE}={path} cannot be read as a table of addresses: {error}") from error
    table = {}
    for topic, entry in raw.items():
        entry = {"endpoint": entry} if isinstance(entry, str) else dict(entry)
        if "endpoint" not in entry or not set(entry) <= known:
            raise ValueError(f"{path}: topic {topic!r} needs an endpoint, and may have {', '.join(sorted(known))}")
        for key in ("keys", "server_key", "clients"):
            if isinstance(entry.get(key), str) and (Path(path).parent / entry[key]).exists():
                entry[key] = str(Path(path).parent / entry[key])
        table[topic] = Address(**entry)
    return table


def check_exposure(topic: str, address: Address) -> None:
    """Without keys, only this machine."""
    endpoint = address.bind or address.endpoint
    if address.keys or address.insecure or not endpoint.startswith("tcp://"):
        return
    host = endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise NotAllowed(
            f"topic '{topic}' would be open to whoever reaches {endpoint}: give its Address keys=, bind it to "
            "tcp://127.0.0.1:port, or say insecure=True"
        )


def set_keys(socket: Any, address: Address, *, server: bool) -> None:
    """CURVE, if the address has keys."""
    import zmq
    import zmq.auth

    if server and address.keys:
        public, secret = zmq.auth.load_certificate(address.keys)
        socket.curve_publickey, socket.curve_secretkey, socket.curve_server = public, secret, True
    elif not server and address.server_key:
        if address.keys:
            public, secret = zmq.auth.load_certificate(address.keys)
        else:
            public, secret = zmq.curve_keypair()
        socket.curve_publickey, socket.curve_secretkey = public, secret
        is_file = os.path.exists(address.server_key)
        server_key = zmq.auth.load_certificate(address.server_key)[0] if is_file else address.server_key.encode()
        socket.curve_serverkey = server_key


# ------------------------------------------------------------------------------------------------------- cards


class Card(msgspec.Struct):
    """What a publisher on `ipc://` leaves beside its socket: what `info` shows and what a subscriber must know."""

    topic: str
    contract: ZmqContract
    capacity: int
    epoch: int
    pid: int
    uid: int
    name: str
    endpoint: str
    schema: bytes = b""


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


def _card_path(topic: str) -> str:
    # '~' is in no topic's name, so no other topic's socket is called so.
    return _socket_path(topic) + "~writer"


def _reader_card_path(topic: str) -> str:
    return _socket_path(topic) + "~reader"


class Claim:
    """A place on an `ipc://` topic that is ours, the writer's or a pipe's reader's: its card, locked."""

    def __init__(self, card: Card, role: Literal["writer", "reader"]) -> None:
        make_directory()
        self._socket_path = card.endpoint.removeprefix("ipc://") if role == "writer" else None
        self._path = _card_path(card.topic) if role == "writer" else _reader_card_path(card.topic)
        for _ in range(LOOKS):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(self._fd, self._path):  # else its owner took it away while we opened it
                    self.update(card)
                    return
            except BlockingIOError:
                time.sleep(LOOK_S)  # perhaps somebody only looks whether it is locked
            os.close(self._fd)
        self._refuse(card.topic, role)

    def _refuse(self, topic: str, role: str) -> None:
        there = _read_card(self._path)
        who = f"{role} {there.name!r} (pid {there.pid})" if there else f"a {role}"
        raise TopicBusy(f"topic '{topic}' has its one {role}: {who}; close it first")

    def update(self, card: Card) -> None:
        data = msgspec.json.encode(card)
        try:
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
        except OSError as error:
            raise SystemFailure(f"cannot write {self._path}: {error}") from error

    def give_up(self) -> None:
        """Take the card away, and the socket with it."""
        if self._fd >= 0:
            if self._socket_path is not None:
                Path(self._socket_path).unlink(missing_ok=True)
            os.unlink(self._path)
            self.forget()

    def forget(self) -> None:
        """In a child that inherited it through fork: the card is the parent's."""
        os.close(self._fd)
        self._fd = -1


def _same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _read_card(path: str) -> Card | None:
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Card)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None  # not there, or being written


def living_card(topic: str) -> Card | None:
    """The card of the topic's publisher, if it lives."""
    path = _card_path(topic)
    return _read_card(path) if _is_locked(path) else None


def _is_locked(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def living_cards() -> Iterator[Card]:
    """Of all publishers on `ipc://` here."""
    directory = _directory()
    for path in sorted(directory.glob("*~writer")) if directory.is_dir() else ():
        card = _read_card(str(path)) if _is_locked(str(path)) else None
        if card is not None:
            yield card


def reader_of(topic: str) -> Card | None:
    """The card of a pipe's reader, if it lives."""
    path = _reader_card_path(topic)
    return _read_card(path) if _is_locked(path) else None


def sweep() -> list[str]:
    """Take away the cards and sockets of dead publishers; returns their topics."""
    gone = []
    directory = _directory()
    for path in sorted(directory.glob("*~*er")) if directory.is_dir() else ():
        if _is_locked(str(path)):
            continue
        card = _read_card(str(path))
        path.unlink(missing_ok=True)
        if card is not None and path.name.endswith("~writer"):
            Path(card.endpoint.removeprefix("ipc://")).unlink(missing_ok=True)
            gone.append(card.topic)
    return gone


def with_endpoint(address: Address, endpoint: str) -> Address:
    return replace(address, endpoint=endpoint, bind=None)
