"""From a source to a sink: all that is recorded, or what comes, until it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

from ringmain.view._counts import Counts
from ringmain.view._shown import Shown

_PERIOD_S = 0.05
"""How often a ring is read: often enough that a small ring is not lapped, seldom enough that plots come in batches."""
_ABOUT_S = 1.0


class Source(Protocol):
    @property
    def counts(self) -> Mapping[str, Counts]: ...
    def take(self) -> Iterator[tuple[str, list[Shown]]]: ...


class Sink(Protocol):
    def show(self, topic: str, things: Iterable[Shown]) -> None: ...
    def about(self, counts: Mapping[str, Counts]) -> None: ...


def show_all(source: Source, sink: Sink, stop: threading.Event, check: Callable[[], object] = lambda: None) -> None:
    """Shows all that there is, unless `stop` is set before. `check` is called about once a second, and may raise."""
    about_s = time.monotonic()
    for topic, things in source.take():
        sink.show(topic, things)
        if stop.is_set():
            break
        if time.monotonic() >= about_s:
            check()
            sink.about(source.counts)
            about_s = time.monotonic() + _ABOUT_S
    sink.about(source.counts)


def wait(stop: threading.Event, check: Callable[[], object]) -> None:
    """Until `stop` is set, or `check` raises."""
    while not stop.wait(_ABOUT_S):
        check()


def follow(source: Source, sink: Sink, stop: threading.Event, check: Callable[[], object] = lambda: None) -> None:
    """Shows what comes, until `stop` is set. `check` is called about once a second, and may raise."""
    about_s = 0.0

    def turn() -> None:
        nonlocal about_s
        began_s = time.monotonic()
        for topic, things in source.take():
            sink.show(topic, things)
        if began_s >= about_s:
            check()
            sink.about(source.counts)
            about_s = began_s + _ABOUT_S

    repeat(turn, _PERIOD_S, stop)


def repeat(turn: Callable[[], object], period_s: float, stop: threading.Event) -> None:
    """Until `stop` is set: begins a turn each so many seconds, or at once after one that took longer."""
    while not stop.is_set():
        began_s = time.monotonic()
        turn()
        stop.wait(max(0.0, began_s + period_s - time.monotonic()))
