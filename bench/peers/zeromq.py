"""pyzmq over ipc. PUB/SUB is told to wait rather than drop, and begins when the subscription has arrived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from bench import pair
from bench.peers import Peer

COPY_BELOW = 65536
"""pyzmq's own advice: without a copy only where messages are large."""


class PushPull(Peer):
    name = "pyzmq PUSH/PULL"
    can_fan_in = True
    kinds = (zmq.PUSH, zmq.PULL)

    @contextmanager
    def _socket(self, kind: int, lane: int, binds: bool) -> Iterator[zmq.Socket[bytes]]:
        with zmq.Context() as context, context.socket(kind) as one:
            one.setsockopt(zmq.LINGER, 0)
            address = f"ipc://{self.directory}/zmq-{lane}"
            self._configure(one)
            if binds:
                one.bind(address)
            else:
                one.connect(address)
            yield one

    def _configure(self, one: zmq.Socket[bytes]) -> None:
        """PUSH waits by itself when its queue is full."""

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        with self._socket(self.kinds[0], lane, binds=self.senders == 1) as one:
            self._wait_for_readers(one)
            send = one.send
            yield send if self.size < COPY_BELOW else lambda data: send(data, copy=False)

    def _wait_for_readers(self, one: zmq.Socket[bytes]) -> None:
        """PUSH needs none."""

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        with self._socket(self.kinds[1], lane, binds=self.senders > 1) as one:
            receive = one.recv
            yield receive if self.size < COPY_BELOW else lambda: receive(copy=False).buffer


class PubSub(PushPull):
    name = "pyzmq PUB/SUB"
    kinds = (zmq.XPUB, zmq.SUB)
    can_fan_in = False
    can_fan_out = True

    def _configure(self, one: zmq.Socket[bytes]) -> None:
        if one.type == zmq.SUB:
            one.setsockopt(zmq.SUBSCRIBE, b"")
        else:
            one.setsockopt(zmq.XPUB_NODROP, 1)
            one.setsockopt(zmq.XPUB_VERBOSE, 1)  # tell of each subscription, not only of the first

    def _wait_for_readers(self, one: zmq.Socket[bytes]) -> None:
        for _ in range(self.receivers):
            if not one.poll(int(pair.PATIENCE_S * 1000)):
                raise TimeoutError("no subscription came")
            one.recv()


PEERS: list[type[Peer]] = [PushPull, PubSub]
