"""`Latest`: the newest message of many topics, and the state of each topic. For control loops.

One wait for all topics. All messages are received, so that losses and rates are measured, but only the newest message
of a topic is kept, and decoded when it is used. Memory does not grow with time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ringmain import _names
from ringmain._closing import Closing
from ringmain._message import Message
from ringmain._subscriber import Start, Subscriber, wait
from ringmain.errors import Closed, DecodeError, TopicMismatch

if TYPE_CHECKING:
    from datetime import datetime, timedelta
    from pathlib import Path

    from ringmain.frames import Frame, FrameSubscriber
    from ringmain.recording import Incident, Recording

T = TypeVar("T")

_PERIODS_TO_LIVE = 10
_RATE_TOLERANCE = 0.2
_MOST_AT_ONCE = 100_000  # update() must return even if a publisher never stops


class _Point(NamedTuple):
    """A message that a rate is measured from or to."""

    seq: int
    sent_s: float
    """Monotonic."""


class _Entry:
    """One topic: its subscriber, its newest message, and the two points that its rate is measured between."""

    def __init__(self, topic: str, rate_hz: float | None, type_: Any, begin: Mapping[str, Any], periods: float) -> None:
        if rate_hz is not None and not 0 < rate_hz < 1e9:
            raise ValueError(f"the expected rate of '{topic}' is a number of Hz above 0, or None, not {rate_hz!r}")
        self.rate_hz = rate_hz
        self.start: Start = begin.get("start", "oldest")
        self.periods = periods
        self.topic = topic
        self.lost_before = 0
        self.subscriber: Subscriber | FrameSubscriber
        try:
            self.subscriber = Subscriber(topic, **begin)
        except TopicMismatch:
            self.change_kind()
        self.codec: Any = None
        self.own_type = type_ is not None
        self.epoch: int | None = None
        if type_ is not None:
            from ringmain import typed

            self.codec = typed.codec_for(type_)
        self.message: Message | Frame | None = None
        self.decoded: Any = None
        self.is_decoded = False
        self.updated = False
        self.looked_s = time.monotonic()
        self.arrived_s = 0.0  # monotonic
        # The rate is measured from `mark` to `newest`. Every `_PERIODS_TO_LIVE` periods `next_mark` becomes `mark`.
        self.mark: _Point | None = None
        self.next_mark: _Point | None = None
        self.newest: _Point | None = None

    def change_kind(self) -> None:
        """A topic of messages turned out to be a frame topic, or the other way round."""
        from ringmain.frames import FrameSubscriber

        before = getattr(self, "subscriber", None)
        if before is not None:
            self.lost_before += before.lost
            before.close()
        # What was sent to it in this life is new: it begins with the oldest.
        start: Start = self.start if before is None else "oldest"
        kind = Subscriber if isinstance(before, FrameSubscriber) else FrameSubscriber
        self.subscriber = kind(self.topic, start=start)

    def receive(self) -> bool:
        try:
            newest = self._newest()
        except TopicMismatch:
            self.change_kind()
            newest = self._newest()
        looked_before_s, self.looked_s = self.looked_s, time.monotonic()
        self.updated = newest is not None
        if newest is None:
            return False
        if self.message is not None and newest.seq < self.message.seq:
            self.mark = self.next_mark = None  # the topic was recreated
        self._replace(newest)
        self.arrived_s = self.looked_s
        if getattr(self.subscriber, "_gave_past", False):  # a message of a recording came when it was sent
            self.arrived_s = self.looked_s - max(0.0, (time.time_ns() - newest.time_ns) / 1e9)
            self._move_marks(_Point(newest.seq, self.arrived_s))
            return True
        # How long ago it was sent, by the wall clock: but not before the last look, nor after this one, whatever that
        # clock was set to meanwhile, or is on the machine that sent it.
        sent_s = self.looked_s - (time.time_ns() - newest.time_ns) / 1e9
        self._move_marks(_Point(newest.seq, min(max(sent_s, looked_before_s), self.looked_s)))
        return True

    def _newest(self) -> Message | Frame | None:
        newest = None
        for _ in range(_MOST_AT_ONCE):
            message = self.subscriber.try_recv_message()
            if message is None:
                break
            newest = message
        return newest

    def _replace(self, newest: Message | Frame | None) -> None:
        """A frame's block ends when a newer one replaces it."""
        if self.message is not None and not isinstance(self.message, Message):
            self.message.release()
        self.message, self.decoded, self.is_decoded = newest, None, False

    def close(self) -> None:
        self.subscriber.close()
        if not isinstance(self.message, Message):
            self._replace(None)

    def _move_marks(self, point: _Point) -> None:
        self.newest = point
        if self.mark is None or self.next_mark is None:
            self.mark = self.next_mark = point
        elif self.rate_hz is not None and (point.sent_s - self.next_mark.sent_s) * self.rate_hz >= _PERIODS_TO_LIVE:
            self.mark, self.next_mark = self.next_mark, point

    def data(self) -> Any:
        if self.message is None:
            return None
        if not self.is_decoded:
            self.decoded, self.is_decoded = self._decode(self.message), True
        return self.decoded

    def _decode(self, message: Message | Frame) -> Any:
        if not isinstance(message, Message):
            return message
        if not self.own_type and self.epoch != self.subscriber.epoch:
            from ringmain import typed

            self.epoch = self.subscriber.epoch
            schema = self.subscriber.schema
            self.codec = typed.codec_from_schema(schema) if schema else None
        if self.codec is None:
            return message.data
        try:
            return self.codec.decode(message.data)
        except Exception as error:
            raise DecodeError(self.subscriber.topic, message.seq, str(error)) from error

    def age_s(self) -> float:
        return time.monotonic() - self.arrived_s if self.message is not None else float("inf")

    def alive(self) -> bool:
        if self.message is None or self.rate_hz is None:
            return self.message is not None
        return self.age_s() * self.rate_hz <= self.periods

    def rate_ok(self) -> bool:
        if not self.alive() or self.rate_hz is None:
            return self.alive()
        assert self.mark is not None
        assert self.newest is not None
        messages, seconds = self.newest.seq - self.mark.seq, self.newest.sent_s - self.mark.sent_s
        if messages == 0 or seconds <= 0:
            return False  # a rate needs two messages
        return abs(messages / seconds / self.rate_hz - 1) <= _RATE_TOLERANCE


