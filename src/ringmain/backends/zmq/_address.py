"""`Address`: where a topic is on the network. A table of addresses can be given in a file.

Owns this invariant: a publisher without keys listens only on this machine, unless its address says `insecure`.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from ringmain.errors import AddressError, NotAllowed

TABLE_VARIABLE = "RINGMAIN_ZMQ"
ZmqContract = Literal["broadcast", "pipe", "work"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a topic is, and the keys that it takes to connect.

    endpoint: "tcp://host:port" or "ipc://path": what a publisher binds to and a subscriber connects to.
    bind: what the publisher binds to instead, like "tcp://*:5556".
    contract: the topic's contract, for subscribers; only needed for pipe and work on tcp.
    queue: how many messages wait for a slow peer, on each side, before they are lost (broadcast) or block the writer.
    keys: a file with this side's CURVE keys, as `zmq.auth.create_certificates` writes it (the one ending in _secret).
    server_key: the publisher's public key (a file, or the key itself): what subscribers need if it has keys.
    clients: a directory with the public keys of those that may subscribe; without it, all that have the server_key may.
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
                raise AddressError(f"an address is 'tcp://host:port' or 'ipc://path', not {endpoint!r}")
        if self.contract not in get_args(ZmqContract):
            raise AddressError(f"an address has the contract 'broadcast', 'pipe' or 'work', not {self.contract!r}")
        if not isinstance(self.queue, int) or self.queue < 1:
            raise AddressError(f"queue is a number of messages, at least 1, not {self.queue!r}")
        for name in ("keys", "server_key", "clients"):
            if not isinstance(getattr(self, name), str | None):
                raise AddressError(f"{name} is a path, as a str, not {getattr(self, name)!r}")


def find(topic: str, given: str | Address | Mapping[str, Any] | None) -> Address | None:
    """The address that was given (a mapping has its fields), or that the table has. None: see the registry in the
    runtime directory."""
    if isinstance(given, Address):
        return given
    if given is not None:
        return Address(**given) if isinstance(given, Mapping) else Address(given)
    table = os.environ.get(TABLE_VARIABLE)
    return _read_table(table).get(topic) if table else None


def _read_table(path: str) -> dict[str, Address]:
    known = {field.name for field in fields(Address)}
    try:
        raw = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:  # not TOML, or not text
        why = error.strerror if isinstance(error, OSError) else error
        raise AddressError(f"{TABLE_VARIABLE}={path} cannot be read as a table of addresses: {why}") from error
    table = {}
    for topic, entry in raw.items():
        entry = {"endpoint": entry} if isinstance(entry, str) else entry
        if not isinstance(entry, dict) or "endpoint" not in entry or not set(entry) <= known:
            raise AddressError(
                f"{path}: topic {topic!r} needs an endpoint, and may have {', '.join(sorted(known))}", topic=topic
            )
        for key in ("keys", "server_key", "clients"):
            if isinstance(entry.get(key), str) and (Path(path).parent / entry[key]).exists():
                entry[key] = str(Path(path).parent / entry[key])
        try:
            table[topic] = Address(**entry)
        except AddressError as error:
            raise AddressError(f"{path}: topic {topic!r}: {error}", topic=topic) from error
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
            f"topic '{topic}' would be open to every machine that reaches {endpoint}: give its Address keys=, bind it "
            "to tcp://127.0.0.1:port, or say insecure=True (ringmain bridge: --keys, --insecure)",
            topic=topic,
        )


def set_keys(socket: Any, address: Address, *, server: bool) -> None:
    """CURVE, if the address has keys. A publisher needs its own, a subscriber the publisher's public key."""
    import zmq

    if server:
        if address.clients and not address.keys:
            raise AddressError("clients= needs keys=: without keys a publisher cannot tell subscribers apart")
        if address.keys:
            socket.curve_publickey, socket.curve_secretkey = _load(address.keys, "keys")
            socket.curve_server = True
    elif address.server_key:
        own = _load(address.keys, "keys") if address.keys else zmq.curve_keypair()
        socket.curve_publickey, socket.curve_secretkey = own
        try:
            socket.curve_serverkey = _server_key(address.server_key)
        except (ValueError, zmq.ZMQError):
            raise AddressError(
                f"server_key={address.server_key} is neither a file nor a key of 40 characters"
            ) from None
    elif address.keys:
        raise AddressError(
            f"a subscriber with keys ({address.keys}) needs server_key= too, the public key of the publisher at "
            f"{address.endpoint}"
        )


def _server_key(text: str) -> bytes:
    return _load(text, "server_key", secret=False)[0] if os.path.exists(text) else text.encode("ascii")


def _load(path: str, what: str, *, secret: bool = True) -> tuple[bytes, bytes]:
    import zmq.auth

    try:
        pair = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        why = "there is no such file" if not os.path.exists(path) else str(error)
        raise AddressError(f"{what}={path} cannot be read as a CURVE key: {why}") from error
    if secret and pair[1] is None:
        raise AddressError(f"{what}={path} has only the public key: name the file that ends in _secret")
    return pair[0], pair[1] or b""


def check_clients(directory: str) -> None:
    """ZeroMQ itself only logs that it cannot read them, and then admits no subscriber."""
    import zmq.auth

    try:
        count = len(zmq.auth.load_certificates(directory))
    except (OSError, ValueError) as error:
        why = "there is no such directory" if not os.path.isdir(directory) else str(error)
        raise AddressError(f"clients={directory} cannot be read as a directory of public keys: {why}") from error
    if not count:
        raise AddressError(f"clients={directory} has no public key (*.key), so no subscriber could connect")
