"""`ServerReport`: what a server has done, published once a second while there is something to say."""

from __future__ import annotations

from typing import Any

import msgspec

from ringmain._publisher import Publisher
from ringmain._service._topics import reports_topic

PERIOD_NS = 1_000_000_000
_SAMPLES = 512
"""Of each period: the first so many requests are measured."""
_CAPACITY = 64 * 1024


class ServerReport(msgspec.Struct, frozen=True):
    """What one server did in the last period. Times are of the requests answered in it; 0 if there were none."""

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


class Reporter:
    """Counts, and publishes a report when one is due."""

    def __init__(self, service: str, server: str, pid: int, types: tuple[str, str], backend: Any) -> None:
        self._server, self._pid, self._types = server, pid, types
        self.counts = {"": 0, "failed": 0, "gone": 0, "expired": 0}
        self.in_flight = 0
        self._queue_ns: list[int] = []
        self._handler_ns: list[int] = []
        self._answered_before = 0
        self._said: tuple[int, ...] = ()
        self._due_ns = 0
        self._since_ns = 0
        options: Any = {"contract": "bus", "capacity": _CAPACITY, "type": ServerReport, "backend": backend}
        self._publisher = Publisher(reports_topic(service), name=server, **options)

    def restart(self, server: str, pid: int) -> None:
        """In a forked child: this is another server."""
        self._server, self._pid, self.in_flight, self._said = server, pid, 0, ()
        self._answered_before = 0
        self.counts = dict.fromkeys(self.counts, 0)
        self._queue_ns.clear()
        self._handler_ns.clear()

    def note(self, outcome: str, queue_ns: int, handler_ns: int) -> None:
        self.in_flight -= 1
        self.counts[outcome] += 1
        if len(self._queue_ns) < _SAMPLES:
            self._queue_ns.append(queue_ns)
            self._handler_ns.append(handler_ns)

    def report_if_due(self, now_ns: int) -> None:
        if now_ns < self._due_ns:
            return
        said = (*self.counts.values(), self.in_flight)
        seconds = (now_ns - self._since_ns) / 1e9 if self._since_ns else 0.0
        idle = said == self._said
        self._due_ns, self._since_ns = now_ns + PERIOD_NS, now_ns
        if idle and not self._queue_ns:
            return
        self._said = said if not self._queue_ns else ()  # once more when idle, so that the last report says so
        answered = self.counts[""] + self.counts["failed"]
        rate_hz = (answered - self._answered_before) / seconds if seconds else 0.0
        self._answered_before = answered
        queue, handler = sorted(self._queue_ns), sorted(self._handler_ns)
        self._queue_ns.clear()
        self._handler_ns.clear()
        report = ServerReport(
            server=self._server,
            pid=self._pid,
            request=self._types[0],
            reply=self._types[1],
            requests=answered,
            failed=self.counts["failed"],
            gone=self.counts["gone"],
            expired=self.counts["expired"],
            in_flight=self.in_flight,
            rate_hz=rate_hz,
            queue_p50_us=centile_us(queue, 0.5),
            queue_p99_us=centile_us(queue, 0.99),
            handler_p50_us=centile_us(handler, 0.5),
            handler_p99_us=centile_us(handler, 0.99),
        )
        self._publisher.send(report)

    def close(self) -> None:
        self._publisher.close()


def centile_us(ordered_ns: list[int], part: float) -> float:
    return ordered_ns[min(len(ordered_ns) - 1, int(part * len(ordered_ns)))] / 1e3 if ordered_ns else 0.0
