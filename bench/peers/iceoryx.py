"""iceoryx2: publish/subscribe on slices of bytes. Read by polling, as it is fastest; its writer waits for its reader.

It sleeps only with a second service for events, which is another program than most write: not measured.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import iceoryx2 as iox2

from bench import pair
from bench.peers import Peer

QUEUE = 64


class Iceoryx(Peer):
    name = "iceoryx2"
    can_spin = True
    can_sleep = False
    can_fan_in = True
    can_fan_out = True

    def _service(self, lane: int) -> tuple[Any, Any]:
        iox2.set_log_level(iox2.LogLevel.Error)
        node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        name = iox2.ServiceName.new(f"{self.directory}/{lane}")
        builder = node.service_builder(name).publish_subscribe(iox2.Slice[ctypes.c_uint8])
        builder = builder.enable_safe_overflow(False).subscriber_max_buffer_size(QUEUE if self.size <= 65536 else 4)
        builder = builder.max_publishers(max(2, self.senders)).max_subscribers(max(2, self.receivers))
        return node, builder.open_or_create()

    @contextmanager
    def publisher(self, lane: int) -> Iterator[Any]:
        node, service = self._service(lane)
        builder = service.publisher_builder().initial_max_slice_len(self.size)
        yield builder.backpressure_strategy(iox2.BackpressureStrategy.RetryUntilDelivered).create()
        del node  # kept until here: the service needs it

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        with self.publisher(lane) as publisher:
            loan, memmove, size = publisher.loan_slice_uninit, ctypes.memmove, self.size

            def send(data: bytes) -> None:
                delivered = 0
                while delivered == 0:  # told to retry until delivered, it returns all the same when the queue is full
                    sample = loan(size)
                    memmove(sample.payload_ptr, data, size)
                    delivered = sample.assume_init().send()
                if delivered != self.receivers:
                    raise pair.Wrong(f"delivered to {delivered} of {self.receivers}")

            yield send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        node, service = self._service(lane)
        subscriber = service.subscriber_builder().create()
        take, copy = subscriber.receive, ctypes.string_at
        size, large, content = self.size, self.size >= 1 << 20, ctypes.c_uint8 * self.size
        kept = None

        def receive() -> Any:
            nonlocal kept
            deadline = 0.0
            while (sample := take()) is None:
                if not deadline:
                    deadline = time.monotonic() + pair.PATIENCE_S
                elif time.monotonic() > deadline:
                    raise TimeoutError("nothing came")
            if not large:
                return copy(sample.payload_ptr, size)
            kept = sample  # read in place, until the next one comes
            return content.from_address(sample.payload_ptr)

        yield receive
        del node


PEERS: list[type[Peer]] = [Iceoryx]
