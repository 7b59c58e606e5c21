"""eclipse-zenoh: publish/subscribe between peers that find each other by address, with its shared memory.

Told to block rather than drop. Up to the threshold at which zenoh itself goes over to shared memory, messages are put
as bytes; above, they are written into memory of its provider, as its documentation shows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zenoh
from zenoh.shm import BlockOn, GarbageCollect, ShmProvider

from bench import pair
from bench.peers import Peer

SHARED_FROM = 3072
"""Its default `message_size_threshold`."""


class Zenoh(Peer):
    name = "zenoh"
    can_fan_out = True

    def _session(self, lane: int, listens: bool) -> Any:
        config = zenoh.Config()
        address = json.dumps([f"unixsock-stream/{self.directory}/zenoh-{lane}"])
        settings = {
            "mode": '"peer"',
            "scouting/multicast/enabled": "false",
            "transport/shared_memory/enabled": "true",
            ("listen" if listens else "connect") + "/endpoints": address,
        }
        if not listens:
            settings["listen/endpoints"] = "[]"
        for key, value in settings.items():
            config.insert_json5(key, value)
        return zenoh.open(config)

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        with self._session(lane, listens=True) as session:
            block = zenoh.CongestionControl.BLOCK
            publisher = session.declare_publisher(f"lane/{lane}", congestion_control=block)
            self._wait_for_readers(publisher, session)
            if self.size < SHARED_FROM:
                yield publisher.put
                return
            provider: Any = ShmProvider.default_backend(8 * self.size + (1 << 16))
            policy, size = BlockOn(GarbageCollect()), self.size

            def send(data: bytes) -> None:
                memory = provider.alloc(size, policy=policy)
                memory[:] = data
                publisher.put(memory)

            yield send

    def _wait_for_readers(self, publisher: Any, session: Any) -> None:
        deadline = time.monotonic() + pair.PATIENCE_S
        while len(list(session.info.peers_zid())) < self.receivers or not publisher.matching_status.matching:
            if time.monotonic() > deadline:
                raise TimeoutError("no subscriber came")
            time.sleep(0.01)
        time.sleep(0.1)  # it tells of a match, not of all of them

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        deadline = time.monotonic() + pair.PATIENCE_S
        while True:
            try:
                session = self._session(lane, listens=False)
                break
            except zenoh.ZError:  # the sender does not listen yet
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        with session:
            subscriber = session.declare_subscriber(f"lane/{lane}", zenoh.handlers.FifoChannel(256))
            recv = subscriber.recv
            yield lambda: recv().payload.to_bytes()  # it shows its shared memory only as a copy


PEERS: list[type[Peer]] = [Zenoh]
