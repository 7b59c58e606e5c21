"""msgq-ipc, by commaai. Its publisher overwrites what a slow subscriber has not read, and tells neither: it takes part
where messages may be lost, and in round trips. Segments have the default size, of which a message may take a third."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgq

from bench import pair
from bench.peers import Peer


def _wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + pair.PATIENCE_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("no reader came")


class Msgq(Peer):
    name = "msgq-ipc"
    can_spin = True
    drops = True

    def _enter(self) -> None:
        """Segments in a directory of this measurement's own, by the variable that msgq has for it."""
        prefix = self.directory.rpartition("/")[2]
        os.environ["OPENPILOT_PREFIX"] = prefix
        Path(f"/dev/shm/msgq_{prefix}").mkdir(exist_ok=True)

    @contextmanager
    def sender(self, lane: int, index: int = 0) -> Iterator[pair.Send]:
        self._enter()
        publisher = msgq.pub_sock(f"lane{lane}")
        put, joined = publisher.send, False

        def send(data: bytes) -> None:
            nonlocal joined
            if not joined:  # a new publisher forgets its readers, and they come back with their next call
                _wait_until(publisher.all_readers_updated)
                joined = True
            put(data)

        yield send

    @contextmanager
    def receiver(self, lane: int, index: int = 0) -> Iterator[pair.Receive]:
        self._enter()
        receive = msgq.sub_sock(f"lane{lane}", timeout=int(pair.PATIENCE_S * 1e3)).receive

        def look() -> Any:
            turns = 0
            while (data := receive(True)) is None:
                turns += 1
                if turns % 100_000_000 == 0:
                    raise TimeoutError("nothing came")
            return data

        def wait() -> Any:
            data = receive()
            while data is None:  # it also returns early, after a signal
                data = receive()
            return data

        try:
            yield look if self.spinning else wait
        finally:
            shutil.rmtree(f"/dev/shm/msgq_{os.environ['OPENPILOT_PREFIX']}", ignore_errors=True)


PEERS: list[type[Peer]] = [Msgq]
