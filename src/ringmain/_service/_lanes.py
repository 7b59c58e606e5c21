"""`Lanes`: where a server takes requests from. One topic, unless the service has more clients than a topic has
slots."""

from __future__ import annotations

from typing import Any

from ringmain import backends
from ringmain._publisher import Publisher
from ringmain._service import _endpoints
from ringmain._service._endpoints import lanes_of
from ringmain._subscriber import Subscriber, wait
from ringmain.errors import RingmainError

SLICE_S = 0.1
"""How long a server waits before it looks for new lanes, and for what else is due."""


class Lanes:
    """A worker on every lane of a service."""

    def __init__(self, service: str, type_: Any, capacity: int | str | None, options: dict[str, Any]) -> None:
        self._service, self._type, self._options = service, type_, options
        self._backend, self._requests = backends.get(options["backend"]), backends.requests(options["backend"])
        self.subscribers: list[Subscriber] = []
        self._refused: set[tuple[str, int]] = set()
        self._changes_seen: int | None = None
        # The topic exists from now on, with its schema: clients and `ringmain list` find it.
        creator = Publisher(
            service, contract="work", capacity=capacity, type=type_, name=options["name"], backend=options["backend"]
        )
        with creator:
            self._add(service)
        self.look_for_more()

    def _add(self, topic: str) -> None:
        self.subscribers.append(Subscriber(topic, type=self._type, **self._options))

    def look_for_more(self) -> None:
        """Join lanes that clients have opened since. One that cannot be joined, such as a topic of another contract or
        type that has this name, is left alone."""
        seen = self._requests.changes(self.subscribers[0])
        if seen is not None and seen == self._changes_seen:
            return
        self._changes_seen = seen
        joined = {subscriber.topic for subscriber in self.subscribers}
        for lane in lanes_of(self._service):
            if lane.name not in joined and (lane.name, lane.epoch) not in self._refused:
                try:
                    self._add(lane.name)
                except RingmainError:
                    self._refused.add((lane.name, lane.epoch))

    def take(self, most: int, timeout: float) -> list[Any]:
        """Leases of up to so many requests. Waits for the first; none if the time is up."""
        if len(self.subscribers) == 1:
            return self._requests.borrow_many(self.subscribers[0], most, timeout)
        deadline_s = self._requests.monotonic_ns(self.subscribers[0]) / 1e9 + timeout
        while True:
            found: list[Any] = []
            for subscriber in self.subscribers:
                found += self._requests.borrow_many(subscriber, most - len(found), 0)
            left_s = deadline_s - self._requests.monotonic_ns(self.subscribers[0]) / 1e9
            if found or left_s <= 0:
                self.subscribers.append(self.subscribers.pop(0))  # the next call begins with another lane
                return found
            wait(self.subscribers, left_s)

    async def atake(self, most: int, timeout: float) -> list[Any]:
        """`take` for asyncio."""
        found = self.take(most, 0)
        if not found and timeout > 0:
            await self._requests.wait_for_requests(self.subscribers, timeout)
            found = self.take(most, 0)
        return found

    @property
    def closed(self) -> bool:
        return any(subscriber.closed for subscriber in self.subscribers)

    def close(self) -> None:
        topics = [subscriber.topic for subscriber in self.subscribers]
        for subscriber in self.subscribers:
            subscriber.close()
        for topic in topics:
            _endpoints.remove_if_left(topic, self._backend)
