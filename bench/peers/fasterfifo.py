"""faster-fifo: one by one, and many at a time. Told not to pickle, since bytes need none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import faster_fifo

from bench import pair
from bench.peers import Peer


class FasterFifo(Peer):
    name = "faster-fifo"
    can_fan_in = True
    can_fan_out = True

    def __init__(
        self, directory: str, size: int, spinning: bool | None = None, senders: int = 1, receivers: int = 1
    ) -> None:
        super().__init__(directory, size, spinning, senders, receivers)
        room = max(1 << 20, 4 * size)
        self._queues: list[Any] = [
            faster_fifo.Queue(room, loads=bytes, dumps=bytes) for _ in range(max(2, self.receivers))
        ]

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        put = self._queues[lane].put
        if self.receivers == 1:
            yield lambda data: put(data, timeout=pair.PATIENCE_S)
            return
        puts = [queue.put for queue in self._queues]

        def send(data: bytes) -> None:
            for put in puts:
                put(data, timeout=pair.PATIENCE_S)

        yield send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        get = self._queues[index if self.receivers > 1 else lane].get
        yield lambda: get(timeout=pair.PATIENCE_S)


class Batched(FasterFifo):
    name = "faster-fifo, batch"
    batches = True
    can_fan_in = can_fan_out = False
    largest_bytes = 65536

    def produce(self, send: pair.Send, messages: list[bytes], count: int) -> None:
        put_many = self._queues[0].put_many
        for _ in range(count // len(messages)):
            put_many(messages, timeout=pair.PATIENCE_S)

    def consume(self, receive: pair.Receive, messages: list[bytes], count: int) -> None:
        get_many, index = self._queues[0].get_many, 0
        while index < count:
            batch = get_many(timeout=pair.PATIENCE_S, max_messages_to_get=1000)
            pair.check(batch[0], messages, index)
            index += len(batch)


PEERS: list[type[Peer]] = [FasterFifo, Batched]
