"""ringmain: single calls, iteration, batches, borrowing and frames. Between one writer and one reader on a `pipe`, else
on `reliable`: nothing may be lost. On `broadcast` where it may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, Literal

import ringmain as rm
from bench import pair
from bench.peers import Peer


class Single(Peer):
    name = "ringmain"
    can_spin = True
    can_fan_in = True
    can_fan_out = True

    @property
    def spin_s(self) -> float | None:
        # On a busy machine, long spinning would keep the other process from running.
        return None if self.spinning is None else 0.01 if self.spinning else 0.0

    @property
    def contract(self) -> Literal["pipe", "reliable", "broadcast"]:
        return "pipe" if self.senders == self.receivers == 1 else "reliable"

    def _publisher(self, lane: int) -> rm.Publisher:
        capacity = max(1 << 20, 2 * self.size)
        pub = rm.Publisher(f"lane/{lane}", contract=self.contract, capacity=capacity, spin=self.spin_s)
        if self.contract != "pipe":
            pub.wait_for_readers(self.receivers, timeout=pair.PATIENCE_S)
        return pub

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        with self._publisher(lane) as self._pub:
            yield self._pub.send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        with rm.Subscriber(f"lane/{lane}", spin=self.spin_s) as self._sub:
            while self.contract != "pipe" and not self._sub.attached:  # the senders wait for it
                rm.wait([self._sub], timeout=0.05)
            yield self._receive(self._sub)

    def _receive(self, sub: rm.Subscriber) -> pair.Receive:
        return sub.recv


class Reliable(Single):
    """As `ringmain`, on the contract for several writers and readers, with one of each."""

    name = "ringmain, reliable"
    batches = True
    can_fan_in = can_fan_out = False
    largest_bytes = 65536
    contract = "reliable"


class Broadcast(Single):
    """The writer never waits: a reader that is too slow is lapped."""

    name = "ringmain, broadcast"
    batches = True
    can_fan_in = can_fan_out = False
    drops = True
    contract = "broadcast"


class Iterating(Single):
    name = "ringmain, for"
    batches = True
    largest_bytes = 65536

    def consume(self, receive: pair.Receive, messages: list[bytes], count: int) -> None:
        sub, index = self._sub, 0
        while index < count:
            few = min(pair.STEP, count - index)
            for _ in islice(sub, few - 1):
                pass
            index += few
            pair.check(receive(), messages, index - 1)


class Batching(Single):
    name = "ringmain, batch"
    batches = True
    largest_bytes = 65536

    def produce(self, send: pair.Send, messages: list[bytes], count: int) -> None:
        send_many = self._pub.send_many
        for _ in range(count // len(messages)):
            send_many(messages)

    def consume(self, receive: pair.Receive, messages: list[bytes], count: int) -> None:
        recv_many, index = self._sub.recv_many, 0
        while index < count:
            batch = recv_many(64, pair.PATIENCE_S)
            pair.check(batch[0], messages, index)
            index += len(batch)


class Into(Single):
    """Large messages into a buffer that is used again."""

    name = "ringmain, recv_into"
    batches = True
    smallest_bytes = pair.LARGE_BYTES

    def _receive(self, sub: rm.Subscriber) -> pair.Receive:
        buffer, recv_into = bytearray(self.size), sub.recv_into

        def receive() -> bytearray:
            recv_into(buffer)
            return buffer

        return receive


class Borrowing(Single):
    """Reads large messages in place, as the peers that can do."""

    name = "ringmain, borrow"
    batches = True
    smallest_bytes = pair.LARGE_BYTES

    def _receive(self, sub: rm.Subscriber) -> pair.Receive:
        self._kept: list[rm.Lease] = []
        kept = self._kept

        def receive() -> memoryview:
            if kept:
                kept.pop().__exit__(None, None, None)
            kept.append(sub.borrow().__enter__())
            return memoryview(kept[0])

        return receive

    def consume(self, receive: pair.Receive, messages: list[bytes], count: int) -> None:
        super().consume(receive, messages, count)
        self._kept.pop().__exit__(None, None, None)


class Frames(Peer):
    """A pool of buffers: the writer fills one, the reader reads it where it lies, and only a descriptor travels. A
    frame that is read slower than the next comes would be passed over, so each is answered for before the
    next but one is written."""

    name = "ringmain, frames"
    batches = True
    smallest_bytes = pair.LARGE_BYTES
    AHEAD = 2
    SPIN_S = 0.01

    def _publisher(self, lane: int) -> rm.FramePublisher:
        return rm.FramePublisher(f"frames/{lane}", size=self.size, buffers=self.AHEAD + 1, spin=self.SPIN_S)

    def _data(self, frame: Any) -> Any:
        return frame.data

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        with self._publisher(lane) as pub, rm.Subscriber(f"done/{lane}", spin=self.SPIN_S) as done:
            ahead, publish, recv = 0, pub.send, done.recv

            def send(data: Any) -> None:
                nonlocal ahead
                if ahead == self.AHEAD:
                    recv(pair.PATIENCE_S)
                else:
                    ahead += 1
                publish(data)

            yield send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        with (
            rm.Publisher(f"done/{lane}", spin=self.SPIN_S) as done,
            rm.FrameSubscriber(f"frames/{lane}", spin=self.SPIN_S) as sub,
        ):
            self._frame: Any = None
            recv, data_of, finished = sub.recv, self._data, done.send

            def receive() -> Any:
                if self._frame is not None:
                    self._frame.release()
                    finished(b"")
                self._frame = recv(pair.PATIENCE_S)
                return data_of(self._frame)

            yield receive

    def consume(self, receive: pair.Receive, messages: list[bytes], count: int) -> None:
        pair.consume_large(receive, messages, count)
        self._frame.release()
        self._frame = None


PEERS: list[type[Peer]] = [Single, Reliable, Broadcast, Iterating, Batching, Into, Borrowing, Frames]
