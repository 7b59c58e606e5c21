"""What torch recognises by its class. Imported where torch is there."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING, Any

import torch.utils.data

if TYPE_CHECKING:
    from ringmain.datasets._stream import WindowStream


class TorchStream(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A stream for `DataLoader`: each worker is a rank of its own, of as many as the process has workers."""

    def __init__(self, stream: WindowStream) -> None:
        super().__init__()
        self.stream = stream

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = torch.utils.data.get_worker_info()
        if worker is None:
            yield from self.stream
            return
        mine = copy(self.stream)
        mine.rank = self.stream.rank * worker.num_workers + worker.id
        mine.ranks = self.stream.ranks * worker.num_workers
        yield from mine

    def state_dict(self) -> dict[str, Any]:
        """Without workers: each worker has its own place."""
        return self.stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.stream.load_state_dict(state)
