"""What the readers of the recorded topics received and lost, as a topic of the recording: `ringmain/readers`.

A recording knows what its recorder lost. What a live subscriber lost is in that subscriber's slot alone, and gone when
it leaves. So once a second this reads the rosters from outside, which costs no participant anything, and records a
message for each reader whose figures changed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

import msgspec

from ringmain import _names, _native, typed
from ringmain.errors import RingmainError
from ringmain.recording._record.row_builder import ring_rows
from ringmain.recording._record.writer import RecordingWriter

READERS = "ringmain/readers"
_EVERY_S = 1.0


class ReaderFigures(msgspec.Struct):
    """One reader of one topic, since it joined."""

    of_topic: str
    reader: str
    role: str
    pid: int
    joined_ns: int
    reader_messages: int
    reader_lost: int
    reader_lag: int


class LiveReaders:
    """Records the figures of the readers of some topics, but for those of the recorder itself."""

    def __init__(self, writer: RecordingWriter, recorder: str) -> None:
        self._writer, self._recorder = writer, recorder
        self._codec = typed.codec_for(ReaderFigures)
        self._epoch, self._rows = time.time_ns(), 0
        self._next_s = 0.0
        self._known: dict[tuple[str, int, int], ReaderFigures] = {}
        writer.declare(READERS, epoch=self._epoch, schema=self._codec.schema.to_bytes())

    def tick(self, topics: Iterable[str]) -> None:
        """Record what changed, if a second has passed."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _EVERY_S
        self.take(topics)

    def take(self, topics: Iterable[str]) -> None:
        """Record what changed."""
        changed: list[bytes] = []
        for topic in topics:
            try:
                seen = _native.inspect(_names.runtime_directory(), topic)
            except (RingmainError, FileNotFoundError):
                continue  # not there yet, or gone
            for each in seen["participants"]:
                if each["role"] == "writer" or (each["pid"] == os.getpid() and each["name"] == self._recorder):
                    continue
                now = ReaderFigures(
                    topic, each["name"], each["role"], each["pid"], each["joined_ns"],
                    each["messages"], each["lost"], each["lag_messages"],
                )  # fmt: skip
                key = (topic, each["slot"], each["joined_ns"])
                if self._known.get(key) != now:
                    self._known[key] = now
                    changed.append(bytes(self._codec.encode(now)))
        if changed:
            self._append(changed)

    def _append(self, payloads: list[bytes]) -> None:
        count = len(payloads)
        numbers = range(self._rows, self._rows + count)
        batch = ring_rows(count, seq=numbers, time_ns=time.time_ns(), sender=self._recorder, data=payloads)
        self._writer.append(READERS, self._epoch, batch)
        self._rows += count
