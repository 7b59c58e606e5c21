"""`Player`: publishes a recording again on live topics, with the recorded times between messages.

The invariant owned here: a topic's messages are published in their order, with their sender, kind and bytes, on a topic
of the same contract and schema; frames on a frame topic. Times between messages are those of the recording divided by
the speed. After a stall, messages that are due are published at once, until the timing is kept again.

Messages get new sequence numbers and publish times, as from any publisher, so readers count losses and measure latency
of the replay. With `original=True` both are the recorded ones, gaps included.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self

from ringmain import _names
from ringmain.errors import Full, RecordingNotFound
from ringmain.recording._meta import TopicMeta
from ringmain.recording._recording import Recording
from ringmain.recording._replay.merge import Recorded, Selection, in_order, largest_payloads
from ringmain.recording._replay.replay_publisher import Echo, Options, open_echo

_SPIN_S = 250e-6  # a sleep may end this much late; the rest is spent spinning
_SLICE_S = 0.1  # stop() and pause() are noticed after this long at most
_MAX_POLL_S = 0.001


@dataclass(frozen=True, slots=True)
class PlayerStatus:
    """The progress of a replay."""

    messages: int
    bytes: int
    time_ns: int
    """The recorded time of the last message published; 0 before the first."""
    first_ns: int
    """The recorded time of the first message."""
    loops: int
    """How often the recording was published to its end."""
    late_s: float
    """How late the last message was."""
    late_max_s: float
    paused: bool


class Player:
    """Publishes a recording again: `Player("drive", speed=2).run()`.

    topics: names or patterns of topics to replay.   rename: recorded topic -> live topic, where the names differ.
    since, until: publish times, as nanoseconds or datetimes: messages in [since, until).
    speed: 2.0 is twice as fast, `math.inf` as fast as it goes.   loop: True, or how many times in all.
    lockstep: publish each message when all readers have taken the one before it, at any time.
    original: keep sequence numbers and publish times as they were recorded.
    readers: how many readers to wait for on each topic before the first message.
    capacity: of the rings; by default enough for the largest message several times over.

    `pause()`, `resume()`, `step()` and `stop()` may be called from any thread while `run()` runs.
    """

    def __init__(
        self,
        recording: Recording | str | Path,
        *,
        topics: str | Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        speed: float = 1.0,
        loop: bool | int = False,
        lockstep: bool = False,
        original: bool = False,
        readers: int = 0,
        capacity: int | str | None = None,
        paused: bool = False,
    ) -> None:
        if not speed > 0:
            raise ValueError(f"speed must be above 0 (1.0 is as recorded, math.inf as fast as it goes), not {speed!r}")
        self._rounds = math.inf if loop is True else max(1, int(loop))
        if original and self._rounds > 1:
            raise ValueError("original=True keeps sequence numbers, which a loop would repeat: leave one of them out")
        self._recording = recording if isinstance(recording, Recording) else Recording(recording)
        self._selection = Selection(topics, since, until)
        self._rename = {_names.check_topic(a): _names.check_topic(b) for a, b in (rename or {}).items()}
        self._speed, self._lockstep, self._original = speed, lockstep, original
        self._readers, self._capacity = readers, _names.parse_capacity(capacity)
        self._publishers: dict[str, Echo] = {}  # by recorded topic
        self._metas: dict[tuple[str, int], TopicMeta] = {}
        self._changed = threading.Condition()
        self._paused, self._steps, self._stepped, self._stopped = paused, 0, False, False
        self._base_s = 0.0  # when, on our clock, the recording's `first_ns` is
        self._messages = self._bytes = self._first_ns = self._time_ns = self._loops = 0
        self._late_s = self._late_max_s = 0.0

    # ------------------------------------------------------------------------------------- control

    def pause(self) -> None:
        """Pause after the message that is being published."""
        with self._changed:
            self._paused, self._steps = True, 0
            self._changed.notify_all()

    def resume(self) -> None:
        """Go on; the time spent paused does not count."""
        with self._changed:
            self._paused, self._steps = False, 0
            self._changed.notify_all()

    def step(self, messages: int = 1) -> None:
        """Pause, and publish so many messages at once."""
        with self._changed:
            self._paused = True
            self._steps += messages
            self._changed.notify_all()

    def stop(self) -> None:
        """End the replay."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    @property
    def paused(self) -> bool:
        return self._paused

    def status(self) -> PlayerStatus:
        """The progress now. From any thread."""
        return PlayerStatus(
            self._messages, self._bytes, self._time_ns, self._first_ns, self._loops, self._late_s, self._late_max_s,
            self._paused,
        )  # fmt: skip

    # ------------------------------------------------------------------------------------- running

    def open(self) -> Self:
        """Create the topics, so that readers can join before the first message. `run()` calls it."""
        if self._publishers:
            return self
        self._metas = self._recording.schemas()
        largest = largest_payloads(self._recording, self._selection)
        if not largest:
            raise RecordingNotFound(f"nothing to replay in {self._recording}: no message matches the selection")
        self._sizes: dict[str, int] = {}
        for (topic, _), size in largest.items():
            self._sizes[topic] = max(self._sizes.get(topic, 0), size)
        if len({self._live(topic) for topic in self._sizes}) < len(self._sizes):
            raise ValueError("two recorded topics would be published on one: rename them to different names")
        first: dict[str, int] = {}
        for topic, epoch in sorted(largest):
            first.setdefault(topic, epoch)
        try:
            for topic, epoch in first.items():
                self._open_topic(topic, epoch, partial(self._first_payload, topic))
        except BaseException:
            self.close()
            raise
        return self

    def run(self) -> PlayerStatus:
        """Publish everything; returns when done or stopped. Ctrl-C raises KeyboardInterrupt."""
        self.open()
        try:
            for publisher in self._publishers.values():
                self._await_readers(publisher)
            while self._loops < self._rounds and not self._stopped:
                self._play_once()
                self._loops += 1
        finally:
            self.close()
        return self.status()

    def close(self) -> None:
        """Leave the topics."""
        for publisher in self._publishers.values():
            publisher.close()
        self._publishers.clear()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _play_once(self) -> None:
        self._first_ns = 0
        with contextlib.closing(in_order(self._recording, self._selection)) as messages:  # type: ignore[type-var]
            for message in messages:
                if not self._first_ns:
                    self._first_ns, self._base_s = message.time_ns, time.monotonic()
                if not self._wait_until_due(message.time_ns) or not self._publish(message):
                    return

    def _publish(self, message: Recorded) -> bool:
        """False if it was stopped first."""
        publisher = self._publisher(message)
        while True:
            try:
                publisher.publish(message, _SLICE_S)
                break
            except Full:  # readers hold the ring: try again, unless stopped
                if self._stopped:
                    return False
        self._messages += 1
        self._bytes += message.data.size
        self._time_ns = message.time_ns
        return not self._lockstep or self._until_read(publisher)

    # ------------------------------------------------------------------------------------- waiting

    def _wait_until_due(self, time_ns: int) -> bool:
        """Sleep, then spin, since a sleep may end late. False if stopped."""
        offset_s = (time_ns - self._first_ns) / 1e9 / self._speed
        while True:
            if not self._pass_pause():
                return False
            if self._lockstep or self._speed == math.inf:
                return True
            if self._stepped:  # published early: those after it keep their distance to it
                self._base_s = time.monotonic() - offset_s
                return True
            left_s = self._base_s + offset_s - time.monotonic()
            if left_s <= _SPIN_S:
                break
            with self._changed:
                if not self._stopped and not self._paused:
                    self._changed.wait(min(left_s - _SPIN_S, _SLICE_S))
        due_s = self._base_s + offset_s
        while time.monotonic() < due_s:
            pass
        self._late_s = max(0.0, time.monotonic() - due_s)
        self._late_max_s = max(self._late_max_s, self._late_s)
        return True

    def _pass_pause(self) -> bool:
        """Wait while paused; that time does not count. False if stopped."""
        self._stepped = False
        if not self._paused:
            return not self._stopped
        since_s = time.monotonic()
        with self._changed:
            while self._paused and self._steps == 0 and not self._stopped:
                self._changed.wait(_SLICE_S)
            if self._paused and self._steps:
                self._steps -= 1
                self._stepped = True
        self._base_s += time.monotonic() - since_s
        return not self._stopped

    def _until_read(self, publisher: Echo) -> bool:
        """Wait until all readers have taken the message. False if stopped first."""
        pause_s = 10e-6
        while not publisher.all_read:
            if self._stopped:
                return False
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_POLL_S)
        return True

    def _await_readers(self, publisher: Echo) -> None:
        while self._readers and not self._stopped:
            try:
                publisher.wait_for_readers(self._readers, timeout=_SLICE_S)
                return
            except TimeoutError:
                continue

    # ------------------------------------------------------------------------------------- topics

    def _live(self, topic: str) -> str:
        return self._rename.get(topic, topic)

    def _publisher(self, message: Recorded) -> Echo:
        publisher = self._publishers[message.topic]
        if not publisher.takes(self._metas.get((message.topic, message.epoch))):
            publisher.close()  # this life of the topic has another contract or schema
            publisher = self._open_topic(message.topic, message.epoch, lambda: message.data)
        return publisher

    def _open_topic(self, topic: str, epoch: int, first_payload: Callable[[], Any]) -> Echo:
        meta = self._metas.get((topic, epoch), TopicMeta(topic, epoch))
        options = Options(self._capacity, self._sizes[topic], self._original, first_payload)
        publisher = self._publishers[topic] = open_echo(self._live(topic), meta, options)
        return publisher

    def _first_payload(self, topic: str) -> bytes:
        selection = self._selection._replace(topics=topic)
        return next(self._recording.messages(**selection._asdict())).data


def replay(recording: Recording | str | Path, **options: Any) -> PlayerStatus:
    """Publish a recording again and return when it is done; takes what `Player` takes."""
    return Player(recording, **options).run()
