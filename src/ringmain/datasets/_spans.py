"""Which spans of time a recipe of episodes names, whatever messages are in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringmain.datasets._episodes import Episodes, Span
from ringmain.datasets._sources import Source

ALWAYS = (0, 1 << 53)
"""All times since 1970 that fit in 64 bits as nanoseconds, in microseconds."""


def spans_of(episodes: Episodes, source: Source, host: str, topics: Sequence[str]) -> list[Span]:
    """Those of a host, by their begin."""
    if episodes.start:
        return list(_between(episodes, source, host))
    if episodes.length_s is not None:
        there = source.span(host, topics)
        return [] if there is None else _fixed(episodes.length_s, host, there)
    if episodes.incidents:
        known = source.incidents(host)
        found = [
            Span(host, -(-one.start_ns // 1000), one.end_ns // 1000, {"incident": one.id, "why": one.why})
            for one in known
        ]
    else:
        found = [span for span in episodes.table if span.host == host]
    return sorted(found, key=lambda span: (span.begin_us, span.end_us))


def _fixed(length_s: float, host: str, there: tuple[int, int]) -> list[Span]:
    length = round(length_s * 1e6)
    return [Span(host, n * length, (n + 1) * length) for n in range(there[0] // length, -(-there[1] // length))]


def _between(episodes: Episodes, source: Source, host: str) -> Iterator[Span]:
    starts, ends = (source.messages(host, topic, ALWAYS) for topic in (episodes.start, episodes.end))
    labels = starts.values.to_pylist()
    events = sorted([(at, 1, n) for n, at in enumerate((starts.times_ns // 1000).tolist())]
                    + [(at, 0, n) for n, at in enumerate((ends.times_ns // 1000).tolist())])  # fmt: skip
    begun: tuple[int, int] | None = None  # (when, which)
    for at, is_start, n in events:
        if is_start:
            if begun is not None:
                yield Span(host, begun[0], at, labels[begun[1]], f"no {episodes.end} before the next {episodes.start}")
            begun = (at, n)
        elif begun is None:
            yield Span(host, at, at, {}, f"no {episodes.start} before this {episodes.end}")
        else:
            yield Span(host, begun[0], at, labels[begun[1]])
            begun = None
    if begun is not None:
        yield Span(host, begun[0], begun[0], labels[begun[1]], f"no {episodes.end} after this {episodes.start}")
