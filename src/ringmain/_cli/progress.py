"""The state of a recorder or of a replay as text: redrawn while it runs, and a summary of the recorder at the end."""

from __future__ import annotations

import math
import shutil
import threading
import time
from typing import TYPE_CHECKING, Self, TextIO

from ringmain._cli.text_format import Right, bytes_text, count_of, count_text, rate_text, table

if TYPE_CHECKING:
    from ringmain.recording import Player, PlayerStatus, RecorderStatus

_EVERY_S = 0.2

HEADS = ("TOPIC", "HZ", "BYTES/S", "MESSAGES", "BYTES", "LAG", "LOST", "PROBLEM")


class Redrawn:
    """Text on a terminal that is redrawn in place. Does nothing if the output is not a terminal."""

    def __init__(self, out: TextIO, *, shown: bool = True) -> None:
        self._out, self._shown = out, shown and out.isatty()
        self._lines = 0

    @property
    def rows(self) -> int:
        """Of the terminal."""
        return shutil.get_terminal_size().lines

    def show(self, text: str) -> None:
        if not self._shown:
            return
        columns, _ = shutil.get_terminal_size()
        lines = [line[: columns - 1] for line in text.split("\n")]
        back = f"\033[{self._lines - 1}A" if self._lines > 1 else ""
        drawn = "".join(f"{line}\033[K\n" for line in lines)
        print(f"{back}\r{drawn[:-1]}\033[J", end="", file=self._out, flush=True)
        self._lines = len(lines)

    def end(self) -> None:
        if self._lines:
            print(file=self._out, flush=True)
            self._lines = 0


class Replaying:
    """Draws how far a replay is, a few times a second, from a thread of its own while the block runs."""

    def __init__(self, player: Player, end_ns: int | None, redrawn: Redrawn) -> None:
        self._player, self._end_ns, self._redrawn = player, end_ns, redrawn
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="ringmain-progress", daemon=True)

    def _draw(self) -> None:
        before, at_s = self._player.status(), time.monotonic()
        while not self._over.wait(_EVERY_S):
            status, now_s = self._player.status(), time.monotonic()
            rate_hz = (status.messages - before.messages) / (now_s - at_s)
            self._redrawn.show(replay_line(status, rate_hz, self._end_ns))
            before, at_s = status, now_s

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._redrawn.end()


def replay_line(status: PlayerStatus, rate_hz: float, end_ns: int | None) -> str:
    """Position, rate, lateness, and what holds it up."""
    position = f"{max(0, status.time_ns - status.first_ns) / 1e9:.1f}"
    whole = f" of {(end_ns - status.first_ns) / 1e9:.1f}" if end_ns and status.first_ns else ""
    late = f", {status.late_s * 1000:.1f} ms late" if math.isfinite(status.speed) else ""
    state = ", paused" if status.paused else ""
    held_up = f", waits for {status.waits_for}" if status.waits_for else ""
    speed = f", {status.speed:g}x" if status.speed != 1 else ""
    return (
        f"{position}{whole} s{speed}: {count_text(status.messages)} messages, {rate_text(rate_hz)} Hz"
        f"{late}{state}{held_up}"
    )


def progress(status: RecorderStatus, most_topics: int = 1000) -> str:
    """Rate, bytes, lag and loss of each topic, largest lag first, and a line of totals with the free disk space."""
    topics = sorted(status.topics, key=lambda t: (-t.lag_bytes, t.topic))
    cells = [
        [
            t.topic, Right(rate_text(t.rate_hz)), Right(bytes_text(t.bytes_per_s)), Right(count_text(t.messages)),
            Right(bytes_text(t.bytes)), Right(count_text(t.lag_messages)), Right(count_text(t.lost)), t.problem,
        ]
        for t in topics[:most_topics]
    ]  # fmt: skip
    left = f", {bytes_text(status.disk_free_bytes)} free on disk" if status.disk_free_bytes is not None else ""
    waiting = f", {status.segments_waiting} segments to seal" if status.segments_waiting > 1 else ""
    waiting += _uploads(status) + _incidents(status)
    more = f" and {len(topics) - most_topics} more topics" if len(topics) > most_topics else ""
    total = (
        f"{count_text(status.messages)} messages, {bytes_text(status.bytes)}, {rate_text(status.rate_hz)} Hz, "
        f"{bytes_text(status.bytes_per_s)}/s, {count_text(status.lost)} lost{waiting}{left}{more}"
    )
    return f"{table(HEADS, cells)}\n{total}" if cells else f"no topics yet{left}"


def summary(status: RecorderStatus) -> str:
    """What was recorded, for each topic."""
    rows = [
        [t.topic, t.contract, Right(count_text(t.messages)), Right(bytes_text(t.bytes)), t.lost, t.problem]
        for t in status.topics
    ]
    heads = ("TOPIC", "CONTRACT", "MESSAGES", "BYTES", "LOST", "PROBLEM")
    total = f"{status.messages} messages, {bytes_text(status.bytes)} in {status.elapsed_s:.1f} s, {status.lost} lost"
    if not rows:
        return f"no topics, nothing recorded: {status.path}"
    left = (
        f"{_uploads(status)}; `ringmain record --upload {status.path}` uploads them" if status.uploads_waiting else ""
    )
    return f"{table(heads, rows)}\n{total}{_incidents(status)}: {status.path}{left}"


def _incidents(status: RecorderStatus) -> str:
    """What triggers have kept, and what is wrong with them."""
    kept = f", {count_of(status.incidents, 'incident')} kept" if status.incidents else ""
    still = f" ({status.incidents_open} not over)" if status.incidents_open else ""
    return kept + still + "".join(f"\ntrigger {problem}" for problem in status.trigger_problems)


def _uploads(status: RecorderStatus) -> str:
    why = f" ({status.upload_problem})" if status.upload_problem else ""
    return f", {status.uploads_waiting} segments to upload{why}" if status.uploads_waiting > 1 or why else ""
