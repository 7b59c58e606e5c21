"""`Sender`: a client's way to the servers. Sends its requests, and asks what has become of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ringmain import _inspect
from ringmain._publisher import Publisher
from ringmain._service import _endpoints, _topics
from ringmain._service._calls import Call, Calls
from ringmain._service._service_info import why_no_reply
from ringmain.errors import Busy, Full, RosterFull, Timeout, TopicNotFound, WaitedFor

if TYPE_CHECKING:
    from ringmain._native import Reservation

_LONGEST_SEND_S = 0.01
"""For so long a call that does not wait for room waits for another thread that sends."""


class Sender:
    """Of one client, to one lane of a service. `options` are those of its publisher."""

    def __init__(self, service: str, calls: Calls, options: dict[str, Any]) -> None:
        self._service, self._calls = service, calls
        self.publisher = _join_lane(service, options)

    def clock_s(self) -> float:
        return _endpoints.monotonic_ns(self.publisher) / 1e9

    def new_call(self, timeout: float | None, retry: bool, done: Callable[[Call], None] | None = None) -> Call:
        if timeout is not None and not timeout > 0:
            raise ValueError(
                f"timeout={timeout:g}: a reply takes more than 0 s; None is no limit. To send only if there is room at "
                "once, pass room_timeout=0; only if a server is free, if_idle=True"
            )
        if timeout is not None and timeout >= _topics.FOREVER_S:
            timeout = None
        call = Call(timeout, None if timeout is None else self.clock_s() + timeout, retry)
        call.done = done
        return call

    def send(self, request: Any, call: Call, room_s: float | None, if_idle: bool, *, waits: bool = True) -> Call:
        """`waits`: for room. A task does not: it gets `Full`, and comes again."""
        kind = _topics.kind_of_request(call.deadline_s, call.retry)
        if if_idle:
            self._check_idle()
        wait_s = room_s if waits else 0
        # A thread that waits for room has it for as long. Otherwise it is had for the time of a send.
        if not self._calls.sending.acquire(timeout=-1 if wait_s is None else max(wait_s, _LONGEST_SEND_S)):
            raise Full(
                f"no room for a request to service '{self._service}'",
                service=self._service,
                timeout=wait_s,
                reason="another thread of its client waits for it",
            )
        try:
            self._calls.add(call, self.publisher.send(request, kind, wait_s))
        except Full as full:
            full.service = self._service
            if room_s != 0:
                raise
            raise self._busy(f"it has no room, {full.reason}", full.participants) from None
        finally:
            self._calls.sending.release()
        return call

    def reserve(self, size: int, call: Call, room_s: float | None) -> Reservation:
        kind = _topics.kind_of_request(call.deadline_s, call.retry)
        return self.publisher.reserve(size, kind=kind, timeout=room_s)

    def _check_idle(self) -> None:
        there = _inspect.info(self.publisher.topic)
        servers = [worker for worker in there.readers if worker.alive and worker.role == "reader"]
        if there.waiting == 0 and any(server.taken == 0 for server in servers):
            return
        taken = sum(server.taken for server in servers)
        raise self._busy(
            f"{len(servers)} servers have {taken} requests, and {there.waiting} wait"
            if servers
            else "it has no server",
            [WaitedFor(each.role, each.name, each.pid if each.same_namespace else None) for each in servers],
        )

    def _busy(self, reason: str, participants: Iterable[WaitedFor]) -> Busy:
        what = f"service '{self._service}' is busy"
        return Busy(what, topic=self.publisher.topic, service=self._service, reason=reason, participants=participants)

    def is_late(self, call: Call) -> bool:
        return call.deadline_s is not None and self.clock_s() >= call.deadline_s

    def is_lost(self, call: Call) -> bool:
        """Has the server died that had it, so that none will answer?"""
        return not call.retry and _endpoints.message_state(self.publisher, call.number) in ("returned", "orphaned")

    def timed_out(self, call: Call) -> Timeout:
        """What a call that is late raises. Its request is taken back."""
        state = _endpoints.message_state(self.publisher, call.number)
        reason = why_no_reply(self._service, self.publisher.topic, state)
        self.withdraw(call)
        what = f"no reply of service '{self._service}'"
        return Timeout(what, topic=self.publisher.topic, service=self._service, timeout=call.timeout, reason=reason)

    def withdraw(self, call: Call) -> None:
        """No caller waits for it any more: its room is for others, unless a server has it already."""
        if _endpoints.message_state(self.publisher, call.number) == "free":
            _endpoints.withdraw(self.publisher, [call.number])


def room_s(call: Call, room_timeout: float | None) -> float | None:
    """How long to wait for room: no longer than for the reply."""
    limits = [each for each in (room_timeout, call.timeout) if each is not None and each < _topics.FOREVER_S]
    return min(limits, default=None)


def _join_lane(service: str, options: dict[str, Any]) -> Publisher:
    for lane in itertools.count(1):
        topic = _topics.lane_topic(service, lane)
        try:
            writers = _inspect.info(topic).writers
        except TopicNotFound:
            writers = []
        if sum(writer.alive for writer in writers) >= _topics.CLIENTS_PER_LANE:
            continue
        try:
            return Publisher(topic, contract="work", **options)
        except RosterFull:
            continue
    raise AssertionError("itertools.count has no end")
