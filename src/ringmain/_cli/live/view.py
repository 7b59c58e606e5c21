"""The live view as text: cells, sparklines, the details of a topic. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ringmain._cli.live.model import Model, Row
from ringmain._cli.message_text import envelope_line, inline, value_lines
from ringmain._cli.service_text import brief, describe_service
from ringmain._cli.text_format import bytes_text, count_text, duration_text, printable, rate_text, uncoloured
from ringmain._cli.topic_summary import oldest_task, type_name
from ringmain._cli.topic_text import describe
from ringmain._message import Message

if TYPE_CHECKING:
    from ringmain.recording import Incident

HEADS = ("TOPIC", "CONTRACT", "TYPE", "HZ", "", "BANDWIDTH", "FULL", "W", "R", "BEHIND", "DELAY", "LOST", "WHO IS SLOW")
NUMBERS = frozenset({"HZ", "BANDWIDTH", "FULL", "W", "R", "BEHIND", "DELAY", "LOST"})
"""Columns that are aligned to the right."""
_BARS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_MOST_LINES = 6  # of one message

Tone = Literal["", "note", "bad"]


def sparkline(values: Sequence[float], width: int = 12) -> str:
    """The last values as bars. The largest has the full height."""
    shown = list(values)[-width:]
    top = max(shown, default=0.0)
    bars = "".join(_BARS[0 if top <= 0 else max(1, round(8 * v / top)) if v > 0 else 0] for v in shown)
    return bars.rjust(width)


def bar(share: float, width: int = 4) -> str:
    """How full, as a bar and a number."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    drawn = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return f"{drawn:<{width}} {100 * share:3.0f}%"


def cells(row: Row) -> list[str]:
    """One topic, a text for each of HEADS."""
    info = row.info
    return [
        printable(info.name),
        info.contract,
        printable(type_name(info, row.frames)),
        rate_text(row.rate_hz),
        sparkline(row.rates),
        f"{bytes_text(row.bytes_per_s)}/s",
        bar(row.full),
        str(sum(writer.alive for writer in info.writers)),
        str(sum(reader.alive for reader in info.readers)),
        count_text(row.behind),
        "-" if row.delay_s is None else duration_text(row.delay_s * 1e9) if row.behind else "0",
        count_text(row.lost),
        printable(trouble(row) or (brief(row.service) if row.service else "")),
    ]


def trouble(row: Row) -> str:
    """The main problem: who waits for whom, else who loses messages or is far behind, else how many are dead."""
    if row.waits:
        return "; ".join(f"{writer} waits for {whom}" for writer, whom in row.waits)
    if row.frames and row.full >= 1:
        return "all buffers held: " + ", ".join(f"{who} {count}" for who, count in row.frames.held.items())
    if row.lost_per_s and row.slowest:
        losing = max((r for r in row.info.readers if r.alive), key=lambda reader: reader.lost)
        return f"{losing.name} loses {rate_text(row.lost_per_s)}/s"
    if row.full > 0.5 and (worker := oldest_task(row.info)) is not None:
        return f"{worker.name} has the oldest message"
    if row.slowest and row.slowest.lag_bytes > row.info.capacity // 2:
        return f"{row.slowest.name} is far behind"
    return f"{row.dead} dead" if row.dead else ""


def tone(row: Row) -> Tone:
    """bad: a writer waits or a reader loses messages. note: another problem."""
    if row.waits or row.lost_per_s or (row.frames and row.full >= 1):
        return "bad"
    return "note" if trouble(row) else ""


def status_line(model: Model) -> str:
    """One line about all topics."""
    rows = model.rows()
    if not rows and not model.filter:
        return "no topics yet; new ones appear here"
    rate, bandwidth = sum(row.rate_hz for row in rows), sum(row.bytes_per_s for row in rows)
    parts = [
        f"{len(rows)} topic{'s' * (len(rows) != 1)}",
        f"{rate_text(rate)} Hz",
        f"{bytes_text(bandwidth)}/s",
        f"by {model.sort}",
    ]
    if problems := sum(tone(row) == "bad" for row in rows):
        parts.append(f"{problems} with problems")
    if model.filter:
        parts.append(f"only '{printable(model.filter)}'")
    if model.paused:
        parts.append("PAUSED")
    return "  ·  ".join(parts)


def incidents_text(kept: Mapping[str, Sequence[Incident] | None], now_ns: int) -> str:
    """A line for each recording: how many incidents it has, and the newest."""
    return "\n".join(f"{printable(name)}: {_incidents_line(known, now_ns)}" for name, known in kept.items())


def _incidents_line(known: Sequence[Incident] | None, now_ns: int) -> str:
    if known is None:
        return "no recording there yet"
    if not known:
        return "no incidents"
    newest = known[-1]
    parts = [f"{len(known)} incident{'s' * (len(known) != 1)}"]
    if still := sum(one.is_open for one in known):
        parts.append(f"{still} not over")
    parts.append(f"{duration_text(now_ns - newest.trigger_ns)} ago: {printable(newest.why)}")
    return "  ·  ".join(parts)


def headline(row: Row) -> str:
    """The first line of an open topic: its traffic and its main problem."""
    moving = f"{rate_text(row.rate_hz)} Hz  ·  {bytes_text(row.bytes_per_s)}/s"
    drawn = sparkline(row.rates, 30).strip()
    return "  ·  ".join(filter(None, [printable(row.info.name), drawn, moving, printable(trouble(row))]))


def details(row: Row, now_ns: int) -> str:
    """An open topic: what it is, and its participants."""
    served = f"\n\n{describe_service(row.service)}" if row.service else ""
    return uncoloured(describe(row.info, now_ns, row.frames)) + served


def messages_text(newest: Sequence[Message]) -> str:
    """A topic's newest messages, newest first."""
    lines = ["newest messages:"]
    for message in reversed(newest):
        lines.append(f"  {envelope_line(message)}")
        body = value_lines(message.data)
        lines += [f"    {printable(line)}" for line in body[:_MOST_LINES]]
        if len(body) > _MOST_LINES:
            lines.append("    ...")
    return "\n".join([*lines, *([] if newest else ["  none"])])


def frame_text(frame: Any) -> str:
    """The newest frame of a frame topic: the text beside its picture."""
    if frame is None:
        return "newest frame:\n  none"
    envelope = envelope_line(Message(b"", frame.seq, frame.time_ns, frame.sender, ""))
    parts = [f"frame {frame.id}", f"taken in {duration_text(frame.end_ns - frame.start_ns)}"]
    parts += [] if frame.valid else ["not valid"]
    parts += [inline(frame.meta)] if frame.meta else []
    return f"newest frame:\n  {envelope}  {'  '.join(parts)}"
