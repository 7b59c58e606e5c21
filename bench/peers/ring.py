"""ringmain: single calls, iteration, and batches, on a `pipe`, the contract between one writer and one reader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import ringmain as rm
from bench import pair
from bench.peers import Peer
from ringmain.publisher import DEFAULT_SPIN_S


class Single(Peer):
    name = "ringmain"
    can_spin = True

    @property
    def spin_s(self) -> float:
        # Looking for long, on a machine whose cores are taken, keeps from running the very process that is waited for.
        return DEFAULT_SPIN_S if self.spinning is None else 0.01 if self.spinning else 0.0

    @contextmanager
    def sender(self, lane: int) -> Iterator[pair.Send]:
        capacity = max(1 << 20, 4 * self.size)
        with rm.Publisher(f"lane/{lane}", contract="pipe", capacity=capacity, spin=self.spin_s) as pub:
            yield pub.send

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        with rm.Subscriber(f"lane/{lane}", spin=self.spin_s) as sub:
            if self.size < 1 << 20:
                yield sub.recv
                return
            buffer = bytearray(self.size)
            recv_into = sub.recv_into

            def receive() -> bytearray:
                recv_into(buffer)
                return buffer

            yield receive


class Iterating(Single):
    name = "ringmain, for"
    largest_bytes = 65536

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        with rm.Subscriber(f"lane/{lane}", spin=self.spin_s) as sub:
            self._sub = sub
            yield sub.recv

    def consume(self, receive: pair.Receive, messages: list[bytes], count: int) -> None:
        sub, index = self._sub, 0
        while index < count:
            few = min(pair.STEP, count - index)
            for _ in islice(sub, few - 1):
                pass
            index += few
            pair.check(receive(), messages, index - 1)


class Batching(Iterating):
    name = "ringmain, batch"

    @contextmanager
    def sender(self, lane: int) -> Iterator[pair.Send]:
        capacity = max(1 << 20, 4 * self.size)
        with rm.Publisher(f"lane/{lane}", contract="pipe", capacity=capacity, spin=self.spin_s) as pub:
            self._pub = pub
            yield pub.send

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


class Borrowing(Single):
    """Looks at large messages where they lie, as those peers do that can."""

    name = "ringmain, borrow"
    smallest_bytes = 1 << 20

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        with rm.Subscriber(f"lane/{lane}", spin=self.spin_s) as sub:
            kept: list[rm.Lease] = []

            def receive() -> memoryview:
                if kept:
                    kept.pop().__exit__(None, None, None)
                kept.append(sub.borrow().__enter__())
                return memoryview(kept[0])

            yield receive
            kept.clear()


class Frames(Single):
    """A stream of frames in place of a topic: copied in by the publisher, looked at where they lie by the reader."""

    name = "ringmain, frames"
    smallest_bytes = 1 << 20

    @contextmanager
    def sender(self, lane: int) -> Iterator[pair.Send]:
        with rm.FramePublisher(f"lane/{lane}", size=self.size, spin=self.spin_s) as pub:

            def send(data: bytes) -> None:
                if pub.next_sequence == 0:
                    pub.wait_for_readers(1, timeout=pair.PATIENCE_S)
                while not pub.all_read:  # a reader that is slow would be lapped
                    pass
                pub.send(data)

            yield send

    @contextmanager
    def receiver(self, lane: int) -> Iterator[pair.Receive]:
        with rm.FrameSubscriber(f"lane/{lane}", spin=self.spin_s) as sub:
            yield lambda: next(sub).data


PEERS = [Single, Iterating, Batching, Borrowing, Frames]
