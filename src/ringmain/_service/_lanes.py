"""`Lanes`: where a server takes requests from. One topic, unless the service has more clients than a topic has
slots."""

from __future__ import annotations

import itertools
from typing import Any

from ringmain import _inspect, _native
from ringmain._publisher import Publisher
from ringmain._service import _endpoints
from ringmain._service._topics import lane_topic
from ringmain._subscriber import Subscriber, wait
from ringmain.errors import TopicNotFound

SLICE_S = 0.1
"""How long a server waits before it looks for new lanes, and for what else is due."""


class Lanes:
    """A worker on every lane of a service."""

    def __init__(self, service: str, type_: Any, capacity: int | str | None, options: dict[str, Any]) -> None:
        self._service, self._type, self._options = service, type_, options
        self.subscribers: list[Subscriber] = []
        self._directory_seen = -1
        # The topic exists from now on, with its schema: clients and `ringmain list` find it.
        creator = Publisher(
            service, contract="work", capacity=capacity, type=type_, name=options["name"], backend=options["backend"]
        )
        with creator:
            self._add(1)
        self.look_for_more()

    def _add(self, lane: int) -> None:
        topic = lane_topic(self._service, lane)
        self.subscribers.append(Subscriber(topic, type=self._type, **self._options))

    def look_for_more(self) -> None:
        """Join lanes that clients have opened since."""
        first = self.subscribers[0]
        if isinstance(first, _native.Subscriber):
            seen = first._directory_count()
            if seen == self._directory_seen:
                return
            self._directory_seen = seen
        for lane in itertools.count(len(self.subscribers) + 1):
            try:
                _inspect.info(lane_topic(self._service, lane))
            except TopicNotFound:
                return
            self._add(lane)

    def take(self, most: int, timeout: float) -> list[Any]:
        """Leases of up to so many requests. Waits for the first; none if the time is up."""
        if len(self.subscribers) == 1:
            return _endpoints.borrow_many(self.subscribers[0], most, timeout)
        deadline_s = _endpoints.clock_s(self.subscribers[0]) + timeout
        while True:
            found: list[Any] = []
            for subscriber in self.subscribers:
                found += _endpoints.borrow_many(subscriber, most - len(found), 0)
            left_s = deadline_s - _endpoints.clock_s(self.subscribers[0])
            if found or left_s <= 0:
                self.subscribers.append(self.subscribers.pop(0))  # the next call begins with another lane
                return found
            wait(self.subscribers, left_s)

    async def atake(self, most: int, timeout: float) -> list[Any]:
        """`take` for asyncio."""
        found = self.take(most, 0)
        if not found and timeout > 0:
            from ringmain._service import _tasks

            await _tasks.ready(self.subscribers, timeout)
            found = self.take(most, 0)
        return found

    @property
    def closed(self) -> bool:
        return self.subscribers[0].closed

    def close(self) -> None:
        topics = [subscriber.topic for subscriber in self.subscribers]
        for subscriber in self.subscribers:
            subscriber.close()
        for topic in topics:
            _endpoints.remove_if_left(topic)
