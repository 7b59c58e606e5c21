"""`bridge`: carries messages from one topic to another, on any backends: shared memory to zmq and back.

Owns this invariant: a message that is carried keeps its number, time, sender and kind, and one that is dropped is
counted. So a reader of the target sees all losses on the way as gaps in the numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from ringmain._closing import Closing
from ringmain._contracts import CONTRACTS, DEFAULT_CONTRACT
from ringmain._publisher import Publisher
from ringmain._subscriber import Subscriber
from ringmain.backends import BACKENDS
from ringmain.errors import Closed, Full, MessageTooLarge, Timeout

SLICE_S = 0.1
"""How long a bridge waits before it checks whether it was closed."""
AT_ONCE = 256


@dataclass(slots=True)
class Traffic:
    """What a bridge has done so far."""

    carried: int = 0
    """Messages sent to the target."""
    carried_bytes: int = 0
    lost: int = 0
    """Messages that were overwritten in the source before the bridge read them."""
    full: int = 0
    """Messages dropped because the target had no room in time."""
    too_large: int = 0
    """Messages dropped because the target's capacity can never hold them."""

    @property
    def dropped(self) -> int:
        """All messages that did not reach the target."""
        return self.lost + self.full + self.too_large


class Bridge(Closing):
    """Carries messages from `source` to `target`: in a thread of its own after `start()`, or by calling `carry()`.

    timeout: seconds to wait for room, on contracts whose writer waits; then the message is dropped and counted.
    The bridge closes both ends when it is closed.
    """

    def __init__(self, source: Subscriber, target: Publisher, *, timeout: float | None = 1.0) -> None:
        self.source, self.target = source, target
        self.traffic = Traffic()
        self.error: BaseException | None = None
        """The exception that ended the thread, if any."""
        self._timeout = timeout
        self._epoch: int | None = None
        self._offset = 0
        self._sender = target.sender
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def carry(self, timeout: float | None = None) -> int:
        """Wait for a message and carry all that are there, up to a few hundred; returns how many were carried."""
        before = self.traffic.carried
        message = self._receive(timeout)
        for _ in range(AT_ONCE):
            if message is None:
                break
            self._send(message)
            message = self._receive(0)
        self.traffic.lost = self.source.lost
        return self.traffic.carried - before

    def _receive(self, timeout: float | None) -> Any:
        if timeout == 0:
            return self.source.try_recv_message()
        try:
            return self.source.recv_message(timeout)
        except Timeout:
            return None

    def _send(self, message: Any) -> None:
        self._follow_source(message.seq)
        try:
            wait_s = -1 if self._timeout is None else self._timeout
            number = message.seq + self._offset
            if message.sender != self._sender:
                self.target._set_sender(message.sender)
                self._sender = message.sender
            self.target._send_as(message.data, number, message.time_ns, message.kind, wait_s)
        except Full:
            self.traffic.full += 1
        except MessageTooLarge:
            self.traffic.too_large += 1
        else:
            self.traffic.carried += 1
            self.traffic.carried_bytes += len(message.data)

    def _follow_source(self, seq: int) -> None:
        """Numbers are kept, but never go back: when the source is recreated, its numbers continue after those that
        were sent already."""
        if self.source.epoch != self._epoch:
            self._epoch = self.source.epoch
            sent = self.target.next_sequence
            self._offset = sent - seq if seq < sent else 0
            if (schema := self.source.schema) is not None:
                self.target._set_schema(schema.to_bytes())

    def start(self) -> Self:
        """Carry in a thread, until `close`."""
        self._thread = threading.Thread(target=self._run, name=f"bridge {self.source.topic}", daemon=True)
        self._thread.start()
        return self

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.carry(SLICE_S)
        except Closed:
            pass
        except BaseException as error:
            self.error = error

    def run(self) -> None:
        """Carry here, until Ctrl-C or `close` from another thread."""
        while not self._stop.is_set():
            self.carry(SLICE_S)

    def close(self) -> None:
        """Stop, and close both ends. Raises the exception that ended the thread, if any."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self.source.close()
        self.target.close()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def __repr__(self) -> str:
        return f"<ringmain.Bridge {self.source!r} -> {self.target!r}: {self.traffic}>"


def bridge(
    source: Subscriber | str,
    target: Publisher | str,
    *,
    timeout: float | None = 1.0,
    start: bool = True,
    keys: str | None = None,
    server_key: str | None = None,
    clients: str | None = None,
    insecure: bool = False,
) -> Bridge:
    """Carry messages from one topic to another, in a thread: `with rm.bridge("imu", "zmq:imu") as carrying: ...`

    Each end is a subscriber or publisher (which is closed with the bridge), or a text: a topic of shared memory,
     "zmq:topic", or "zmq:topic@tcp://host:port".
    keys, server_key, clients, insecure: for an end that is a text with an address; `Address` explains them.
    """
    security = {"keys": keys, "server_key": server_key, "clients": clients, "insecure": insecure}
    subscriber = _open_source(source, security) if isinstance(source, str) else source
    try:
        publisher = _open_target(target, subscriber, security) if isinstance(target, str) else target
    except BaseException:
        subscriber.close()
        raise
    carrying = Bridge(subscriber, publisher, timeout=timeout)
    return carrying.start() if start else carrying


def parse_end(text: str, security: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """The arguments for an end written as text. `security`: further fields of its address."""
    backend, separator, rest = text.partition(":")
    if not separator:
        return {"topic": text, "backend": "shm"}
    if backend not in BACKENDS:
        raise ValueError(f"{text!r} is not an end of a bridge: write topic, zmq:topic or zmq:topic@tcp://host:port")
    topic, at, address = rest.partition("@")
    return {"topic": topic, "backend": backend, **({"address": {"endpoint": address, **security}} if at else {})}


def _open_source(text: str, security: Mapping[str, Any]) -> Subscriber:
    return Subscriber(**parse_end(text, security), name="bridge", start="oldest")


def _open_target(text: str, source: Subscriber, security: Mapping[str, Any]) -> Publisher:
    """With the source's contract if it has one writer, as the bridge is the only one; otherwise with the default."""
    contract: Any = source.contract
    if contract is None or not CONTRACTS[contract].one_writer:
        contract = DEFAULT_CONTRACT
    return Publisher(**parse_end(text, security), name="bridge", contract=contract)
