"""`ServerReport`: what a server has done, published once a second while there is something to say."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ringmain._publisher import Publisher
from ringmain._service._topics import reports_topic
from ringmain.errors import RingmainError

if TYPE_CHECKING:
    from ringmain._ring import ServerStatistics

PERIOD_NS = 1_000_000_000
_CAPACITY = 64 * 1024


class ServerReport(msgspec.Struct, frozen=True):
    """What one server has done. Its rate is that of the last period, its times are of the last requests that it
    answered."""

    server: str
    pid: int
    request: str
    """The type of requests, and of replies; empty if they are bytes."""
    reply: str
    requests: int
    """Answered since it was opened: with a result, or failed."""
    failed: int
    gone: int
    """Given up, because the server that had them was gone."""
    expired: int
    """Not computed, because their clients had given up."""
    in_flight: int
    """Taken, and not answered yet."""
    rate_hz: float
    queue_p50_us: float
    queue_p99_us: float
    """From when a request was sent to when it was taken."""
    handler_p50_us: float
    handler_p99_us: float
    """From when it was taken to when it was answered."""
    monotonic_ns: int = 0
    """When it was made, as `time.monotonic_ns()`."""
    dropped: int = 0
    """Replies that were not delivered: their clients did not read, or their topics were not usable."""


class Reporter:
    """Publishes a report when one is due."""

    def __init__(self, service: str, server: str, pid: int, types: tuple[str, str], backend: Any) -> None:
        self._server, self._pid, self._types = server, pid, types
        self._answered_before = 0
        self._before: ServerStatistics | None = None
        self._due_ns = self._since_ns = self._dropped_before = 0
        self._queue_ns: list[int] = []
        self._handler_ns: list[int] = []
        options: Any = {"contract": "bus", "capacity": _CAPACITY, "type": ServerReport, "backend": backend}
        self._publisher = Publisher(reports_topic(service), name=server, **options)

    def restart(self, server: str, pid: int) -> None:
        """In a forked child: this is another server."""
        self._server, self._pid, self._before = server, pid, None

    def report_if_due(self, now_ns: int, look: Callable[[], ServerStatistics], dropped: int) -> None:
        """`look` says what was done since it was last asked."""
        if now_ns < self._due_ns:
            return
        seconds = (now_ns - self._since_ns) / 1e9 if self._since_ns else 0.0
        self._due_ns, self._since_ns = now_ns + PERIOD_NS, now_ns
        seen = look()
        if seen == self._before and dropped == self._dropped_before:
            return
        self._before, self._dropped_before = seen, dropped
        answered = seen["replied"] + seen["failed"]
        rate_hz = (answered - self._answered_before) / seconds if seconds else 0.0
        self._answered_before = answered
        if seen["queue_ns"]:
            self._queue_ns, self._handler_ns = sorted(seen["queue_ns"]), sorted(seen["handler_ns"])
        queue, handler = self._queue_ns, self._handler_ns
        report = ServerReport(
            server=self._server,
            pid=self._pid,
            request=self._types[0],
            reply=self._types[1],
            requests=answered,
            failed=seen["failed"],
            gone=seen["gone"],
            expired=seen["expired"],
            in_flight=seen["in_flight"],
            rate_hz=rate_hz,
            queue_p50_us=centile_us(queue, 0.5),
            queue_p99_us=centile_us(queue, 0.99),
            handler_p50_us=centile_us(handler, 0.5),
            handler_p99_us=centile_us(handler, 0.99),
            monotonic_ns=now_ns,
            dropped=dropped,
        )
        with suppress(RingmainError):  # a topic that others made unusable must not end the server
            self._publisher.send(report)

    def close(self) -> None:
        self._publisher.close()


def centile_us(ordered_ns: list[int], part: float) -> float:
    return ordered_ns[min(len(ordered_ns) - 1, int(part * len(ordered_ns)))] / 1e3 if ordered_ns else 0.0
