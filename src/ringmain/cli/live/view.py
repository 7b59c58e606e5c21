"""The live view as text: cells, sparklines, the details of a topic. Pure functions, tested by comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringmain.cli.commands.info import describe
from ringmain.cli.live.model import Model, Row
from ringmain.cli.messages import envelope_line, value_lines
from ringmain.cli.survey import type_name
from ringmain.cli.tables import bytes_text, count_text, duration_text, printable, rate_text, uncoloured
from ringmain.message import Message

HEADS = ("TOPIC", "CONTRACT", "TYPE", "HZ", "", "BANDWIDTH", "FULL", "W", "R", "BEHIND", "DELAY", "LOST", "WHO IS SLOW")
_BARS = " ▁▂▃▄▅▆▇█"
_MOST_LINES = 6  # of one message
_PICTURE_LINES, _PICTURE_COLUMNS = 20, 72
_SHADES = " .:-=+*#%@"


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """The last values as bars, the largest of them the full height."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    bars = "".join(_BARS[0 if top <= 0 else max(1, round(8 * v / top)) if v > 0 else 0] for v in shown)
    return bars.rjust(width)


def cells(row: Row) -> list[str]:
    """One topic, a text for each of HEADS."""
    info = row.info
    lost = count_text(row.lost) + (f" (+{rate_text(row.lost_per_s)}/s)" if row.lost_per_s else "")
    return [
        printable(info.name),
        info.contract,
        printable(type_name(info)),
        rate_text(row.rate_hz),
        sparkline(row.rates),
        f"{bytes_text(row.bytes_per_s)}/s",
        f"{100 * row.full:.0f}%",
        str(sum(writer.alive for writer in info.writers)),
        str(sum(reader.alive for reader in info.readers)),
        count_text(row.behind),
        duration_text(row.delay_s * 1e9) if row.delay_s is not None else "-",
        lost,
        printable(trouble(row)),
    ]


def trouble(row: Row) -> str:
    """Who waits for whom; else who is furthest behind, if anybody is; else who is dead."""
    if row.waits:
        return "; ".join(f"{writer} waits for {whom}" for writer, whom in row.waits)
    if row.lost_per_s and row.slowest:
        losing = max((r for r in row.info.readers if r.alive), key=lambda reader: reader.lost)
        return f"{losing.name} is being lapped"
    if row.slowest and row.slowest.lag_bytes > row.info.capacity // 2:
        return f"{row.slowest.name} is far behind"
    return f"{row.dead} dead" if row.dead else ""


def status_line(model: Model) -> str:
    """One line on the whole."""
    rows = model.rows()
    rate, bandwidth = sum(row.rate_hz for row in rows), sum(row.bytes_per_s for row in rows)
    parts = [f"{len(rows)} topics", f"{rate_text(rate)} Hz", f"{bytes_text(bandwidth)}/s", f"by {model.sort}"]
    if model.filter:
        parts.append(f"only '{printable(model.filter)}'")
    if model.paused:
        parts.append("PAUSED")
    return "  ·  ".join(parts)


def details(row: Row, newest: Sequence[Message], now_ns: int) -> str:
    """A topic opened: who takes part, what it looks like, and its newest messages, newest first."""
    lines = [uncoloured(describe(row.info, now_ns)), "", "newest messages:"]
    for message in reversed(newest):
        lines.append(f"  {envelope_line(message)}")
        body = picture(message.data) or value_lines(message.data)
        most = _PICTURE_LINES if message is newest[-1] else _MOST_LINES  # one picture is enough
        lines += [f"    {printable(line)}" for line in body[:most]]
        if len(body) > most:
            lines.append("    ...")
    if not newest:
        lines.append("  none")
    return "\n".join(lines)


def picture(value: Any) -> list[str]:
    """An image (an array of bytes, grey or colour, at least 16 by 16) in characters; nothing for anything else."""
    shape: tuple[int, ...] = getattr(value, "shape", ())
    dtype = str(getattr(value, "dtype", ""))
    if dtype != "uint8" or len(shape) not in (2, 3) or min(shape[:2]) < 16 or (len(shape) == 3 and shape[2] > 4):
        return []
    # A character is about twice as high as it is wide.
    step = max(shape[1] / _PICTURE_COLUMNS, shape[0] / (2 * (_PICTURE_LINES - 1)))
    lines = [f"{dtype}{list(shape)}"]
    for row in range(int(shape[0] / step / 2)):
        pixels = value[int(row * step * 2)]
        greys = (int(pixels[int(column * step)].mean()) for column in range(int(shape[1] / step)))
        lines.append("".join(_SHADES[grey * len(_SHADES) // 256] for grey in greys))
    return lines
