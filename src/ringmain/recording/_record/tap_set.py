"""The topics that a recorder draws from: which they are, as they come and go, and one wait for all of them.

The invariant owned here: what one topic does to its subscriber never stops the others. A topic that cannot be read
(its roster is full, it is another user's, its ring contradicts itself) is set aside with the reason, and tried again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence

from ringmain import _names, _native
from ringmain._subscriber import Start
from ringmain.errors import RecordingError, RingmainError
from ringmain.recording._filters import is_pattern, matches_any
from ringmain.recording._record.tap import FrameTap, Tap

RETRY_S = 1.0


class _Doorbell(_native.Subscriber):
    """Sits on a name that no topic can have, so it never joins one; what it is there for is the directory's bell."""

    def __init__(self) -> None:
        self._open(_names.runtime_directory(), "?", "latest", "latest", False, "", 0)


class Taps:
    """Taps on all topics whose name matches any of the patterns and none of the exclusions. `before_closing` is called
    before one is closed: what was borrowed of it must be given back by then."""

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

    def wants(self, topic: str) -> bool:
        return matches_any(topic, self._patterns) and not matches_any(topic, self._exclude)

    def wait(self, timeout_s: float) -> list[Tap | FrameTap]:
        """The taps with something to read; none when the time is up, or when topics have come or gone: those are
        looked at by the next call."""
        count = self._doorbell._directory_count()
        if count != self._heard or (self.problems and time.monotonic() >= self._retry_at):
            self._look(first=False)
            self._heard = count  # taken before the look, so that what comes meanwhile is looked at next time
        ahead = [tap for tap in self._taps.values() if tap.ahead]
        try:
            ready = _native.wait([self._doorbell, *self._taps.values()], 0 if ahead else timeout_s, count)
        except RecordingError:
            raise
        except RingmainError:
            return self._find_trouble()
        return list(dict.fromkeys([*ahead, *(tap for tap in ready if isinstance(tap, Tap | FrameTap))]))

    def change_kind(self, tap: Tap | FrameTap) -> None:
        """What was thought to be messages are frames, or the other way round: the tap for it takes its place, if frames
        are wanted, and begins with the oldest that is there."""
        self._drop(tap.topic)
        is_stream = isinstance(tap, Tap)
        if self._frames or not is_stream:
            try:
                self._taps[tap.topic] = self._make(tap.topic, is_stream, "oldest")
            except RingmainError as error:
                self.set_aside(tap.topic, error)

    def set_aside(self, topic: str, error: Exception) -> None:
        """Close a topic's tap and try again later."""
        self.problems[topic] = str(error)
        self._retry_at = time.monotonic() + RETRY_S
        if topic in self._taps:
            self._drop(topic)

    def close(self) -> None:
        """One that cannot be closed does not keep the others open."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._doorbell._close)
            for tap in self._taps.values():
                stack.callback(tap.close)

    def _drop(self, topic: str) -> None:
        """What was borrowed of it is given back first."""
        self._before_closing()
        self._taps[topic].close()
        del self._taps[topic]

    def _find_trouble(self) -> list[Tap | FrameTap]:
        """One of the taps made the wait fail: which?"""
        ready = []
        for topic, tap in list(self._taps.items()):
            try:
                ready += _native.wait([tap], 0)
            except RingmainError as error:
                self.set_aside(topic, error)
        return ready

    def _make(self, topic: str, is_stream: bool, start: Start) -> Tap | FrameTap:
        if is_stream:
            return FrameTap(topic, start=start, name=self._name)
        return Tap(topic, start=start, observe=self._observe, name=self._name)

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
                if first and topic in plain:  # asked for by name: better no recording than one without it
                    raise
                self.set_aside(topic, error)
            else:
                self.problems.pop(topic, None)
        present = {*plain, *there}
        for topic in [t for t, tap in self._taps.items() if t not in present and not tap.attached]:
            self._drop(topic)
        for topic in [t for t in self.problems if t not in present]:
            del self.problems[topic]
