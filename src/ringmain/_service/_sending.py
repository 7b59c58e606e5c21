"""`Sender`: a client's way to the servers. Sends its requests, and says what has become of those without a result."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ringmain import _extension, _inspect, _names
from ringmain._publisher import Publisher
from ringmain._service import _topics
from ringmain._service._service_info import why_no_reply
from ringmain.errors import (
    Busy,
    Closed,
    Full,
    RequestFailed,
    RingmainError,
    RosterFull,
    ServerGone,
    Timeout,
    TopicNotFound,
    WaitedFor,
)

if TYPE_CHECKING:
    from ringmain._native import Reservation
    from ringmain.backends._requests import CallProtocol, ClientEndProtocol, Done


class Sender:
    """Of one client, to one lane of a service."""

    def __init__(self, service: str, publisher: Publisher, end: ClientEndProtocol) -> None:
        self._service, self.publisher, self._end = service, publisher, end

    def new_call(
        self, timeout: float | None, retry: bool, done: Done | None = None, waiter: Any = None
    ) -> CallProtocol:
        if timeout is not None and not timeout > 0:
            raise ValueError(
                f"timeout={timeout:g}: a reply takes more than 0 s; None is no limit. To send only if there is room at "
                "once, pass room_timeout=0; only if a server is free, if_idle=True"
            )
        return self._end.new_call(timeout, retry, done, waiter)

    def send(
        self, request: Any, call: CallProtocol, room_s: float | None, if_idle: bool, *, waits: bool = True
    ) -> CallProtocol:
        """`waits`: for room. A task does not: it gets `Full`, and comes again."""
        if if_idle:
            self._check_idle()
        try:
            self._end.send(request, call, room_s if waits else 0)
        except Full as full:
            full.service = self._service
            if room_s != 0:
                raise
            raise self._busy(f"it has no room, {full.reason}", full.participants) from None
        return call

    def reserve(self, size: int, call: CallProtocol, room_s: float | None) -> Reservation:
        says: Any = _extension.of_request(call.deadline_ns, call.retry)
        return self.publisher.reserve(size, kind=says, timeout=room_s)

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

    def failure(self, answer: str, payload: bytes, number: int, timeout: float | None) -> RingmainError:
        """What a call without a result raises. The request of one that is late is taken back."""
        service = self._service
        text = payload.decode(errors="replace")
        if answer == "failed":
            return RequestFailed(text, service=service)
        if answer == "gone":
            return ServerGone(f"service '{service}': {text}", service=service)
        if answer == "lost":
            gone = f"service '{service}': the server that had the request died, or left without an answer"
            return ServerGone(gone, service=service)
        if answer == "closed":
            return Closed(f"the client of service '{service}' was closed", service=service)
        reason = why_no_reply(service, self.publisher.topic, self._end.request_state(number))
        self.withdraw(number)
        what = f"no reply of service '{service}'"
        return Timeout(what, topic=self.publisher.topic, service=service, timeout=timeout, reason=reason)

    def withdraw(self, number: int) -> None:
        """No caller waits for it any more: its room is for others, unless a server has it already."""
        if self._end.request_state(number) == "free":
            with suppress(RingmainError):  # of a topic that was removed or is full of participants: then it stays
                self._end.withdraw(number)


def room_s(timeout: float | None, room_timeout: float | None) -> float | None:
    """How long to wait for room: no longer than for the reply."""
    limits = [each for each in (room_timeout, timeout) if each is not None and each < _topics.FOREVER_S]
    return min(limits, default=None)


_FULL_FOR_S = 1.0
"""How long this process believes that a lane which it found full still is: each of a thousand clients would look at the
participants of all."""
_full_until_s: dict[tuple[str, str, str], float] = {}
"""By backend, runtime directory and topic."""


def join_lane(service: str, options: dict[str, Any]) -> Publisher:
    for lane in itertools.count(1):
        topic = _topics.lane_topic(service, lane)
        here = (options["backend"], _names.runtime_directory(), topic)
        if time.monotonic() < _full_until_s.get(here, 0):
            continue
        try:
            writers = _inspect.info(topic).writers
        except TopicNotFound:
            writers = []
        if sum(writer.alive for writer in writers) >= _topics.CLIENTS_PER_LANE:
            _full_until_s[here] = time.monotonic() + _FULL_FOR_S
            continue
        try:
            return Publisher(topic, contract="work", **options)
        except RosterFull:
            continue
    raise AssertionError("itertools.count has no end")
