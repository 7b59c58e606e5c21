"""`ServiceInfo`: what is known of a service from outside. Asking takes no slot, and slows no server."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from ringmain import _inspect, _names, _native
from ringmain._service._endpoints import lanes_of
from ringmain._service._report import PERIOD_NS, ServerReport
from ringmain._service._topics import replies_topic, reports_topic
from ringmain._topic_info import Participant, TopicInfo
from ringmain.errors import RingmainError, TopicNotFound

if TYPE_CHECKING:
    from ringmain._ring import MessageState

_STALE_NS = 3 * PERIOD_NS
"""A server's report older than this says nothing of its rate now: it has had no request since."""


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """What is known of a service. The rate is that of the last second; times are of the last requests that were
    answered, by the slowest server."""

    name: str
    servers: list[Participant]
    """Living ones."""
    clients: int
    waiting: int
    """Requests that no server has taken."""
    in_flight: int
    """Requests that a server has taken and not answered."""
    request: str = ""
    """The types of requests and replies; empty: bytes. That of replies is known from the first request or client on."""
    reply: str = ""
    requests: int = 0
    """Answered by the servers that live."""
    failed: int = 0
    gone: int = 0
    expired: int = 0
    dropped: int = 0
    """Replies that were not delivered: their clients did not read, or their topics were not usable."""
    rate_hz: float = 0.0
    queue_p50_us: float = 0.0
    queue_p99_us: float = 0.0
    handler_p50_us: float = 0.0
    handler_p99_us: float = 0.0
    slowest: Participant | None = None
    """The server that has had a request the longest; `taken_for_ns` says for how long."""


def service(name: str) -> ServiceInfo:
    """What is known of a service. Raises `TopicNotFound` if there is none."""
    try:
        _inspect.info(reports_topic(name))  # it exists while a server lives
    except TopicNotFound:
        raise TopicNotFound(f"there is no service '{name}': no server of it is open", service=name) from None
    return _describe(name, lanes_of(name))


def services() -> list[ServiceInfo]:
    """All services that have a server, by name."""
    names = [topic.name.removesuffix(".servers") for topic in _inspect.topics() if topic.name.endswith(".servers")]
    found = []
    for name in names:
        with suppress(TopicNotFound):
            if lanes := lanes_of(name):
                found.append(_describe(name, lanes))
    return found


def _describe(name: str, lanes: list[TopicInfo]) -> ServiceInfo:
    workers = [worker for lane in lanes for worker in lane.readers if worker.alive and worker.role == "reader"]
    servers = [worker for worker in lanes[0].readers if worker.alive and worker.role == "reader"] if lanes else []
    living = {(server.name, server.pid) for server in servers}
    known = _reports(name)
    reports = [report for report in known if (report.server, report.pid) in living]
    schema = lanes[0].schema if lanes else None
    now_ns = time.monotonic_ns()
    fresh = [report for report in reports if now_ns - report.monotonic_ns < _STALE_NS]
    busy = [worker for worker in workers if worker.taken_ns and worker.taken]
    return ServiceInfo(
        name=name,
        servers=servers,
        clients=sum(writer.alive for lane in lanes for writer in lane.writers),
        waiting=sum(lane.waiting or 0 for lane in lanes),
        in_flight=sum(worker.taken for worker in workers),
        # Both are known also while no server lives.
        request=schema.type_name if schema else "",
        reply=next((report.reply for report in known), None) or _reply_type(name),
        requests=sum(report.requests for report in reports),
        failed=sum(report.failed for report in reports),
        gone=sum(report.gone for report in reports),
        expired=sum(report.expired for report in reports),
        dropped=sum(report.dropped for report in reports),
        rate_hz=sum(report.rate_hz for report in fresh),
        queue_p50_us=max((report.queue_p50_us for report in reports), default=0.0),
        queue_p99_us=max((report.queue_p99_us for report in reports), default=0.0),
        handler_p50_us=max((report.handler_p50_us for report in reports), default=0.0),
        handler_p99_us=max((report.handler_p99_us for report in reports), default=0.0),
        slowest=min(busy, key=lambda worker: worker.taken_ns, default=None),
    )


def _reply_type(name: str) -> str:
    """From a topic that a client has its replies on."""
    for topic in _native.topics(_names.runtime_directory()):
        if topic.startswith(replies_topic(name, "")):
            with suppress(RingmainError, ValueError):
                schema = _inspect.info(topic).schema
                return schema.type_name if schema else ""
    return ""


def _reports(name: str) -> list[ServerReport]:
    """The newest of each server."""
    newest: dict[tuple[str, int], ServerReport] = {}
    with suppress(RingmainError, ValueError):
        for message in _native.peek(_names.runtime_directory(), reports_topic(name), 256, 4096):
            with suppress(msgspec.MsgspecError):
                report = msgspec.msgpack.decode(message["data"] or b"", type=ServerReport)
                newest[report.server, report.pid] = report
    return list(newest.values())


def why_no_reply(name: str, lane: str, state: MessageState) -> str:
    """For the text of a timeout: where the request is."""
    try:
        there = _inspect.info(lane)
    except TopicNotFound:
        return "its topic was removed"
    servers = [worker for worker in there.readers if worker.alive and worker.role == "reader"]
    if not servers:
        return "it has no server"
    if state == "free":
        waiting = _counted(there.waiting or 0, "request")
        return f"{_counted(len(servers), 'server')}, and none has taken it yet ({waiting} in the queue)"
    if state == "done":
        return f"a server took it, and its reply did not come on '{replies_topic(name, '')}...'"
    busy = ", ".join(f"'{server.name}' ({server.pid_text})" for server in servers if server.taken)
    return f"a server has taken it and not answered yet: {busy or 'one that died'}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
