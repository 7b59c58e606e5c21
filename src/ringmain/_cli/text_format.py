"""Numbers, tables and colours as text. Nothing here depends on topics."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence

_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_THOUSANDS = ("", "k", "M", "G", "T")
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33}


def bytes_text(count: float) -> str:
    """1536 -> '1.5 KiB'."""
    unit = 0
    while abs(count) >= 1024 and unit < len(_BYTES) - 1:
        count /= 1024
        unit += 1
    return f"{count:.0f} {_BYTES[unit]}" if unit == 0 or count >= 100 else f"{count:.1f} {_BYTES[unit]}"


def count_of(count: int, what: str) -> str:
    """1 -> '1 segment', 2 -> '2 segments'."""
    return f"{count} {what}{'s' * (count != 1)}"


def count_text(count: float) -> str:
    """12345678 -> '12.3M'. Numbers below 10,000 stay whole."""
    if count < 10_000:
        return f"{count:.0f}"
    unit = 0
    while count >= 1000 and unit < len(_THOUSANDS) - 1:
        count /= 1000
        unit += 1
    return f"{count:.1f}{_THOUSANDS[unit]}" if count < 100 else f"{count:.0f}{_THOUSANDS[unit]}"


def rate_text(per_second: float) -> str:
    """99.62 -> '99.6', 12345 -> '12.3k', 0.25 -> '0.25'."""
    if per_second == 0:
        return "0"
    if per_second < 1:
        return f"{per_second:.2f}"
    return f"{per_second:.1f}" if per_second < 10_000 else count_text(per_second)


def duration_text(nanoseconds: float) -> str:
    """1500 -> '1.5 µs'."""
    sign, size = ("-" if nanoseconds < 0 else ""), abs(nanoseconds)
    for limit, divisor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if size < limit:
            return f"{sign}{size / divisor:.3g} {unit}"
    seconds = size / 1e9
    if seconds < 120:
        return f"{sign}{seconds:.3g} s"
    if seconds < 7200:
        return f"{sign}{seconds / 60:.0f} min"
    return f"{sign}{seconds / 3600:.0f} h" if seconds < 172_800 else f"{sign}{seconds / 86400:.0f} d"


def printable(text: str) -> str:
    """Text from messages and names, without control characters that would change the terminal's state."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


class Right:
    """A text cell that is aligned to the right, as numbers are."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], indent: str = "") -> str:
    """A table with columns as wide as their contents. Cells that are not str are aligned to the right."""
    listed = [list(row) for row in rows]
    texts = [[printable(str(cell)) for cell in row] for row in listed]
    widths = [max([len(head), *(len(row[i]) for row in texts)]) for i, head in enumerate(heads)]
    right = [bool(listed) and all(not isinstance(row[i], str) for row in listed) for i in range(len(heads))]

    def line(cells: Sequence[str]) -> str:
        put = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return (indent + "  ".join(put)).rstrip()

    return "\n".join([bold(line(heads)), *(line(row) for row in texts)])


def wants_colour() -> bool:
    """Is stdout a terminal with colours, and is NO_COLOR unset?"""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(text: str, style: str) -> str:
    """`style`: a key of `_STYLES`."""
    return f"\033[{_STYLES[style]}m{text}\033[0m" if wants_colour() else text


def bold(text: str) -> str:
    return coloured(text, "bold")


def dim(text: str) -> str:
    return coloured(text, "dim")


def uncoloured(text: str) -> str:
    """The text without its escape codes."""
    return re.sub(r"\033\[\d+m", "", text)
