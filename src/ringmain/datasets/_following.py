"""Episodes of what is still being recorded, each as soon as all of it is there.

The invariant owned here: *an episode is given once, and whole*. Those of a host come in the order of their begins, and
one that is not whole yet holds up those after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ringmain.datasets._episodes import After, Span
from ringmain.datasets._feed import Feed
from ringmain.errors import TopicNotFound

_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_BUSY = 4  # a look that takes long is followed by a pause so many times as long


def following(
    opened: Callable[[], Feed], after: After, settle_s: float, idle_timeout_s: float | None, closed: Callable[[], bool]
) -> Iterator[tuple[Feed, Span]]:
    """Of each host those after an episode, with what loads them. `after` is looked at again for each look at the
    source. Ends when nothing has come for `idle_timeout_s`, or when `closed`."""
    known: object = None
    settled = False  # did the last look find all that there is, with nothing more to come?
    news_at = time.monotonic()
    while not closed():
        began = time.monotonic()
        feed = opened()
        newest = feed.newest()
        if newest != known:
            known, news_at, settled = newest, began, False
        quiet_s = began - news_at
        ends = idle_timeout_s is not None and quiet_s >= idle_timeout_s
        if not settled:
            settled = ends or quiet_s >= settle_s
            for span in _whole(feed, after, settle_s, settled):
                yield feed, span
                if closed():
                    return
        if ends:
            return
        time.sleep(min(max(_PAUSE_S, _BUSY * (time.monotonic() - began)), _LONGEST_PAUSE_S))


def _whole(feed: Feed, after: After, settle_s: float, settled: bool) -> list[Span]:
    try:
        spans = feed.spans(after)
    except TopicNotFound:  # nothing was recorded of it so far
        return []
    found, waiting = [], set[str]()
    for span in spans:
        if span.goes_on or not (settled or feed.is_whole(span, round(settle_s * 1e6))):
            waiting.add(span.host)
        if span.host not in waiting:
            found.append(span)
    return found
