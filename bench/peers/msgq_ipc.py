"""msgq-ipc, by commaai. Its publisher overwrites what a slow subscriber has not read, and tells neither: it takes part
where messages may be lost, and in round trips. Segments have the default size, of which a message may take a third."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgq

from bench import pair
from bench.peers import Peer


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
        yield msgq.pub_sock(f"lane{lane}").send

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

        yield look if self.spinning else wait
        shutil.rmtree(f"/dev/shm/msgq_{os.environ['OPENPILOT_PREFIX']}", ignore_errors=True)


PEERS: list[type[Peer]] = [Msgq]
