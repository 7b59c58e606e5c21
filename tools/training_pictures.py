"""The pictures of docs/guide/training.md: how old a cell is, and an episode that is refused. What they show is what
ringmain.datasets makes of the messages in them; a test compares the files.

    python tools/training_pictures.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from ringmain.datasets import Episodes
from ringmain.datasets._align import align
from ringmain.datasets._cells import Messages
from ringmain.datasets._episodes import Span
from ringmain.datasets._grid import Method
from ringmain.datasets._holes import Verdict, judge

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guide"
INK, PALE, GOOD, OLD, BAD = "#57606a", "#d0d7de", "#1a7f37", "#bf8700", "#cf222e"
LEFT, MS = 90, 1_000_000


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{colour}" text-anchor="{anchor}">{words}</text>'


def line(x: float, y: float, x2: float, y2: float, colour: str = PALE, width: float = 1) -> str:
    return f'<path d="M{x:g} {y:g}L{x2:g} {y2:g}" stroke="{colour}" stroke-width="{width:g}"/>'


def dot(x: float, y: float, colour: str, radius: float = 4) -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" fill="{colour}"/>'


def svg(width: int, height: int, parts: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([f'{head} font-family="sans-serif" font-size="12">', *parts, "</svg>", ""])


def ages() -> str:
    """A row for each way to make a cell: what a tick has, with a line from the message that it is of."""
    messages, ticks, tolerance = [0, 70, 200], [0, 33, 67, 100, 133, 167, 200], 70

    def at(ms: float) -> float:
        return LEFT + 2.6 * ms

    parts = [text(8, 24, "action"), text(8, 44, "tick")]
    parts += [dot(at(ms), 20, INK) for ms in messages]
    parts += [line(at(ms), 34, at(ms), 150) for ms in ticks]
    parts += [text(at(ms), 46, f"{ms} ms", anchor="middle") for ms in ticks]
    for row, kind in enumerate(("newest", "nearest", "next")):
        y = 76 + 32 * row
        parts.append(text(8, y + 4, kind))
        found = align(
            np.array(messages) * MS, np.array(ticks) * MS, Method.parse(kind), tolerance * MS
        )  # as a grid does it
        for n, ms in enumerate(ticks):
            if not found.there[n]:
                parts.append(text(at(ms), y + 4, "null", BAD, "middle"))
                continue
            age = found.age_ns[n] / MS
            colour = GOOD if abs(age) < 20 else OLD
            parts.append(line(at(ms - age), y, at(ms), y, colour, 2))
            parts.append(dot(at(ms), y, colour))
            parts.append(text(at(ms) + 6, y - 5, f"{age:+g}" if age else "0", colour))
    parts.append(text(LEFT, 168, f"age in ms: below 0 the message is later than the tick; tolerance {tolerance} ms"))
    return svg(680, 178, parts)


def refused() -> str:
    """Three episodes: one is whole, one lost messages, one has a topic that fell silent."""
    spans = [(0, 9), (10, 19), (20, 29)]
    times = {"imu": [n / 2 for n in range(60)], "camera": [float(n) for n in range(30) if not 22 < n < 27]}
    lost = {("imu", 1): (13.5, 3)}
    times["imu"] = [t for t in times["imu"] if not 13.5 <= t < 15]
    episodes = Episodes(start="begin", end="end", silence_s=2.0)

    def at(s: float) -> float:
        return LEFT + 18 * s

    parts = [text(8, 64 + 26 * row, topic) for row, topic in enumerate(times)]
    for number, (begin, end) in enumerate(spans):
        span = Span("robot", begin * 10**6, end * 10**6)
        verdict = Verdict.of(span)
        messages = {}
        for topic, of_topic in times.items():
            inside = np.array([t for t in of_topic if begin <= t < end])
            many = lost.get((topic, number), (0, 0))[1]
            messages[topic] = Messages((inside * 1e9).astype(np.int64), pa.array([{}] * len(inside)), many)
        judge(episodes, verdict, span, messages, {})
        colour = BAD if verdict.refused else GOOD
        box = f'x="{at(begin) - 6:g}" y="34" width="{18 * (end - begin):g}" height="68" rx="4"'
        parts.append(f'<rect {box} fill="{colour}" fill-opacity="0.08" stroke="{colour}"/>')
        parts.append(text(at(begin) - 4, 26, verdict.state, colour))
        parts.append(text(at(begin) - 4, 118, verdict.reason, colour))
        for row, (topic, found) in enumerate(messages.items()):
            parts += [dot(at(ns / 1e9), 60 + 26 * row, INK, 2.5) for ns in found.times_ns.tolist()]
            if (topic, number) in lost:
                first, many = lost[topic, number]
                parts += [text(at(first + n / 2), 64 + 26 * row, "×", BAD, "middle") for n in range(many)]
    return svg(660, 128, parts)


PICTURES = {"cell-ages.svg": ages, "refused-episode.svg": refused}


def main() -> None:
    for name, draw in PICTURES.items():
        (GUIDE / name).write_text(draw())


if __name__ == "__main__":
    main()
