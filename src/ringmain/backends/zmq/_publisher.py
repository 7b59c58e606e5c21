"""Publishing over ZeroMQ: `broadcast` is PUB/SUB, `pipe` is PUSH/PULL. The publisher binds.

Owns this invariant: whoever comes is told what the topic is and which number is next, before it can miss a message
without knowing. (The PUB side is an XPUB, which is a PUB that sees its subscriptions.)
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from ringmain.backends import _features
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import parse_timeout, seconds
from ringmain.backends._python.publisher import PlainPublisher
from ringmain.backends.zmq import _registry, _wire
from ringmain.backends.zmq._common import Deadline, poll_ms, rebuild
from ringmain.backends.zmq._registry import Address, Card, Claim
from ringmain.errors import Closed, Full, SystemFailure, Timeout, TopicBusy

LINGER_MS = 1000
"""How long closing may take to hand over what was sent."""


class ZmqPublisher(PlainPublisher):
    """`ringmain.Publisher` over ZeroMQ."""

    _backend = "zmq"

    def __init__(self, topic: str, *, address: str | Address | None = None, **options: Any) -> None:
        self._prepare_options(topic, **options)
        self._options = {**options, "address": address}
        asked = self._asked
        self._epoch = time.time_ns()
        given = _registry.find(self.topic, address)
        place = given or _registry.own_address(self.topic, self._epoch)
        self._contract = asked.contract or place.contract
        for wanted, feature in (
            (self._contract in ("bus", "reliable"), f"contract {self._contract}"),
            (asked.persist, "persist"),
            (asked.takeover, "takeover"),
        ):
            if wanted:
                _features.refuse("zmq", self.topic, feature)
        self._capacity = reference_ring.round_capacity(asked.capacity or reference_ring.DEFAULT_CAPACITY)
        self._seq = 0
        self._schema_bytes = self._own_schema
        self._peers = 0
        self._lock = threading.RLock()
        self._claim: Claim | None = None
        self._authenticator: Any = None
        self._monitor: Any = None
        _registry.check_exposure(self.topic, place)
        if given is None:
            self._claim = Claim(self._card(place.endpoint), "writer")
        try:
            self._bind(place, place.bind or place.endpoint, asked.mode)
        except BaseException:
            if self._claim is not None:
                self._claim.give_up()
            raise
        self._opened()

    def _card(self, endpoint: str) -> Card:
        contract: Any = self._contract
        return Card(
            self.topic, contract, self._capacity, self._epoch, os.getpid(), os.geteuid(), self.name, endpoint,
            self._schema_bytes,
        )  # fmt: skip

    def _bind(self, place: Address, endpoint: str, mode: int) -> None:
        # Who may come is asked of the whole context, so a publisher with a list of clients has one of its own.
        _registry.make_directory()
        self._context: zmq.Context[Any] = zmq.Context() if place.clients else zmq.Context.instance()
        if place.clients:
            from zmq.auth.thread import ThreadAuthenticator

            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve(domain="*", location=place.clients)
        self._socket = self._context.socket(zmq.XPUB if self._contract == "broadcast" else zmq.PUSH)
        try:
            self._socket.linger, self._socket.sndhwm = LINGER_MS, place.queue
            _registry.set_keys(self._socket, place, server=True)
            if self._contract == "broadcast":
                self._socket.xpub_verboser = 1  # every coming and going is shown: that is how readers are counted
            else:
                self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            self._socket.bind(endpoint)
        except zmq.ZMQError as error:
            self._close_sockets()
            if error.errno == zmq.EADDRINUSE:
                raise TopicBusy(f"topic '{self.topic}' cannot have {endpoint}: another has this address") from error
            raise SystemFailure(f"topic '{self.topic}' cannot bind {endpoint}: {error}") from error
        bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.address = _registry.with_endpoint(place, bound)
        if endpoint.startswith("ipc://"):
            os.chmod(endpoint.removeprefix("ipc://"), mode)

    # ------------------------------------------------------------------------------------------- readers

    def _meet_newcomers(self) -> None:
        """Count who came and went; tell newcomers what the topic is."""
        came = 0
        try:
            while True:
                if self._contract == "broadcast":
                    came += self._see(self._socket.recv(zmq.NOBLOCK)[:1] == b"\x01")
                else:
                    event = recv_monitor_message(self._monitor, zmq.NOBLOCK)
                    came += self._see(event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED)
        except zmq.Again:
            pass
        if came:
            contract: Any = self._contract
            hello = _wire.Hello(self.topic, contract, self._capacity, self.name, self._schema_bytes)
            frames = _wire.pack_hello(hello, self._seq, time.time_ns(), self._epoch)
            with suppress(zmq.Again):  # gone again, or its queue is full and it has all it needs
                self._socket.send_multipart(frames, zmq.NOBLOCK)

    def _see(self, is_coming: bool) -> int:
        self._peers = max(0, self._peers + (1 if is_coming else -1))
        return int(is_coming)

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int:
        timeout_ns = parse_timeout(timeout)
        deadline = Deadline(timeout_ns)
        while True:
            self._usable()
            with self._lock:
                self._usable()
                self._meet_newcomers()
                if self._peers >= count:
                    return self._peers
                left_s = deadline.left_s()
                if left_s == 0:
                    raise Timeout(
                        f"topic '{self.topic}' has {self._peers} of the {count} readers waited for, after "
                        f"{seconds(timeout_ns)}"
                    )
                source = self._socket if self._contract == "broadcast" else self._monitor
                source.poll(poll_ms(left_s), zmq.POLLIN)

    # ------------------------------------------------------------------------------------------- sending

    def _usable(self) -> None:
        super()._usable()
        if os.getpid() != self._pid:
            raise Closed(
                f"the publisher of topic '{self.topic}' belongs to the process that made it (pid {self._pid}): ZeroMQ "
                "sockets do not survive a fork, so make one here"
            )

    def _start(self, size: int, kind: str, timeout_ns: int | None) -> None:
        """A broadcast never waits; a pipe waits until its queue takes another message."""
        if self._contract == "broadcast":
            return
        deadline = Deadline(timeout_ns)
        while True:
            with self._lock:
                self._usable_while_waiting()
                self._meet_newcomers()
                left_s = deadline.left_s()
                if self._socket.poll(poll_ms(left_s) if left_s else 0, zmq.POLLOUT):
                    return
            if left_s == 0:
                who = "its reader, who has not come yet" if not self._peers else "its reader, whose queue is full"
                raise Full(f"topic '{self.topic}' had no room within {seconds(timeout_ns)}: waiting for {who}")

    def _usable_while_waiting(self) -> None:
        if self._is_closed:
            raise Closed(f"the publisher of topic '{self.topic}' was closed while it waited")

    def _finish(self, data: bytes, kind: str, seq: int | None = None, time_ns: int | None = None) -> int:
        with self._lock:
            self._usable_while_waiting()
            self._meet_newcomers()
            number = self._seq if seq is None else seq
            when_ns = time.time_ns() if time_ns is None else time_ns
            record = reference_ring.Record(0, 0, number, when_ns, self.sender, kind, data)
            self._socket.send_multipart(_wire.pack(record, self._epoch))
            self._seq = number + 1
            return number

    def _abort(self) -> None:
        """Nothing was taken that could be given back."""

    @property
    def all_read(self) -> bool:
        _features.refuse("zmq", self.topic, "all_read")

    @property
    def contract(self) -> reference_ring.Contract:
        return self._contract

    @property
    def capacity(self) -> int:
        """What the topic would have in shared memory; here it only limits the size of a message."""
        return self._capacity

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def next_sequence(self) -> int:
        self._usable()
        return self._seq

    def _schema(self) -> bytes:
        return self._schema_bytes

    def _set_schema(self, schema: bytes, /) -> None:
        self._schema_bytes = schema
        if self._claim is not None:
            self._claim.update(self._card(self.address.endpoint))

    # ------------------------------------------------------------------------------------------- closing

    def _close_sockets(self) -> None:
        if self._monitor is not None:
            self._socket.disable_monitor()
            self._monitor.close()
        self._socket.close()
        if self._authenticator is not None:
            self._authenticator.stop()
            self._context.destroy(linger=LINGER_MS)

    def _close(self) -> None:
        self._is_closed = True
        if os.getpid() != self._pid:
            if self._claim is not None:
                self._claim.forget()
            return
        with self._lock:
            self._close_sockets()
            if self._claim is not None:
                self._claim.give_up()

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.topic, self._options)
