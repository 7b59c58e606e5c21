"""Which spans of time a recipe of episodes names, whatever messages are in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringmain.datasets._episodes import Episodes, Hole, Span
from ringmain.datasets._sources import Source, span
from ringmain.recording._upkeep.incidents import Incident

ALWAYS = (0, 1 << 53)
"""All times since 1970 that fit in 64 bits as nanoseconds, in microseconds."""


def spans_of(
    episodes: Episodes, source: Source, host: str, topics: Sequence[str], since_us: int = ALWAYS[0]
) -> list[Span]:
    """Those of a host, by their begin. `since_us`: an episode ended there, or nothing is known of before."""
    if episodes.start:
        return list(_between(episodes, source, host, since_us))
    if episodes.length_s is not None:
        there = span(source, host, topics)
        return [] if there is None else _fixed(episodes.length_s, host, there)
    if episodes.incidents:
        found = [_kept(host, one) for one in source.incidents(host)]
    else:
        found = [one for one in episodes.table if one.host == host]
    return sorted(found, key=lambda one: (one.begin_us, one.end_us))


def _kept(host: str, one: Incident) -> Span:
    holes = []
    if one.whole_from_ns > one.start_ns:
        early_s = (one.whole_from_ns - one.start_ns) / 1e9
        holes.append(Hole("deleted", f"messages of its first {early_s:.3g} s were deleted before it was kept"))
    if one.is_open:
        holes.append(Hole("open", "not all of it was recorded"))
    labels = {"incident": one.id, "why": one.why}
    return Span(host, -(-one.start_ns // 1000), one.end_ns // 1000, labels, tuple(holes))


def _fixed(length_s: float, host: str, there: tuple[int, int]) -> list[Span]:
    length = round(length_s * 1e6)
    return [Span(host, n * length, (n + 1) * length) for n in range(there[0] // length, -(-there[1] // length))]


def _between(episodes: Episodes, source: Source, host: str, since_us: int) -> Iterator[Span]:
    reach = (since_us, ALWAYS[1])
    starts, ends = (source.messages(host, topic, reach) for topic in (episodes.start, episodes.end))
    labels = starts.values.to_pylist()
    events = sorted([(at, 1, n) for n, at in enumerate((starts.times_ns // 1000).tolist())]
                    + [(at, 0, n) for n, at in enumerate((ends.times_ns // 1000).tolist())])  # fmt: skip
    begun: tuple[int, int] | None = None  # (when, which)
    for at, is_start, n in events:
        if is_start:
            if begun is not None:
                never = Hole("no end", f"no {episodes.end} before the next {episodes.start}")
                yield Span(host, begun[0], at, labels[begun[1]], (never,))
            begun = (at, n)
        elif begun is None and at > since_us:
            yield Span(host, at, at, {}, (Hole("no begin", f"no {episodes.start} before this {episodes.end}"),))
        elif begun is not None:
            yield Span(host, begun[0], at, labels[begun[1]])
            begun = None
    if begun is not None:
        never = Hole("no end", f"no {episodes.end} after this {episodes.start}")
        yield Span(host, begun[0], begun[0], labels[begun[1]], (never,))
