"""`Address`: where a topic is on the network. A table of addresses can be given in a file.

Owns this invariant: a publisher without keys listens only on this machine, unless its address says `insecure`.
"""

from __future__ import annotations

import ipaddress
import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from ringmain.errors import NotAllowed

TABLE_VARIABLE = "RINGMAIN_ZMQ"
ZmqContract = Literal["broadcast", "pipe"]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a topic is, and the keys that it takes to connect.

    endpoint: "tcp://host:port" or "ipc://path": what a publisher binds to and a subscriber connects to.
    bind: what the publisher binds to instead, like "tcp://*:5556".
    contract: the topic's contract, for subscribers; only needed for a pipe on tcp.
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
                raise ValueError(f"an address is 'tcp://host:port' or 'ipc://path', not {endpoint!r}")
        if self.contract not in get_args(ZmqContract):
            raise ValueError(f"an address has the contract 'broadcast' or 'pipe', not {self.contract!r}")
        if self.queue < 1:
            raise ValueError(f"queue is a number of messages, at least 1, not {self.queue}")


def find(topic: str, given: str | Address | None) -> Address | None:
    """The address that was given, or that the table has. None: see the registry in the runtime directory."""
    if isinstance(given, Address):
        return given
    if given is not None:
        return Address(given)
    table = os.environ.get(TABLE_VARIABLE)
    return _read_table(table).get(topic) if table else None


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
            f"topic '{topic}' would be open to every machine that reaches {endpoint}: give its Address keys=, bind it "
            "to tcp://127.0.0.1:port, or say insecure=True"
        )


def set_keys(socket: Any, address: Address, *, server: bool) -> None:
    """CURVE, if the address has keys."""
    import zmq
    import zmq.auth

    if server and address.keys:
        public, secret = zmq.auth.load_certificate(address.keys)
        socket.curve_publickey, socket.curve_secretkey, socket.curve_server = public, secret, True
    elif not server and address.server_key:
        public, secret = zmq.auth.load_certificate(address.keys) if address.keys else zmq.curve_keypair()
        socket.curve_publickey, socket.curve_secretkey = public, secret
        is_file = os.path.exists(address.server_key)
        server_key = zmq.auth.load_certificate(address.server_key)[0] if is_file else address.server_key.encode()
        socket.curve_serverkey = server_key
