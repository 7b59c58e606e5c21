"""`Player`: publishes a recording again on live topics, with the recorded times between messages.

The invariant owned here: a topic's messages are published in their order, with their sender, kind and bytes, on a topic
that is as it was recorded; frames on a frame topic. Times between messages are those of the recording divided by the
speed. After a stall, messages that are due are published at once, until the timing is kept again.

Messages go from the columns of the recording to the rings natively, with no Python object for each
(native/python/replay.cpp): here it is decided which may go, and until when to sleep. Frames are published from here.

Messages get new sequence numbers and publish times, as from any publisher, so readers count losses and measure latency
of the replay. With `original=True` both are the recorded ones, gaps included.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from ringmain import _names, _native
from ringmain._inspect import info
from ringmain._reporting import worth_reporting
from ringmain.errors import Full, RecordingNotFound, RingmainError
from ringmain.recording._filters import Filter
from ringmain.recording._meta import TopicMeta
from ringmain.recording._reader import Recording
from ringmain.recording._replay import merge
from ringmain.recording._replay.merge import Part, Selection
from ringmain.recording._replay.replay_publisher import Echo, FrameEcho, MessageEcho, Options, open_echo

_SPIN_S = 250e-6  # a sleep may end this much late; the native side spends the rest looking at the clock
_LEAD_S = 0.001  # between the start and the first message, which would else be late, by what it takes to get there
_SLICE_S = 0.1  # stop() and pause() are noticed after this long at most
_ALL = 1 << 62
_STALLED_SLICES = 20  # a message that has waited this long for room is worth a warning
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
    invalid: int = 0
    """Messages left out because no topic can have them: with a sender or kind that is too long as text."""
    waits_for: str = ""
    """What holds it up, in words: a reader that is slow, a worker that has not come. Empty while nothing does."""
    speed: float = 1.0


class _Current(NamedTuple):
    """The part of a topic whose rows are published now."""

    part: Part
    track: _native.Track


class Player:
    """Publishes a recording again: `Player("drive", speed=2).run()`.

    topics: names or patterns of topics to replay.   rename: recorded topic -> live topic, where the names differ.
    since, until: publish times, as nanoseconds or datetimes: messages in [since, until).
    speed: 2.0 is twice as fast, `math.inf` as fast as it goes.   loop: True, or how many times in all.
    lockstep: publish each message when all readers have taken the one before it, at any time.
    original: keep sequence numbers and publish times as they were recorded.
    readers: how many readers to wait for on each topic before the first message.
    capacity: of the rings; by default as recorded, or in older recordings enough for the largest message several times
        over. Contract, schema, `max_participants`, `keep_last_per_kind` and `persist` are as recorded.

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
        self._rounds = math.inf if loop is True else max(1, int(loop))
        if original and self._rounds > 1:
            raise ValueError("original=True keeps sequence numbers, which a loop would repeat: leave one of them out")
        self._recording = recording if isinstance(recording, Recording) else Recording(recording)
        self._selection = Selection(topics, since, until)
        self._rename = {_names.check_topic(a): _names.check_topic(b) for a, b in (rename or {}).items()}
        self._speed, self._lockstep, self._original = _checked_speed(speed), lockstep, original
        self._readers, self._capacity = readers, _names.parse_capacity(capacity)
        self._publishers: dict[str, Echo] = {}  # by recorded topic
        self._current: dict[str, _Current] = {}  # likewise
        self._coming: dict[str, deque[Part]] = {}
        self._metas: dict[tuple[str, int], TopicMeta] = {}
        self._changed = threading.Condition()
        self._paused, self._steps, self._stepping, self._stopped = paused, 0, False, False
        self._latching = False
        self._stalled_slices, self._waits_for = 0, ""
        self._base_s = 0.0  # when, on our clock, the recording's `first_ns` is
        self._messages = self._bytes = self._first_ns = self._time_ns = self._loops = self._invalid = 0
        self._late_s = self._late_max_s = 0.0

    # ------------------------------------------------------------------------------------- control

    def pause(self) -> None:
        """Pause after the messages that are being published: within a few milliseconds."""
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

    def set_speed(self, speed: float) -> None:
        """From now on, so many times as fast as recorded."""
        with self._changed:
            if self._time_ns and math.isfinite(speed):  # what comes next keeps its distance to the last message
                self._base_s = time.monotonic() - (self._time_ns - self._first_ns) / 1e9 / _checked_speed(speed)
            self._speed = _checked_speed(speed)
            self._changed.notify_all()

    @property
    def paused(self) -> bool:
        return self._paused

    def status(self) -> PlayerStatus:
        """The progress now. From any thread."""
        return PlayerStatus(
            self._messages, self._bytes, self._time_ns, self._first_ns, self._loops, self._late_s, self._late_max_s,
            self._paused, self._invalid, self._held_up_by(), self._speed,
        )  # fmt: skip

    def _held_up_by(self) -> str:
        """From what the last wait said, or else from the roster: one that is slow, and moves."""
        if self._waits_for:
            return self._waits_for
        for publisher in list(self._publishers.values()):
            with contextlib.suppress(RingmainError):
                for writer in info(publisher.topic).writers:
                    if writer.name == "replay" and writer.waits_for:
                        return f"reader '{writer.waits_for}' of topic '{publisher.topic}'"
        return ""

    # ------------------------------------------------------------------------------------- running

    def open(self) -> Self:
        """Create the topics, so that readers can join before the first message. `run()` calls it."""
        if self._publishers:
            return self
        self._metas = self._recording.schemas()
        lives = self._selected_lives()
        if not lives:
            raise RecordingNotFound(f"nothing to replay in {self._recording}: no message matches the selection")
        self._sizes: dict[str, int] = {}
        for (topic, _), size in lives.items():
            self._sizes[topic] = max(self._sizes.get(topic, 0), size)
        if len({self._live(topic) for topic in self._sizes}) < len(self._sizes):
            raise ValueError("two recorded topics would be published on one: rename them to different names")
        first: dict[str, int] = {}
        for topic, epoch in sorted(lives):
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
        self._current.clear()
        self._coming.clear()
        if not self._play_latched():
            return
        with contextlib.closing(merge.parts_of(self._recording, self._selection)) as blocks:  # type: ignore[type-var]
            for parts, least_after in blocks:
                self._add(parts)
                if not self._play_until(least_after):
                    return
            self._play_until(merge.NEVER)

    def _play_latched(self) -> bool:
        """Publish what is latched when an incident begins, at once. False if stopped."""
        self._add(merge.latched_parts(self._recording, self._selection.topics))
        self._latching = True
        try:
            return self._play_until(merge.NEVER)
        finally:
            self._latching, self._first_ns = False, 0

    def _add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._coming.setdefault(part.topic, deque()).append(part)
            if part.topic not in self._current:
                self._take_next(part.topic)

    def _take_next(self, topic: str) -> None:
        """Go on with the topic's next part, if there is one. A publisher of another kind is opened when its first
        message is due."""
        self._current.pop(topic, None)
        if coming := self._coming.get(topic):
            part = coming.popleft()
            current = self._current[topic] = _Current(part, merge.track_of(part.rows))
            publisher = self._publishers[topic]
            if isinstance(publisher, MessageEcho) and publisher.takes(self._meta_of(part)):
                current.track.set_publisher(publisher)
            self._current = dict(sorted(self._current.items()))  # of messages at one time, the first topic's goes first

    def _play_until(self, before_ns: int) -> bool:
        """Publish the rows that are there with earlier publish times, each when it is due. False if stopped."""
        while self._pass_pause():
            if not self._current:
                return True
            if not self._first_ns:
                first_ns = min(current.track.time_ns for current in self._current.values() if current.track.time_ns)
                if first_ns >= before_ns:
                    return True
                self._first_ns, self._base_s = first_ns, time.monotonic() + _LEAD_S
            try:
                done = self._publish_due(before_ns)
            except Full as full:  # readers hold the ring: try again, unless stopped
                self._note_stall(full)
                continue
            if done:
                return True
        return False

    def _publish_due(self, before_ns: int) -> bool:
        """Publish what is due, or sleep until something is. True if no message is left before that time. Raises `Full`
        when readers have blocked it for a slice."""
        at_once = self._stepping or self._lockstep or self._latching
        why, index, messages, size, time_ns, due_ns, late_ns, late_max_ns = _native.replay(
            [current.track for current in self._current.values()],
            before_ns,
            self._first_ns,
            round(self._base_s * 1e9),
            math.inf if at_once else self._speed,
            1 if at_once else _ALL,
            self._original,
            _SLICE_S,
        )
        topic = list(self._current)[index]
        if late_ns >= 0:
            self._late_s, self._late_max_s = late_ns / 1e9, max(self._late_max_s, late_max_ns / 1e9)
        if messages:
            self._count(messages, size, time_ns)
        if why == "yours":
            messages = self._publish_here(self._current[topic])
        elif why == "early":
            self._sleep_until(due_ns / 1e9)
        elif why == "invalid":
            self._leave_out(self._current[topic])
        if (
            messages and self._stepping and not self._latching
        ):  # published early: those after it keep their distance to it
            self._steps = max(0, self._steps - 1)
            self._base_s = time.monotonic() - (self._time_ns - self._first_ns) / 1e9 / self._speed
        if messages and self._lockstep:
            self._until_read(self._publishers[topic])
        if self._current[topic].track.time_ns is None:
            self._take_next(topic)
        return why == "before"

    def _publish_here(self, current: _Current) -> int:
        """Publish a frame; or open the publisher that the life of the next message needs. How many were published."""
        part, track = current
        publisher = self._publishers[part.topic]
        payload, sender = merge.payload_and_sender(part.rows, track.at)
        if not publisher.takes(self._meta_of(part)):
            publisher.close()  # this life of the topic has another contract or schema, or other properties
            publisher = self._open_topic(part.topic, part.epoch, lambda: payload)
        if not isinstance(publisher, FrameEcho):
            track.set_publisher(publisher)
            return 0
        time_ns = track.time_ns or 0
        publisher.publish(payload, sender, _SLICE_S)
        track.skip()
        self._count(1, payload.size, time_ns)
        return 1

    def _count(self, messages: int, size: int, time_ns: int) -> None:
        self._messages += messages
        self._bytes += size
        self._time_ns = time_ns if not self._latching else 0
        self._stalled_slices, self._waits_for = 0, ""

    def _note_stall(self, full: Full) -> None:
        self._stalled_slices += 1
        self._waits_for = f"{full.reason.removeprefix('waiting for ')} (topic '{full.topic}')"
        if self._stalled_slices == _STALLED_SLICES:
            warnings.warn(f"the replay stands still: {full}", RuntimeWarning, stacklevel=2)

    def _leave_out(self, current: _Current) -> None:
        rows, row = current.part.rows.select(["seq", "sender", "kind"]), current.track.at
        current.track.skip()
        message = rows.slice(row, 1).to_pylist()[0]
        what = "sender" if len(message["sender"].encode()) > 255 else "kind"
        self._invalid += 1
        if worth_reporting(self._invalid):
            warnings.warn(
                f"the replay left a message out ({self._invalid} so far): message {message['seq']}: {what} is at most "
                f"255 bytes of UTF-8, this one has {len(message[what].encode())}",
                RuntimeWarning,
                stacklevel=2,
            )

    # ------------------------------------------------------------------------------------- waiting

    def _sleep_until(self, due_s: float) -> None:
        """Until shortly before, since a sleep may end late."""
        left_s = due_s - _SPIN_S - time.monotonic()
        with self._changed:
            if left_s > 0 and not self._stopped and not self._paused:
                self._changed.wait(min(left_s, _SLICE_S))

    def _pass_pause(self) -> bool:
        """Wait while paused; that time does not count. False if stopped."""
        self._stepping = False
        if not self._paused:
            return not self._stopped
        since_s = time.monotonic()
        with self._changed:
            while self._paused and self._steps == 0 and not self._stopped:
                self._changed.wait(_SLICE_S)
            self._stepping = self._paused and self._steps > 0
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

    def _meta_of(self, part: Part) -> TopicMeta | None:
        return self._metas.get((part.topic, part.epoch))

    def _selected_lives(self) -> dict[tuple[str, int], int]:
        """The lives (topic, epoch) to be published, each with its largest payload: 0 where the ring's capacity is
        known, so that none need be looked for."""
        selected, wanted = self._selection, Filter(self._selection.topics)
        if selected.since is None and selected.until is None:
            lives = [(s.topic, s.epoch) for s in self._recording.lives() if wanted.matches(s.topic)]
            metas = [self._metas.get(life) for life in lives]
            if all(meta is not None and meta.properties.capacity_bytes for meta in metas):
                return dict.fromkeys(lives, 0)
        return merge.largest_payloads(self._recording, selected)

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


def _checked_speed(speed: float) -> float:
    if not speed > 0:
        raise ValueError(f"speed must be above 0 (1.0 is as recorded, math.inf as fast as it goes), not {speed!r}")
    return speed
