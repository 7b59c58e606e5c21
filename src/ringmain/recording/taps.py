"""The topics that a recorder draws from: which they are, as they come and go, and one wait for all of them.

The invariant owned here: what one topic does to its subscriber never stops the others. A topic that cannot be read
(its roster is full, it is another user's, its ring contradicts itself) is set aside with the reason, and tried again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ringmain import _native, names
from ringmain.errors import RecordingError, RingmainError
from ringmain.subscriber import Start, Subscriber

RETRY_S = 1.0
_WILD = frozenset("*?[")


class Life(NamedTuple):
    """What is known of one life of a topic."""

    epoch: int
    contract: str
    schema: bytes
    first_seq: int
    """The first message that the tap can still get, or could when it joined."""


class Tap(Subscriber):
    """A subscriber that remembers which lives of its topic it has seen. It loses as little as it can: a lapped tap goes
    on with the oldest message that is left."""

    def __init__(self, topic: str, *, start: Start, observe: bool, name: str) -> None:
        self.lives: dict[int, Life] = {}
        self.capacity = 0
        self.begun = 0  # the life of which something has been taken
        super().__init__(topic, start=start, on_lap="oldest", observe="always" if observe else "pipes", name=name)

    def _attached(self) -> None:
        there = self._describe()
        assert there is not None
        contract, self.capacity, epoch, _ = there
        _, _, sequence, _ = self._whereabouts()
        self.lives[epoch] = Life(epoch, contract, self._schema(), sequence)
        if len(self.lives) > 2:  # a batch is of this life or, at the turn, of the one before
            del self.lives[min(self.lives)]

    def refresh(self) -> None:
        """The newest writer of a topic may have changed its schema."""
        there = self._describe()
        known = self.lives.get(there[2]) if there is not None else None
        if known is not None and (schema := self._schema()) != known.schema:
            self.lives[known.epoch] = known._replace(schema=schema)

    def lag(self) -> tuple[int, int]:
        """(messages, bytes) between this tap and the newest message. May be called from any thread."""
        newest, end, sequence, position = self._whereabouts()
        return max(0, newest - sequence), max(0, end - position)

    def _whereabouts(self) -> tuple[int, int, int, int]:
        """Where the topic's writers are, and where this tap is: each as the number and position of the next message."""
        nowhere = (0, 0, 0, 0)
        there = self._describe() if not self.closed else None
        if there is None:
            return nowhere
        try:
            seen = _native.inspect(names.runtime_directory(), self.topic)
        except RingmainError:
            return nowhere
        if seen["epoch"] != there[2]:
            return nowhere
        for slot, _role, _pid, _uid, _generation, _joined, position, sequence, *_ in seen["members"]:
            if slot == there[3]:
                return seen["next_sequence"], seen["position"], sequence, position
        return nowhere


class _Doorbell(_native.Subscriber):
    """Sits on a name that no topic can have, so it never joins one; what it is there for is the directory's bell."""

    def __init__(self) -> None:
        self._open(names.runtime_directory(), "?", "latest", "latest", False, "", 0)


class Taps:
    """Taps on all topics whose name matches any of the patterns and none of the exclusions."""

    def __init__(
        self,
        patterns: Sequence[str],
        exclude: Sequence[str],
        *,
        start: Callable[[str], Start],
        observe: bool,
        name: str,
    ) -> None:
        self._patterns, self._exclude = patterns, exclude
        self._start, self._observe, self._name = start, observe, name
        self._taps: dict[str, Tap] = {}
        self.problems: dict[str, str] = {}
        self._retry_at = 0.0
        self._doorbell = _Doorbell()
        self._heard = -1
        try:
            self._look(first=True)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, topic: str) -> Tap:
        return self._taps[topic]

    def __contains__(self, topic: str) -> bool:
        return topic in self._taps

    def current(self) -> list[Tap]:
        return list(self._taps.values())

    def wants(self, topic: str) -> bool:
        return any(fnmatchcase(topic, p) for p in self._patterns) and not any(
            fnmatchcase(topic, p) for p in self._exclude
        )

    def wait(self, timeout_s: float) -> list[Tap]:
        """The taps with something to read; none when the time is up, or when topics have come or gone: those are
        looked at by the next call."""
        count = self._doorbell._directory_count()
        if count != self._heard or (self.problems and time.monotonic() >= self._retry_at):
            self._look(first=False)
            self._heard = count  # taken before the look, so that what comes meanwhile is looked at next time
        try:
            ready = _native.wait([self._doorbell, *self._taps.values()], timeout_s, count)
        except RecordingError:
            raise
        except RingmainError:
            return self._find_trouble()
        return [tap for tap in ready if isinstance(tap, Tap)]

    def set_aside(self, topic: str, error: Exception) -> None:
        """Close a topic's tap and try again later."""
        self.problems[topic] = str(error)
        self._retry_at = time.monotonic() + RETRY_S
        tap = self._taps.pop(topic, None)
        if tap is not None:
            tap.close()

    def close(self) -> None:
        for tap in self._taps.values():
            tap.close()
        self._doorbell._close()

    def _find_trouble(self) -> list[Tap]:
        """One of the taps made the wait fail: which?"""
        ready = []
        for topic, tap in list(self._taps.items()):
            try:
                ready += _native.wait([tap], 0)
            except RingmainError as error:
                self.set_aside(topic, error)
        return ready

    def _look(self, *, first: bool) -> None:
        there = [topic for topic in _native.topics(names.runtime_directory()) if self.wants(topic)]
        plain = [p for p in self._patterns if not _WILD & set(p) and not any(fnmatchcase(p, e) for e in self._exclude)]
        for topic in dict.fromkeys([*plain, *there]):
            if topic in self._taps:
                continue
            try:
                start: Start = self._start(topic) if first else "oldest"
                self._taps[topic] = Tap(topic, start=start, observe=self._observe, name=self._name)
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
            self._taps.pop(topic).close()
        for topic in [t for t in self.problems if t not in present]:
            del self.problems[topic]
