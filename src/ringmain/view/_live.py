"""Live topics as a source of things to show: an observer for each, frames by peeking.

Invariant: no participant waits for it. An observer holds nothing, and a frame is copied without holding its buffer; a
topic in which it is alone is let go, so that it can end.
"""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import pyarrow as pa

from ringmain import _inspect, _names, _native
from ringmain._subscriber import Subscriber
from ringmain._topic_info import TopicInfo
from ringmain.errors import RingmainError, TopicNotFound
from ringmain.frames import frame_topic, peek_frame
from ringmain.view._counts import Counts
from ringmain.view._interpret import Interpreter, Rows
from ringmain.view._pictures import of_frame
from ringmain.view._roster import Roster
from ringmain.view._shown import Event, Image, Path, Series, Shown, Tensor
from ringmain.view._thin import thin

NAME = "ringmain view"
LIVE_HZ, LIVE_POINTS_HZ = 10.0, 200.0
"""What is usually enough for the eye: pictures, and points of a plot, a second."""
_LOOK_S = 0.5
_MOST_AT_ONCE = 65536


@dataclass
class _Topic:
    """One that is being observed."""

    sub: Subscriber | None
    """None: a frame topic."""
    roster: Roster = field(default_factory=lambda: Roster(NAME))
    interpreter: Interpreter | None = None
    epoch: int = 0
    frame_seq: int | None = None
    pictures: dict[Path, Shown] = field(default_factory=dict)
    """The newest of each path, until it is time to show them."""
    sent: tuple[float, int] | None = None
    """For the rate: when, and how many had been sent."""


class LiveTopics:
    """The topics that match. `patterns`: names or patterns (`camera/*`). `hz`: pictures a second of each; `points_hz`:
    points a second of each series."""

    def __init__(self, patterns: Sequence[str], *, hz: float, points_hz: float) -> None:
        self._patterns = list(patterns) or ["*"]
        self._hz, self._points_hz = hz, points_hz
        self._topics: dict[str, _Topic] = {}
        self._refused: set[str] = set()
        self._look_s = self._frames_s = 0.0
        self.counts: dict[str, Counts] = {}

    def matching(self) -> list[str]:
        """The topics that are there now, and match."""
        there = _native.topics(_names.runtime_directory())
        return [name for name in there if any(fnmatch.fnmatchcase(name, pattern) for pattern in self._patterns)]

    def take(self) -> Iterator[tuple[str, list[Shown]]]:
        """What is new since the last call, by topic."""
        now_s = time.monotonic()
        looks, frames = now_s >= self._look_s, now_s >= self._frames_s
        if frames:
            self._frames_s = max(self._frames_s + 1 / self._hz, now_s)
        if looks:
            self._look_s = now_s + _LOOK_S
            yield from self._look(now_s)
        for name, topic in self._topics.items():
            found = self._messages(name, topic) if topic.sub is not None else self._frame(name, topic) if frames else []
            if frames:
                found += topic.pictures.values()
                self.counts[name].pictures += len(topic.pictures)
                topic.pictures.clear()
            if found:
                yield name, found

    def close(self) -> None:
        for topic in self._topics.values():
            if topic.sub is not None:
                topic.sub.close()
        self._topics.clear()

    # ------------------------------------------------------------------------------------------------ rosters

    def _look(self, now_s: float) -> Iterator[tuple[str, list[Shown]]]:
        """Which topics there are, and how their participants do."""
        there = self.matching()
        for name in self._topics.keys() - set(there):
            self._leave(name)
        for name in there:
            try:
                info = _inspect.info(name)
            except (RingmainError, ValueError):
                continue
            if not info.persist and not any(each.name != NAME for each in (*info.writers, *info.readers)):
                self._leave(name)
                continue
            events: list[Shown] = []
            topic = self._topics.get(name)
            if topic is None and name not in self._refused:
                try:
                    topic = self._join(name)
                except RingmainError as error:
                    self._refused.add(name)
                    events.append(Event(time.time_ns(), f"cannot be observed: {error}", "ERROR"))
            if topic is not None:
                events += topic.roster.look(info)
                events += self._rate(topic, info, now_s)
            if events:
                yield name, events

    def _join(self, name: str) -> _Topic:
        try:
            frame_topic(name)
            topic = _Topic(None)
        except (RingmainError, ValueError):
            topic = _Topic(Subscriber(name, name=NAME, start="newest", observe="always", backend="shm"))
        self._topics[name] = topic
        self.counts.setdefault(name, Counts())
        return topic

    def _leave(self, name: str) -> None:
        topic = self._topics.pop(name, None)
        if topic is not None and topic.sub is not None:
            topic.sub.close()

    def _rate(self, topic: _Topic, info: TopicInfo, now_s: float) -> Iterator[Shown]:
        """Of a topic without a type, of which nothing else can be said."""
        before, topic.sent = topic.sent, (now_s, info.next_sequence)
        if topic.sub is None or info.schema is not None or before is None or info.next_sequence < before[1]:
            return
        rate = (info.next_sequence - before[1]) / (now_s - before[0])
        yield Series(("rate_hz",), numpy.array([time.time_ns()]), numpy.array([rate]))

    # ----------------------------------------------------------------------------------------------- messages

    def _messages(self, name: str, topic: _Topic) -> list[Shown]:
        assert topic.sub is not None
        batch = topic.sub.recv_batch(_MOST_AT_ONCE, timeout=0)
        if not len(batch):
            return []
        counts, found = self.counts[name], list[Shown]()
        if topic.interpreter is None or topic.epoch != batch.epoch:
            topic.epoch, topic.interpreter = batch.epoch, Interpreter(topic.sub.schema)
            if topic.interpreter.why_bytes:
                found.append(Event(time.time_ns(), f"shown as bytes: {topic.interpreter.why_bytes}", "WARN"))
        columns = pa.record_batch(batch)
        counts.messages += len(batch)
        counts.lost += batch.lost
        rows = Rows(_numbers(columns, "time_ns"), _numbers(columns, "lost"), columns.column("data"))
        for thing in topic.interpreter.shown(rows):
            if isinstance(thing, Image | Tensor):
                counts.pictures_left_out += thing.path in topic.pictures
                topic.pictures[thing.path] = thing
            else:
                found.append(self._thinned(counts, thing) if isinstance(thing, Series) else thing)
        return found

    def _thinned(self, counts: Counts, series: Series) -> Series:
        times_ns, values, left_out = thin(series.times_ns, series.values, self._points_hz)
        counts.points += len(values)
        counts.points_left_out += left_out
        return Series(series.path, times_ns, values)

    def _frame(self, name: str, topic: _Topic) -> list[Shown]:
        """The newest, if it is new."""
        counts = self.counts[name]
        try:
            frame = peek_frame(name)
        except (RingmainError, TopicNotFound, ValueError):
            return []
        if frame is None or frame.seq == topic.frame_seq:
            return []
        passed = frame.seq - topic.frame_seq if topic.frame_seq is not None and frame.seq > topic.frame_seq else 1
        topic.frame_seq = frame.seq
        counts.messages += passed
        counts.pictures += 1
        counts.pictures_left_out += passed - 1
        return [of_frame((), frame.time_ns, frame)]


def _numbers(columns: pa.RecordBatch, name: str) -> Any:
    return columns.column(name).to_numpy(zero_copy_only=False).astype("i8")
