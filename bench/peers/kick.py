"""kickmsg: round trips, and throughput where messages may be lost. A subscriber's queue that is full loses messages,
and a sender cannot be told to wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import kickmsg

from bench import pair
from bench.peers import Peer


class Kick(Peer):
    name = "kickmsg"
    can_spin = True
    drops = True

    def _topic(self, lane: int) -> tuple[Any, str, Any]:
        config = kickmsg.Config()
        config.max_payload_size = self.size
        name = self.directory.rpartition("/")[2]
        return kickmsg.Node(f"{name}-{lane}", name), f"lane{lane}", config

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        node, topic, config = self._topic(lane)
        yield node.advertise_or_join(topic, config).send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        node, topic, config = self._topic(lane)
        subscriber = node.subscribe_or_create(topic, config)
        try_receive, patience = subscriber.try_receive, timedelta(seconds=pair.PATIENCE_S)

        def look() -> Any:
            turns = 0
            while (data := try_receive()) is None:
                turns += 1
                if turns % 100_000_000 == 0:
                    raise TimeoutError("nothing came")
            return data

        yield look if self.spinning else lambda: subscriber.receive(patience)
        node.unlink_topic(topic)
        kickmsg.unlink_shm(f"/{node.namespace}_registry")  # it keeps one a namespace, and each sample has its own


PEERS: list[type[Peer]] = [Kick]
