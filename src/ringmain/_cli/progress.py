"""The state of a recorder as text: a table that is redrawn while it records, and a summary at the end."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, TextIO

from ringmain._cli.text_format import Right, bytes_text, count_text, rate_text, table

if TYPE_CHECKING:
    from ringmain.recording import RecorderStatus

HEADS = ("TOPIC", "HZ", "BYTES/S", "MESSAGES", "BYTES", "LAG", "LOST", "PROBLEM")


class Progress:
    """Redraws the table on a terminal. Does nothing if the output is not a terminal."""

    def __init__(self, out: TextIO, *, shown: bool = True) -> None:
        self._out, self._shown = out, shown and out.isatty()
        self._lines = 0

    def show(self, status: RecorderStatus) -> None:
        if not self._shown:
            return
        columns, rows = shutil.get_terminal_size()
        lines = [line[: columns - 1] for line in progress(status, most_topics=max(1, rows - 4)).split("\n")]
        back = f"\033[{self._lines - 1}A" if self._lines > 1 else ""
        text = "".join(f"{line}\033[K\n" for line in lines)
        print(f"{back}\r{text[:-1]}\033[J", end="", file=self._out, flush=True)
        self._lines = len(lines)

    def end(self) -> None:
        if self._lines:
            print(file=self._out, flush=True)
            self._lines = 0


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
    waiting += _uploads(status)
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
    left = f"{_uploads(status)}; `ringmain record upload {status.path}` uploads them" if status.uploads_waiting else ""
    return f"{table(heads, rows)}\n{total}: {status.path}{left}"


def _uploads(status: RecorderStatus) -> str:
    why = f" ({status.upload_problem})" if status.upload_problem else ""
    return f", {status.uploads_waiting} segments to upload{why}" if status.uploads_waiting > 1 or why else ""
