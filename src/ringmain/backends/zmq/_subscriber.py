"""Subscribing over ZeroMQ: SUB for a `broadcast`, PULL for `pipe` and `work`. The subscriber connects.

Owns this invariant: every message that does not arrive is counted. A gap in the numbers is a loss, and a subscriber
that existed before a new life of the topic counts from its first message.
"""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from typing import Any

import msgspec
import zmq

from ringmain import _names
from ringmain._contracts import CONTRACTS
from ringmain.backends import _features
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import parse_timeout
from ringmain.backends._python.subscriber import NO_TOPIC, PythonSubscriber
from ringmain.backends.zmq import _address, _registry, _wire
from ringmain.backends.zmq._address import Address
from ringmain.backends.zmq._deadline import SLICE_S, Deadline, poll_ms
from ringmain.backends.zmq._handshake import Handshake
from ringmain.backends.zmq._registry import Registration
from ringmain.errors import AddressError, NotAllowed, SystemFailure, TopicMismatch, WaitedFor

TOPIC_POLL_S = 0.01


class ZmqSubscriber(PythonSubscriber):
    """`ringmain.Subscriber` over ZeroMQ."""

    _backend = "zmq"

    def __init__(self, topic: str, **options: Any) -> None:
        self._prepare_options(topic, options)
        self._given = _address.find(self.topic, self._asked.address)
        self._lock = threading.RLock()
        self._socket: zmq.Socket[bytes] | None = None
        self._registration: Registration | None = None
        self._handshake: Handshake | None = None
        self._endpoint = ""
        self._follow_again_ns = 0
        self._joined_before_topic = False
        self._expected = 0
        self._lost = self._pending_lost = 0
        self._writer_name = ""
        self._schema_bytes = b""
        self._ahead: reference_ring.Record | None = None  # received, not taken
        self._forks = _names.forks()
        self._attach()
        self._opened()

    # ----------------------------------------------------------------------------------------- attaching

    def _attach(self) -> bool:
        """Connect, as soon as the address is known."""
        address = self._given or self._find_publisher()
        if address is None:
            self._joined_before_topic = True
            return False
        contract = address.contract
        is_pull = CONTRACTS[contract].takes_away
        if is_pull and self._asked.observe != "never":
            _features.refuse("zmq", self.topic, "observers of pipe and work")
        if CONTRACTS[contract].shared:
            self._check_worker()
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.PULL if is_pull else zmq.SUB)
        socket.linger, socket.rcvhwm = 0, address.queue
        socket.reconnect_ivl, socket.reconnect_ivl_max = 10, 1000
        try:
            _address.set_keys(socket, address, server=False)
            if not is_pull:
                socket.subscribe(b"")
            if self._given is not None:
                self._handshake = Handshake(self.topic, socket, address)
            socket.connect(address.endpoint)
        except AddressError as error:
            socket.close()
            raise AddressError(f"topic '{self.topic}': {error}", topic=self.topic) from error
        except zmq.ZMQError as error:
            self._detach()
            socket.close()
            raise SystemFailure(
                f"topic '{self.topic}' cannot connect to {address.endpoint}: {error}", topic=self.topic
            ) from error
        self._socket, self._contract, self._endpoint = socket, contract, address.endpoint
        return True

    def _check_worker(self) -> None:
        """What a worker skips, or gives back, would be lost: no other worker can get it."""
        if self._asked.max_deliveries is not None:
            _features.refuse("zmq", self.topic, "a worker gives messages back")
        if self._senders.active or self._kinds.active:
            _features.refuse("zmq", self.topic, "workers that take only some messages")
        self._check_contract("work", self._options)

    def _rescreen(self) -> None:
        super()._rescreen()
        if self._contract is not None and CONTRACTS[self._contract].shared:
            self._check_worker()

    def reject(self, task: Any) -> None:
        _features.refuse("zmq", self.topic, "a worker gives messages back")

    def _find_publisher(self) -> Address | None:
        """The address in the registry. A pipe's reader registers, since there is only one."""
        found = _registry.living_publisher(self.topic)
        if found is None:
            return None
        self._schema_bytes, self._writer_name = found.schema, found.name
        self._check_schema()
        if CONTRACTS[found.contract].one_reader and self._asked.observe == "never":
            mine = msgspec.structs.replace(
                found, capacity=0, pid=os.getpid(), pid_namespace=_names.pid_namespace(), uid=os.geteuid(),
                name=self.name, schema=b"",
            )  # fmt: skip
            self._registration = Registration(mine, "reader")
        return Address(found.endpoint, contract=found.contract)

    def _detach(self) -> None:
        ours = self._forks == _names.forks()
        for socket in (self._handshake, self._socket):
            if socket is not None and ours:
                socket.close()
        if self._registration is not None:
            self._registration.remove() if ours else self._registration.forget()
        self._socket = self._registration = self._handshake = None

    def _follow(self) -> None:
        """While no message comes: has the topic been recreated? Then it has another address. Or does the publisher
        at a given address refuse this subscriber?"""
        now_ns = time.monotonic_ns()
        if self._socket is None or now_ns < self._follow_again_ns:
            return
        self._follow_again_ns = now_ns + int(SLICE_S * 1e9)
        if self._handshake is not None:
            try:
                self._handshake.check()
            except NotAllowed:
                self._detach()  # ZeroMQ may have given up; the next attempt to receive connects again
                raise
        else:
            found = _registry.living_publisher(self.topic)
            if found is not None and found.endpoint != self._endpoint:
                self._detach()
                self._joined_before_topic = True

    def _usable(self) -> None:
        super()._usable()
        if self._forks != _names.forks():  # inherited through fork: the socket is the parent's
            self._detach()
            self._forks, self._epoch, self._ahead = _names.forks(), None, None

    # ----------------------------------------------------------------------------------------- receiving

    def _pull(self) -> reference_ring.Record | None:
        """The next message that has arrived. Hellos before it are processed."""
        while self._socket is not None:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            found, epoch, seq = _wire.unpack(self.topic, frames)
            if epoch != self._epoch:
                # A subscriber that existed before this life of the topic expects all of its messages.
                self._expected = 0 if self._epoch is not None or self._joined_before_topic else seq
                self._epoch = epoch
            if isinstance(found, _wire.Hello):
                self._process_hello(found)
                continue
            counts = not self._asked.conflate and self._contract is not None and not CONTRACTS[self._contract].shared
            if seq > self._expected and counts:
                self._lost += seq - self._expected
                self._pending_lost += seq - self._expected
            self._expected = seq + 1
            return found
        return None

    def _process_hello(self, hello: _wire.Hello) -> None:
        if hello.topic != self.topic:
            raise TopicMismatch(
                f"at {self._endpoint} is topic '{hello.topic}', not '{self.topic}': check the address", topic=self.topic
            )
        self._writer_name, self._schema_bytes = hello.name, hello.schema
        self._check_schema()

    def _look(self) -> reference_ring.Record | None:
        """The next message that is not ignored, if it has arrived."""
        if self._socket is None and not self._attach():
            return None
        if self._ahead is not None and self._screened(self._ahead):
            self._ahead = None
        while (self._ahead is None or self._asked.conflate) and (record := self._pull()) is not None:
            if not self._screened(record):
                self._ahead = record
        if self._ahead is None:
            self._follow()
        return self._ahead

    def _wait_a_slice(self, left_s: float) -> None:
        if self._socket is None:
            time.sleep(min(left_s, TOPIC_POLL_S))
        else:
            self._socket.poll(poll_ms(left_s), zmq.POLLIN)

    def _next(self, timeout_ns: int | None) -> reference_ring.Record | None:
        deadline = Deadline(timeout_ns)
        while True:
            with self._lock:
                self._check_open(while_waiting=True)
                record = self._look()
                left_s = deadline.left_s()
                if record is not None or timeout_ns == 0 or left_s == 0:
                    return record
                self._wait_a_slice(left_s)

    async def _anext(self, timeout_ns: int | None) -> reference_ring.Record | None:
        deadline = Deadline(timeout_ns)
        while True:
            self._check_open(while_waiting=True)
            record = self._look()
            left_s = deadline.left_s()
            if record is not None or timeout_ns == 0 or left_s == 0:
                return record
            if self._socket is None:
                await asyncio.sleep(min(left_s, TOPIC_POLL_S))
            else:
                await self._readable(min(left_s, SLICE_S))

    async def _readable(self, timeout_s: float) -> None:
        """ZeroMQ's descriptor reports changes, not messages: look before waiting for it, and again after."""
        loop = asyncio.get_running_loop()
        changed: asyncio.Future[None] = loop.create_future()
        descriptor = self.fileno()
        loop.add_reader(descriptor, _wake, changed)
        try:
            await asyncio.wait([changed], timeout=timeout_s)
        finally:
            loop.remove_reader(descriptor)
            changed.cancel()

    def fileno(self) -> int:
        """ZeroMQ's own descriptor. It is readable when something has changed: then call `try_recv` until it is None."""
        self._usable()
        if self._socket is None:
            raise OSError(f"topic '{self.topic}' has not appeared yet, so there is no descriptor to watch")
        return int(self._socket.fileno())

    def _take(self, record: reference_ring.Record) -> int:
        self._ahead = None
        lost, self._pending_lost = self._pending_lost, 0
        return lost

    def _reason_to_wait(self) -> tuple[str, list[WaitedFor]]:
        if self._socket is None:
            return NO_TOPIC, []
        if self._handshake is not None and self._handshake.trouble:
            return self._handshake.trouble, []
        if not self._writer_name:
            return f"waiting for a writer that has not answered yet at {self._endpoint}", []
        text = f"waiting for writer {self._writer_name!r} at {self._endpoint}"
        return text, [WaitedFor("writer", self._writer_name, None)]

    def _lost_just_before(self) -> int:
        return self._pending_lost

    # ------------------------------------------------------------------------------------- what is known

    @property
    def lost(self) -> int:
        """Messages lost since it was opened."""
        return self._lost

    @property
    def attached(self) -> bool:
        """Does it have an address to connect to?"""
        return self._socket is not None

    def _schema(self) -> bytes:
        return self._schema_bytes

    def _close(self) -> None:
        self._is_closed = True
        with self._lock:
            self._detach()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._contract is not None and CONTRACTS[self._contract].one_reader:
            self.close()  # there is one reader, so passing its subscriber on gives that role away
        return functools.partial(type(self), **{**self._options, **self._screens()}), ()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def wait(subscribers: list[ZmqSubscriber], timeout: float | None) -> list[ZmqSubscriber]:
    """Those that have something to read."""
    deadline = Deadline(timeout_ns := parse_timeout(timeout))
    while True:
        for subscriber in subscribers:
            subscriber._usable()
        ready = [subscriber for subscriber in subscribers if subscriber._look() is not None]
        left_s = deadline.left_s()
        if ready or timeout_ns == 0 or left_s == 0:
            return ready
        poller = zmq.Poller()
        for subscriber in subscribers:
            if subscriber._socket is not None:
                poller.register(subscriber._socket, zmq.POLLIN)
        all_attached = len(poller.sockets) == len(subscribers)
        poller.poll(poll_ms(left_s if all_attached else min(left_s, TOPIC_POLL_S)))
