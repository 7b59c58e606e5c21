"""What happens to the participants of a topic, as events: losses, lag, deaths, who waits for whom.

It compares what `ringmain.info` says now and then: it takes no slot for it. What begins and ends between two looks is
not seen, but counters only grow, so every loss is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeAlias

from ringmain._topic_info import Participant, TopicInfo
from ringmain.view._shown import Event

_LAGS, _RECOVERED = 0.5, 0.25
"""Shares of the ring: a reader lags from the one on, until it is below the other."""
Key: TypeAlias = tuple[str, int, str, int]


class Roster:
    """The participants of one topic. `name`: this view's own, which is no event."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[Key, Participant] | None = None
        self._lagging: set[Key] = set()
        self._dead: set[Key] = set()

    def look(self, topic: TopicInfo) -> Iterator[Event]:
        now_ns = time.time_ns()
        there = {_key(each): each for each in (*topic.writers, *topic.readers) if each.name != self._name}
        known, self._known = self._known, there
        for key, each in there.items():
            before = known.get(key) if known is not None else each
            if before is None:
                yield Event(now_ns, f"{_who(each)} joined")
            elif each.lost > before.lost:
                more = each.lost - before.lost
                yield Event(now_ns, f"{_who(each)} lost {more:,} messages ({each.lost:,} in all)", "WARN")
            if not each.alive and key not in self._dead:
                self._dead.add(key)
                yield Event(now_ns, f"{_who(each)} died", "ERROR")
            yield from self._waits(now_ns, before, each)
            yield from self._lags(now_ns, key, each, topic.capacity)
        for key in (known or {}).keys() - there.keys():
            self._lagging.discard(key)
            if key not in self._dead:
                assert known is not None
                yield Event(now_ns, f"{_who(known[key])} is gone")
            self._dead.discard(key)

    def _waits(self, now_ns: int, before: Participant | None, now: Participant) -> Iterator[Event]:
        if now.waits_for and (before is None or before is now or before.waits_for != now.waits_for):
            yield Event(now_ns, f"{_who(now)} waits for {now.waits_for}", "WARN")

    def _lags(self, now_ns: int, key: Key, each: Participant, capacity: int) -> Iterator[Event]:
        if each.role != "reader" or not each.alive:
            return
        share = each.lag_bytes / capacity
        if share >= _LAGS and key not in self._lagging:
            self._lagging.add(key)
            yield Event(
                now_ns, f"{_who(each)} is {each.lag_messages:,} messages behind, {share:.0%} of the ring", "WARN"
            )
        elif share < _RECOVERED and key in self._lagging:
            self._lagging.discard(key)
            yield Event(now_ns, f"{_who(each)} has caught up")


def _key(each: Participant) -> Key:
    return each.role, each.pid, each.name, each.joined_ns


def _who(each: Participant) -> str:
    return f"{each.role} '{each.name}' ({each.pid_text})"