class Column(Mapping[str, T], Generic[T]):
    """One property of every topic, computed when it is read."""

    def __init__(self, entries: dict[str, _Entry], look: Callable[[_Entry], T]) -> None:
        self._entries = entries
        self._look = look

    def __getitem__(self, topic: str) -> T:
        return self._look(self._entries[topic])

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self))


class Tick(NamedTuple):
    """One round of `Latest.rate`."""

    number: int
    """Of its period, counted from 0. Periods that were missed are counted."""
    late_s: float
    """How long after the beginning of its period the round began."""
    missed: int
    """Periods without a round just before this one, because the round before took too long."""
    updated: bool
    """Has any message come since the round before?"""


class Latest(Closing, Mapping[str, Any]):
    """The newest of many topics: `latest["imu"]` is the newest message's data, decoded if the topic is typed. Of a
    frame topic it is the newest `Frame`, which stays valid until the `update` that brings a newer one.

    topics: each with its expected rate in Hz, or None.   types: as `type=` of a Subscriber, for those that have one;
    without, a typed topic is decoded by its own schema.
    start: "newest", or "oldest", gives what is already there at the first `update`: one that starts late has the newest
    of each topic.
    since, recording: as of a Subscriber. Updates first give what was recorded, whose age is counted from when it was
    sent, and go on with the rings; what is recorded long since is read in several updates.
    alive_periods: a topic is alive while its newest message is not older than so many periods of its expected rate.
    """

    def __init__(
        self,
        topics: Mapping[str, float | None],
        *,
        types: Mapping[str, Any] | None = None,
        start: Start | None = None,
        alive_periods: float = _PERIODS_TO_LIVE,
        since: str | timedelta | datetime | int | Incident | None = None,
        recording: Recording | str | Path | None = None,
    ) -> None:
        if not isinstance(topics, Mapping):
            raise TypeError(f"Latest takes a dict of topics and their expected rates in Hz, or None, not {topics!r}")
        if not alive_periods > 0:
            raise ValueError(f"alive_periods is a number above 0, not {alive_periods!r}")
        types = types or {}
        if unknown := set(types) - set(topics):
            raise ValueError(f"types are given for topics that are not watched: {sorted(unknown)}")
        for topic in topics:
            _names.check_topic(topic)
        begin: dict[str, Any] = {"start": start or "next"}
        if since is not None or recording is not None:
            begin = {"since": since, "recording": recording, **({} if start is None else {"start": start})}
        self._entries: dict[str, _Entry] = {}
        try:
            for topic, rate_hz in topics.items():
                self._entries[topic] = _Entry(topic, rate_hz, types.get(topic), begin, alive_periods)
        except BaseException:
            self.close()
            raise
        self.message: Column[Message | Frame | None] = Column(self._entries, lambda e: e.message)
        """The newest message of each topic, not decoded, or None."""
        self.updated: Column[bool] = Column(self._entries, lambda e: e.updated)
        """Did the last `update` receive a message?"""
        self.seen: Column[bool] = Column(self._entries, lambda e: e.message is not None)
        """Was any message received?"""
        self.alive: Column[bool] = Column(self._entries, _Entry.alive)
        """Was a message received within `alive_periods` periods? Without an expected rate: was any received?"""
        self.rate_ok: Column[bool] = Column(self._entries, _Entry.rate_ok)
        """Is it alive, and its rate within 20 % of the expected one?"""
        self.lost: Column[int] = Column(self._entries, lambda e: e.lost_before + e.subscriber.lost)
        """Messages lost since the beginning."""
        self.age_s: Column[float] = Column(self._entries, _Entry.age_s)
        """Seconds since the newest message was received; infinite if there is none."""

    def update(self, timeout: float | None = None) -> bool:
        """Wait for a message on any topic, and receive all that are there. False: the time is up."""
        with suppress(TopicMismatch):  # receive() finds out which one, and continues
            wait(self._subscribers(), timeout)
        return sum(entry.receive() for entry in self._entries.values()) > 0

    def rate(self, rate_hz: float) -> Iterator[Tick]:
        """A loop at a fixed rate: `for tick in latest.rate(100): ...`. Each round begins with an `update` that does not
        wait. The periods are counted from the first round, so being late once delays no later round. The loop ends
        when the `Latest` is closed."""
        if not 0 < rate_hz < 1e9:
            raise ValueError(f"rate_hz is a number of Hz above 0, not {rate_hz!r}")
        return self._ticks(1 / rate_hz)

    def _ticks(self, period_s: float) -> Iterator[Tick]:
        first_s, number, missed = time.monotonic(), 0, 0
        while True:
            time.sleep(max(0.0, first_s + number * period_s - time.monotonic()))
            try:
                updated = self.update(timeout=0)
            except Closed:
                return
            yield Tick(number, max(0.0, time.monotonic() - first_s - number * period_s), missed, updated)
            # The next period that has not ended yet.
            running = int((time.monotonic() - first_s) / period_s)
            missed = max(0, running - number - 1)
            number += 1 + missed

    def _subscribers(self) -> list[Subscriber | FrameSubscriber]:
        return [entry.subscriber for entry in self._entries.values()]

    def __getitem__(self, topic: str) -> Any:
        return self._entries[topic].data()

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def all_alive(self) -> bool:
        return all(self.alive.values())

    def close(self) -> None:
        for entry in self._entries.values():
            entry.close()
