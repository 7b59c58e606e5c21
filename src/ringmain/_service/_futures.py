"""Requests that are sent ahead of their results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concurrent.futures import Future

_SHORTEST_S = 1e-6
"""What is sent after the time is up is late at once."""


def map_requests(
    client: Any, requests: Iterable[Any], deadline_ns: int | None, buffersize: int | None, retry: bool
) -> Iterator[Any]:
    """`Client.map`. Requests are sent now, and further ones as results are asked for, not only once the first is."""
    source = iter(requests)
    sent: deque[Future[Any]] = deque()

    def left_s() -> float | None:
        if deadline_ns is None:
            return None
        left_ns: int = deadline_ns - client._requests.monotonic_ns(client._replies)
        return max(left_ns / 1e9, _SHORTEST_S)

    def send_more() -> None:
        for request in islice(source, None if buffersize is None else buffersize - len(sent)):
            sent.append(client.submit(request, left_s(), retry=retry))

    def results() -> Iterator[Any]:
        try:
            while sent:
                result = sent.popleft().result()
                send_more()
                yield result
        finally:
            for future in sent:
                future.cancel()

    send_more()
    return results()
