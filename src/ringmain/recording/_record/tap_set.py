"""The taps of a recorder: one for each topic that matches, as topics come and go, and one wait for all of them.

The invariant owned here: an error on one topic never stops the others. A topic that cannot be read (its roster is full,
it belongs to another user, its ring is corrupt) is set aside with the reason, and tried again later.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from ringmain import _names, _native
from ringmain._subscriber import Start
from ringmain.errors import RecordingError, RingmainError, TopicMismatch
from ringmain.recording._filters import is_pattern, matches_any
from ringmain.recording._record.tap import FrameTap, Tap

RETRY_S = 1.0


class _Doorbell(_native.Subscriber):
    """Subscribes to a name that no topic can have, so it never joins one: it waits for the bell of the directory."""

    def __init__(self) -> None:
        self._open(_names.runtime_directory(), "?", "next", "next", False, "", 0)


class Taps:
    """Taps on all topics whose name matches a pattern and no exclusion. `before_closing` is called before a tap is
    closed, to release the messages that were borrowed from it."""

    def __init__(
        self,
        patterns: Sequence[str],
        exclude: Sequence[str],
        *,
        start: Callable[[str], Start],
        observe: bool,
        frames: bool,
        name: str,
        before_closing: Callable[[], None],
    ) -> None:
        self._before_closing = before_closing
        self._patterns, self._exclude = patterns, exclude
        self._start, self._observe, self._frames, self._name = start, observe, frames, name
        self._taps: dict[str, Tap | FrameTap] = {}
        self._new: list[Tap | FrameTap] = []
        self.problems: dict[str, str] = {}
        self._retry_at = 0.0
        self._doorbell = _Doorbell()
        self._heard = -1
        try:
            self._look(first=True)
        except BaseException:
            self.close()
            raise

    def current(self) -> list[Tap | FrameTap]:
        return list(self._taps.values())

    def take_new(self) -> list[Tap | FrameTap]:
        """Those that were opened since the last call."""
        new, self._new = self._new, []
        return [tap for tap in new if self._taps.get(tap.topic) is tap]

    def wants(self, topic: str) -> bool:
        return matches_any(topic, self._patterns) and not matches_any(topic, self._exclude)

    def wait(self, timeout_s: float) -> list[Tap | FrameTap]:
        """The taps that have messages; none after the timeout, or when topics were created or removed: the next call
        handles these."""
        count = self._doorbell._directory_count()
        if count != self._heard or (self.problems and time.monotonic() >= self._retry_at):
            self._look(first=False)
            self._heard = count  # read before the listing, so that a change during it is seen by the next call
        ahead = [tap for tap in self._taps.values() if tap.ahead]
        try:
            ready = _native.wait([self._doorbell, *self._taps.values()], 0 if ahead else timeout_s, count)
        except RecordingError:
            raise
        except RingmainError:
            return self._wait_one_by_one()
        return list(dict.fromkeys([*ahead, *(tap for tap in ready if isinstance(tap, Tap | FrameTap))]))

    def change_kind(self, tap: Tap | FrameTap) -> None:
        """A topic of messages turned out to be a frame topic, or the other way round: replace its tap, if frames are
        wanted. The new tap begins with the oldest message."""
        self._drop(tap.topic)
        is_stream = isinstance(tap, Tap)
        if self._frames or not is_stream:
            try:
                self._taps[tap.topic] = self._make(tap.topic, is_stream, "oldest")
            except RingmainError as error:
                self.set_aside(tap.topic, error)

    def set_aside(self, topic: str, error: Exception) -> None:
        """Close a topic's tap, note the reason, and try again later."""
        self.problems[topic] = str(error)
        self._retry_at = time.monotonic() + RETRY_S
        if topic in self._taps:
            self._drop(topic)

    def close(self) -> None:
        """Close all, even if one raises."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._doorbell._close)
            for tap in self._taps.values():
                stack.callback(tap.close)

    def _drop(self, topic: str) -> None:
        """Close a tap, after its borrowed messages were released."""
        self._before_closing()
        self._taps[topic].close()
        del self._taps[topic]

    def _wait_one_by_one(self) -> list[Tap | FrameTap]:
        """The wait failed: set aside the taps that make it fail, and return those that have messages."""
        ready = []
        for topic, tap in list(self._taps.items()):
            try:
                ready += _native.wait([tap], 0)
            except TopicMismatch:
                self.change_kind(tap)
            except RingmainError as error:
                self.set_aside(topic, error)
        return ready

    def _make(self, topic: str, is_stream: bool, start: Start) -> Tap | FrameTap:
        tap = self._opened(topic, is_stream, start)
        self._new.append(tap)
        return tap

    def _opened(self, topic: str, is_stream: bool, start: Start) -> Tap | FrameTap:
        if is_stream:
            return FrameTap(topic, start=start, name=self._name)
        try:
            return Tap(topic, start=start, observe=self._observe, name=self._name)
        except TopicMismatch:  # a frame topic whose pool is not there yet
            if not self._frames:
                raise
            return FrameTap(topic, start=start, name=self._name)

    def _look(self, *, first: bool) -> None:
        streams = set(_native.pools(_names.runtime_directory()))
        left_out = set() if self._frames else streams
        there = [t for t in _native.topics(_names.runtime_directory()) if self.wants(t) and t not in left_out]
        plain = [p for p in self._patterns if not is_pattern(p) and not matches_any(p, self._exclude)]
        for topic in dict.fromkeys([*plain, *there]):
            if topic in self._taps or topic in left_out:
                continue
            try:
                start: Start = self._start(topic) if first else "oldest"
                self._taps[topic] = self._make(topic, topic in streams, start)
            except RecordingError:
                raise
            except RingmainError as error:
                if first and topic in plain:  # asked for by name: fail rather than record without it
                    raise
                self.set_aside(topic, error)
            else:
                self.problems.pop(topic, None)
        present = {*plain, *there}
        for topic in [t for t, tap in self._taps.items() if t not in present and not tap.attached]:
            self._drop(topic)
        for topic in [t for t in self.problems if t not in present]:
            del self.problems[topic]
