"""Subscribing over ZeroMQ: SUB for a `broadcast`, PULL for a `pipe`. The subscriber connects.

Owns this invariant: what does not arrive is missed. Every gap in the numbers is counted, and a new life of the topic is
counted from its first message by whoever was there before it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import Any

import zmq

from ringmain.backends import _features
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import parse_timeout
from ringmain.backends._python.subscriber import PlainSubscriber
from ringmain.backends.zmq import _registry, _wire
from ringmain.backends.zmq._common import SLICE_S, Deadline, poll_ms, rebuild
from ringmain.backends.zmq._registry import Address, Card, Claim
from ringmain.errors import Closed, SystemFailure, TopicMismatch

LOOK_FOR_TOPIC_S = 0.01


class ZmqSubscriber(PlainSubscriber):
    """`ringmain.Subscriber` over ZeroMQ."""

    _backend = "zmq"

    def __init__(self, topic: str, *, address: str | Address | None = None, **options: Any) -> None:
        self._prepare_options(topic, **options)
        self._observes_pipes = self._observe != "never"
        self._options = {**options, "address": address}
        self._place = _registry.find(self.topic, address)
        self._lock = threading.RLock()
        self._socket: zmq.Socket[bytes] | None = None
        self._claim: Claim | None = None
        self._contract: str | None = None
        self._endpoint = ""
        self._follow_again_ns = 0
        self._came_first = False
        self._epoch: int | None = None
        self._expected = 0
        self._lost = self._pending_lost = 0
        self._writer_name = ""
        self._schema_bytes = b""
        self._ahead: reference_ring.Record | None = None  # looked at, not taken
        self._pid = os.getpid()
        self._attach()
        self._opened()

    # ----------------------------------------------------------------------------------------- attaching

    def _attach(self) -> bool:
        """Connect, as soon as it is known what to."""
        place, contract = self._place, ""
        if place is not None:
            contract = place.contract
        else:
            card = _registry.living_card(self.topic)
            if card is None:
                self._came_first = True
                return False
            place, contract = Address(card.endpoint), card.contract
            self._schema_bytes, self._writer_name = card.schema, card.name
            self._check_schema()
            if contract == "pipe" and not self._observes_pipes:
                self._claim = Claim(
                    Card(self.topic, "pipe", 0, card.epoch, os.getpid(), os.geteuid(), self.name, card.endpoint),
                    "reader",
                )
        if contract == "pipe" and self._observes_pipes:
            _features.refuse("zmq", self.topic, "observers of a pipe")
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB if contract == "broadcast" else zmq.PULL)
        socket.linger, socket.rcvhwm = 0, place.queue
        socket.reconnect_ivl, socket.reconnect_ivl_max = 10, 1000
        _registry.set_keys(socket, place, server=False)
        if contract == "broadcast":
            socket.subscribe(b"")
        try:
            socket.connect(place.endpoint)
        except zmq.ZMQError as error:
            socket.close()
            raise SystemFailure(f"topic '{self.topic}' cannot connect to {place.endpoint}: {error}") from error
        self._socket, self._contract, self._endpoint = socket, contract, place.endpoint
        return True

    def _detach(self) -> None:
        if self._socket is not None and os.getpid() == self._pid:
            self._socket.close()
        if self._claim is not None:
            self._claim.give_up() if os.getpid() == self._pid else self._claim.forget()
        self._socket = self._claim = None

    def _follow(self) -> None:
        """While nothing comes: is the topic still where we connected to? A new life of it is elsewhere."""
        now_ns = time.monotonic_ns()
        if self._place is None and self._socket is not None and now_ns >= self._follow_again_ns:
            self._follow_again_ns = now_ns + int(SLICE_S * 1e9)
            card = _registry.living_card(self.topic)
            if card is not None and card.endpoint != self._endpoint:
                self._detach()
                self._came_first = True

    def _usable(self) -> None:
        super()._usable()
        if os.getpid() != self._pid:  # inherited through fork: the socket is the parent's
            self._detach()
            self._pid, self._epoch, self._ahead = os.getpid(), None, None

    # ----------------------------------------------------------------------------------------- receiving

    def _pull(self) -> reference_ring.Record | None:
        """The next message that has arrived; hellos are heard on the way."""
        while self._socket is not None:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            found, epoch, seq = _wire.unpack(self.topic, frames)
            if epoch != self._epoch:
                # Whoever was there before this life of the topic has a claim on all of its messages.
                self._expected = 0 if self._epoch is not None or self._came_first else seq
                self._epoch = epoch
            if isinstance(found, _wire.Hello):
                self._hear(found)
                continue
            if seq > self._expected and not self._conflate:
                self._lost += seq - self._expected
                self._pending_lost += seq - self._expected
            self._expected = seq + 1
            return found
        return None

    def _hear(self, hello: _wire.Hello) -> None:
        if hello.topic != self.topic:
            raise TopicMismatch(f"at {self._endpoint} is topic '{hello.topic}', not '{self.topic}': check the address")
        self._writer_name, self._schema_bytes = hello.name, hello.schema
        self._check_schema()

    def _look(self) -> reference_ring.Record | None:
        """The next message that is not screened, if it has arrived."""
        if self._socket is None and not self._attach():
            return None
        if self._ahead is not None and self._screened(self._ahead):
            self._ahead = None
        while (self._ahead is None or self._conflate) and (record := self._pull()) is not None:
            if not self._screened(record):
                self._ahead = record
        if self._ahead is None:
            self._follow()
        return self._ahead

    def _wait_a_slice(self, left_s: float) -> None:
        if self._socket is None:
            time.sleep(min(left_s, LOOK_FOR_TOPIC_S))
        else:
            self._socket.poll(poll_ms(left_s), zmq.POLLIN)

    def _next(self, timeout_ns: int | None) -> reference_ring.Record | None:
        deadline = Deadline(timeout_ns)
        while True:
            with self._lock:
                if self._is_closed:
                    raise Closed(f"the subscriber of topic '{self.topic}' was closed while it waited")
                record = self._look()
                left_s = deadline.left_s()
                if record is not None or timeout_ns == 0 or left_s == 0:
                    return record
                self._wait_a_slice(left_s)

    async def _anext(self, timeout_ns: int | None) -> reference_ring.Record | None:
        deadline = Deadline(timeout_ns)
        while True:
            if self._is_closed:
                raise Closed(f"the subscriber of topic '{self.topic}' was closed while it waited")
            record = self._look()
            left_s = deadline.left_s()
            if record is not None or timeout_ns == 0 or left_s == 0:
                return record
            if self._socket is None:
                await asyncio.sleep(min(left_s, LOOK_FOR_TOPIC_S))
            else:
                await self._readable(min(left_s, SLICE_S))

    async def _readable(self, timeout_s: float) -> None:
        """ZeroMQ's descriptor tells of changes, not of messages: whoever was told must look, and has looked before."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[None] = loop.create_future()
        descriptor = self.fileno()
        loop.add_reader(descriptor, _tell, told)
        try:
            await asyncio.wait([told], timeout=timeout_s)
        finally:
            loop.remove_reader(descriptor)
            told.cancel()

    def fileno(self) -> int:
        """ZeroMQ's own descriptor. It becomes readable when something changes; then look with `try_recv` until None."""
        self._usable()
        if self._socket is None:
            raise OSError(f"topic '{self.topic}' has not appeared yet, so there is no descriptor to watch")
        return int(self._socket.fileno())

    def _take(self, record: reference_ring.Record) -> int:
        self._ahead = None
        lost, self._pending_lost = self._pending_lost, 0
        return lost

    def _whom_it_waits_for(self) -> str:
        if self._socket is None:
            return "there is no such topic (nobody has opened a publisher)"
        who = f"writer {self._writer_name!r}" if self._writer_name else "a writer that has not been heard of"
        return f"waiting for {who} at {self._endpoint}"

    # ------------------------------------------------------------------------------------- what is known

    @property
    def lost(self) -> int:
        """Messages lost since it was opened."""
        return self._lost

    @property
    def attached(self) -> bool:
        """Is it connected, as far as one can be before the first message?"""
        return self._socket is not None

    @property
    def contract(self) -> str | None:
        """The topic's contract; None before the topic exists."""
        self._usable()
        return self._contract

    @property
    def epoch(self) -> int | None:
        """Which life of the topic this is; None before it was heard of."""
        self._usable()
        return self._epoch

    def _schema(self) -> bytes:
        return self._schema_bytes

    def _close(self) -> None:
        self._is_closed = True
        with self._lock:
            self._detach()

    def __reduce__(self) -> tuple[Any, ...]:
        if self._contract == "pipe":  # one reader: whoever passes its subscriber on has given it away
            self.close()
        screens = {"ignore_senders": set(self._senders), "ignore_kinds": set(self._kinds)}
        return rebuild, (type(self), self.topic, {**self._options, **screens})


def _tell(future: asyncio.Future[None]) -> None:
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
        poller.poll(poll_ms(left_s if all_attached else min(left_s, LOOK_FOR_TOPIC_S)))
