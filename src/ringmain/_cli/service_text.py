"""Services as text and JSON, and what may be wrong with one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ringmain._cli.machine_checks import Finding
from ringmain._cli.text_format import Right, count_text, duration_text, printable, rate_text, table
from ringmain._cli.topic_summary import participant_dict
from ringmain._inspect import TopicInfo
from ringmain._service import ServiceInfo, service
from ringmain._service._topics import service_of
from ringmain.errors import RingmainError

_HEADS = (
    "SERVICE",
    "REQUEST",
    "REPLY",
    "SERVERS",
    "CLIENTS",
    "WAITING",
    "IN FLIGHT",
    "HZ",
    "QUEUE",
    "HANDLER",
    "FAILED",
)
_SLOW_NS = 1_000_000_000
"""A request that a server has had for longer than this is worth a note."""


def service_named(name: str) -> ServiceInfo | None:
    """None: no service of that name has a server."""
    try:
        return service(name)
    except (RingmainError, ValueError):
        return None


def without_parts(topics: Iterable[TopicInfo], known: Iterable[ServiceInfo]) -> list[TopicInfo]:
    """The topics, without those that are part of a service: its replies, further lanes and reports."""
    names = {each.name for each in known}
    return [topic for topic in topics if service_of(topic.name) not in names]


def service_dict(known: ServiceInfo) -> dict[str, Any]:
    """A service as JSON. The names are those of `rm.service`."""
    plain = {name: getattr(known, name) for name in ServiceInfo.__slots__}
    plain["servers"] = [participant_dict(server) for server in known.servers]
    plain["slowest"] = participant_dict(known.slowest) if known.slowest else None
    return plain


def services_table(known: Iterable[ServiceInfo]) -> str:
    return table(_HEADS, map(_row, known))


def _row(known: ServiceInfo) -> list[object]:
    numbers = (known.clients, known.waiting, known.in_flight)
    return [
        known.name,
        known.request or "bytes",
        known.reply or "bytes",
        Right(str(len(known.servers))),
        *(Right(count_text(number)) for number in numbers),
        Right(rate_text(known.rate_hz)),
        times_text(known.queue_p50_us, known.queue_p99_us),
        times_text(known.handler_p50_us, known.handler_p99_us),
        Right(count_text(known.failed)),
    ]


def times_text(p50_us: float, p99_us: float) -> str:
    """p50 / p99; `-` if there were no requests lately."""
    return f"{duration_text(p50_us * 1e3)} / {duration_text(p99_us * 1e3)}" if p99_us else "-"


def describe_service(known: ServiceInfo) -> str:
    """A few lines, for `ringmain info` and the live view."""
    lines = [
        f"service {printable(known.name)}: {known.request or 'bytes'} -> {known.reply or 'bytes'}",
        f"  servers   {', '.join(f'{printable(each.name)} ({each.pid_text})' for each in known.servers) or 'none'}",
        f"  clients   {known.clients}",
        f"  requests  {known.waiting} waiting, {known.in_flight} in flight, {rate_text(known.rate_hz)} Hz",
        f"  answered  {count_text(known.requests)}, of which {count_text(known.failed)} failed; "
        f"{count_text(known.expired)} expired, {count_text(known.gone)} lost their server"
        + (f", {count_text(known.dropped)} replies dropped" if known.dropped else ""),
        f"  in queue  {times_text(known.queue_p50_us, known.queue_p99_us)} (p50 / p99)",
        f"  handler   {times_text(known.handler_p50_us, known.handler_p99_us)} (p50 / p99)",
    ]
    if known.slowest is not None and known.slowest.taken_for_ns > _SLOW_NS:
        since = duration_text(known.slowest.taken_for_ns)
        lines.append(f"  slowest   {printable(known.slowest.name)} has had a request for {since}")
    return "\n".join(lines)


def brief(known: ServiceInfo) -> str:
    """One cell of the live view."""
    queue = times_text(known.queue_p50_us, known.queue_p99_us)
    handler = times_text(known.handler_p50_us, known.handler_p99_us)
    return f"{known.clients} clients, {known.in_flight} in flight, queue {queue}, handler {handler}"


def check_service(known: ServiceInfo) -> Iterator[Finding]:
    """For `ringmain doctor NAME`."""
    where = f"{known.clients} clients, {known.waiting} requests wait, {known.in_flight} in flight"
    if not known.servers:
        yield Finding("service", "bad", f"no server: {where}", f"start a process that opens rm.Server('{known.name}')")
        return
    yield Finding("service", "ok", f"{len(known.servers)} servers, {where}, {rate_text(known.rate_hz)} Hz")
    if known.handler_p99_us:
        queue, handler = (
            times_text(known.queue_p50_us, known.queue_p99_us),
            times_text(known.handler_p50_us, known.handler_p99_us),
        )
        text = f"in queue {queue}, in the handler {handler} (p50 / p99)"
        slow = known.queue_p99_us > 10 * known.handler_p99_us
        remedy = "requests wait longer than they take: start another server, or take batches" if slow else ""
        yield Finding("times", "note" if slow else "ok", text, remedy)
    if known.slowest is not None and known.slowest.taken_for_ns > _SLOW_NS:
        since = duration_text(known.slowest.taken_for_ns)
        yield Finding("slow", "note", f"server '{known.slowest.name}' has had a request for {since}")
    for count, what in ((known.failed, "failed"), (known.expired, "expired"), (known.gone, "lost their server")):
        if count:
            yield Finding("requests", "note", f"{count} of {known.requests + known.expired + known.gone} {what}")
    if known.dropped:
        remedy = "clients that read their replies, or have a larger reply_capacity"
        yield Finding("replies", "note", f"{known.dropped} replies were dropped: their clients did not read", remedy)
