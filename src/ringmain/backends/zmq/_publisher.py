"""Publishing over ZeroMQ: `broadcast` is PUB/SUB, `pipe` and `work` are PUSH/PULL. The publisher binds.

Owns this invariant: every new subscriber gets a hello, with what the topic is and which number is next, before it can
miss a message unnoticed. (The PUB side is an XPUB, which is a PUB that sees its subscriptions.) On `work` a PUSH socket
chooses which worker gets the hello, and no worker counts losses.
"""

from __future__ import annotations

import functools
import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from ringmain import _extension, _names
from ringmain._contracts import CONTRACTS
from ringmain._extension import Said
from ringmain.backends import _features
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import parse_timeout, seconds
from ringmain.backends._python.publisher import PythonPublisher
from ringmain.backends.zmq import _address, _registry, _wire
from ringmain.backends.zmq._address import Address
from ringmain.backends.zmq._deadline import Deadline, poll_ms
from ringmain.backends.zmq._registry import Advertisement, Registration
from ringmain.errors import AddressError, Closed, SystemFailure, TopicBusy, no_room, too_few_readers

LINGER_MS = 1000
"""How long closing may wait until what was sent is delivered."""


class ZmqPublisher(PythonPublisher):
    """`ringmain.Publisher` over ZeroMQ."""

    _backend = "zmq"

    def __init__(self, topic: str, **options: Any) -> None:
        self._prepare_options(topic, options)
        asked = self._asked
        self.epoch = time.time_ns()
        given = _address.find(self.topic, asked.address)
        address = given or _registry.own_address(self.topic, self.epoch)
        self.contract = asked.contract or address.contract
        self._is_push = CONTRACTS[self.contract].takes_away
        for wanted, feature in (
            (True, f"contract {self.contract}"),
            (asked.persist, "persist"),
            (asked.takeover, "takeover"),
            (asked.min_readers, "min_readers"),
            (asked.keep_last_per_kind, "keep_last_per_kind"),
        ):
            if wanted and _features.missing("zmq", feature):
                _features.refuse("zmq", self.topic, feature)
        # The capacity only limits the size of a message: `Address.queue` says how many can wait.
        self.capacity = reference_ring.round_capacity(asked.capacity or reference_ring.DEFAULT_CAPACITY)
        self._seq = 0
        self._schema_bytes = self._own_schema
        self._peers = 0
        self._lock = threading.RLock()
        self._registration: Registration | None = None
        self._authenticator: Any = None
        self._monitor: Any = None
        _address.check_exposure(self.topic, address)
        if given is None:
            self._registration = Registration(self._advertisement(address.endpoint), "writer")
        try:
            self._bind(address, address.bind or address.endpoint, asked.mode or 0o600)
        except BaseException:
            if self._registration is not None:
                self._registration.remove()
            raise
        self._opened()

    def _advertisement(self, endpoint: str) -> Advertisement:
        contract: Any = self.contract
        return Advertisement(
            self.topic, contract, self.capacity, self.epoch, os.getpid(), os.geteuid(), self.name, endpoint,
            self._schema_bytes, _names.pid_namespace(),
        )  # fmt: skip

    def _bind(self, address: Address, endpoint: str, mode: int) -> None:
        # ZeroMQ authenticates for a whole context, so a publisher with a list of clients has a context of its own.
        _registry.make_directory()
        if address.clients:
            _address.check_clients(address.clients)
        self._context: zmq.Context[Any] = zmq.Context() if address.clients else zmq.Context.instance()
        if address.clients:
            from zmq.auth.thread import ThreadAuthenticator

            self._authenticator = ThreadAuthenticator(self._context)
            self._authenticator.start()
            self._authenticator.configure_curve(domain="*", location=address.clients)
        self._socket = self._context.socket(zmq.PUSH if self._is_push else zmq.XPUB)
        try:
            self._socket.linger, self._socket.sndhwm = LINGER_MS, address.queue
            _address.set_keys(self._socket, address, server=True)
            if self._is_push:
                self._monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            else:
                self._socket.xpub_verboser = 1  # reports every subscriber that comes or goes, so that they are counted
            self._socket.bind(endpoint)
        except AddressError as error:
            self._close_sockets()
            raise AddressError(f"topic '{self.topic}': {error}", topic=self.topic) from error
        except zmq.ZMQError as error:
            self._close_sockets()
            if error.errno == zmq.EADDRINUSE:
                raise TopicBusy(
                    f"topic '{self.topic}' cannot have {endpoint}: the address is in use", topic=self.topic
                ) from error
            raise SystemFailure(f"topic '{self.topic}' cannot bind {endpoint}: {error}", topic=self.topic) from error
        bound = self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")
        self.address = replace(address, endpoint=bound, bind=None)
        if endpoint.startswith("ipc://"):
            os.chmod(endpoint.removeprefix("ipc://"), mode)

    # ------------------------------------------------------------------------------------------- readers

    def _greet_newcomers(self) -> None:
        """Count the subscribers that came and went; send a hello if any came."""
        came = 0
        try:
            while True:
                if self._is_push:
                    event = recv_monitor_message(self._monitor, zmq.NOBLOCK)
                    came += self._count(event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED)
                else:
                    came += self._count(self._socket.recv(zmq.NOBLOCK)[:1] == b"\x01")
        except zmq.Again:
            pass
        if came:
            contract: Any = self.contract
            hello = _wire.Hello(self.topic, contract, self.capacity, self.name, self._schema_bytes)
            frames = _wire.pack_hello(hello, self._seq, time.time_ns(), self.epoch)
            with suppress(zmq.Again):  # it has left already, or its queue is full
                self._socket.send_multipart(frames, zmq.NOBLOCK)

    def _count(self, is_coming: bool) -> int:
        self._peers = max(0, self._peers + (1 if is_coming else -1))
        return int(is_coming)

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int:
        timeout_ns = parse_timeout(timeout)
        deadline = Deadline(timeout_ns)
        while True:
            self._usable()
            with self._lock:
                self._usable()
                self._greet_newcomers()
                if self._peers >= count:
                    return self._peers
                left_s = deadline.left_s()
                if left_s == 0:
                    raise too_few_readers(self.topic, seconds(timeout_ns), self._peers, count, sends=False)
                source = self._monitor if self._is_push else self._socket
                source.poll(poll_ms(left_s), zmq.POLLIN)

    # ------------------------------------------------------------------------------------------- sending

    def _usable(self) -> None:
        super()._usable()
        if self._forks != _names.forks():
            raise Closed(
                f"the publisher of topic '{self.topic}' belongs to the parent of this process: ZeroMQ sockets do not "
                "survive a fork, so make one here",
                topic=self.topic,
            )

    def _start(self, size: int, kind: Said | str, timeout_ns: int | None) -> None:
        """PUB never waits; PUSH waits until its queue takes another message."""
        if not self._is_push:
            return
        deadline = Deadline(timeout_ns)
        while True:
            with self._lock:
                self._check_open(while_waiting=True)
                self._greet_newcomers()
                left_s = deadline.left_s()
                if self._socket.poll(poll_ms(left_s) if left_s else 0, zmq.POLLOUT):
                    return
            if left_s == 0:
                who = "its reader, who has not come yet" if not self._peers else "its reader, whose queue is full"
                if CONTRACTS[self.contract].shared:
                    who = "a worker, and none has come yet" if not self._peers else "its workers, whose queues are full"
                raise no_room(self.topic, seconds(timeout_ns), who)

    def _finish(self, data: bytes, kind: Said | str, seq: int | None = None, time_ns: int | None = None) -> int:
        with self._lock:
            self._check_open(while_waiting=True)
            self._greet_newcomers()
            number = self._seq if seq is None else seq
            when_ns = time.time_ns() if time_ns is None else time_ns
            extension, name = _extension.parts_of(kind)
            record = reference_ring.Record(0, 0, number, when_ns, self.sender, name, data, extension=extension)
            self._socket.send_multipart(_wire.pack(record, self.epoch))
            self._seq = number + 1
            return number

    def _abort(self) -> None:
        """`_start` took nothing."""

    @property
    def all_read(self) -> bool:
        _features.refuse("zmq", self.topic, "all_read")

    @property
    def next_sequence(self) -> int:
        self._usable()
        return self._seq

    def _schema(self) -> bytes:
        return self._schema_bytes

    def _set_schema(self, schema: bytes, /) -> None:
        self._schema_bytes = schema
        if self._registration is not None:
            self._registration.update(self._advertisement(self.address.endpoint))

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
        if self._forks != _names.forks():
            if self._registration is not None:
                self._registration.forget()
            return
        with self._lock:
            self._close_sockets()
            if self._registration is not None:
                self._registration.remove()

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), **self._options), ()
