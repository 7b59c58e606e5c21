"""A recording for viewers that speak Foxglove's WebSocket protocol: they play, pause and seek, and it gives what was
published then.

Invariant: while it plays, each message of a subscribed channel is given once, in the order recorded, not before the
recorded time has come; after a seek, those from there on. A channel that no viewer subscribes to is not decoded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

import foxglove
import pyarrow.compute as pc
from foxglove.websocket import PlaybackCommand, PlaybackControlRequest, PlaybackState, PlaybackStatus, StatusLevel

from ringmain.errors import SchemaError
from ringmain.recording import RecordedFrame, Recording
from ringmain.recording._filters import as_ns, matches_any
from ringmain.recording._format import FRAMES
from ringmain.recording._record.live_readers import READERS
from ringmain.recording._segment.segment import time_ns_of
from ringmain.typed import Schema
from ringmain.view._counts import Counts
from ringmain.view._forms import RAW, Form, form_of
from ringmain.view._foxglove import PERIOD_S, Listener, start
from ringmain.view._pictures import of_frame
from ringmain.view._session import repeat
from ringmain.view._shown import Image, Pixels

_MOST_ROWS = 1024
"""Given at once: a pause is noticed between two, and a viewer keeps up."""
_COLUMNS = ("topic", "epoch", "publish_time", "publish_ns", "lost", "payload")
Row = tuple[int, str, int, int, bytes]  # publish time, topic, epoch, lost, payload


@dataclass
class _Life:
    """A life of a topic: those with one schema share a channel."""

    form: Form
    channel: foxglove.Channel
    frames: bool


class FoxglovePlayback:
    """Serves the topics of a recording that match, paused at its beginning."""

    def __init__(
        self,
        recording: Recording,
        topics: Sequence[str] | None,
        address: str,
        port: int,
        *,
        since: int | datetime | None = None,
        until: int | datetime | None = None,
        speed: float = 1.0,
    ) -> None:
        self._recording, self._topics = recording, topics
        there = recording.time_range_ns or (0, 0)
        first_ns, last_ns = as_ns(since), as_ns(until)
        self._begin_ns = there[0] if first_ns is None else max(first_ns, there[0])
        self._end_ns = max(self._begin_ns, there[1] + 1 if last_ns is None else min(last_ns, there[1] + 1))
        self.counts: dict[str, Counts] = {}
        self._context = foxglove.Context()
        self._lives = self._channels()
        self._listener = _Controls(self)
        self._lock = threading.Lock()
        self._playing, self._ended, self._sought = False, False, False
        self._speed, self._at_ns = speed, self._begin_ns
        self._anchor = (time.monotonic(), self._begin_ns)  # the moment on our clock at which a recorded time came
        self._rows = self._from(self._begin_ns)
        self._next: Row | None = None
        self._server, self.url = start(
            address, port, self._context, self._listener, playback_time_range=(self._begin_ns, self._end_ns)
        )

    def run(self, stop: threading.Event) -> None:
        """Until `stop` is set."""
        repeat(self.turn, PERIOD_S, stop)

    def turn(self) -> None:
        """Gives what was published up to now."""
        with self._lock:
            if self._sought:
                self._sought, self._rows, self._next = False, self._from(self._at_ns), None
            if not self._playing:
                return
            anchor_s, anchor_ns = self._anchor
            now_ns = min(self._end_ns, anchor_ns + round((time.monotonic() - anchor_s) * self._speed * 1e9))
        wanted = self._listener.wanted()
        behind = True
        for _ in range(_MOST_ROWS):
            row = self._next or next(self._rows, None)
            self._next = row
            if row is None or row[0] > now_ns:
                behind = False
                break
            self._next = None
            self._give(row, wanted)
        with self._lock:
            if self._sought:
                return
            self._at_ns = max(self._at_ns, row[0] if behind and row is not None else now_ns)
            at_ns = self._at_ns
            ended = row is None and now_ns >= self._end_ns
            if ended:
                self._playing, self._ended = False, True
            state = self._state("", False)
        self._server.broadcast_time(at_ns)
        if ended:
            self._server.broadcast_playback_state(state)

    def control(self, asked: PlaybackControlRequest) -> PlaybackState:
        """What a viewer wants; in a thread of the server."""
        with self._lock:
            now_s = time.monotonic()
            if self._playing:
                anchor_s, anchor_ns = self._anchor
                self._at_ns = min(
                    self._end_ns, max(self._at_ns, anchor_ns + round((now_s - anchor_s) * self._speed * 1e9))
                )
            if asked.playback_speed > 0:
                self._speed = asked.playback_speed
            seeks = asked.seek_time is not None
            if asked.seek_time is not None:
                self._at_ns = min(max(asked.seek_time, self._begin_ns), self._end_ns)
                self._sought, self._ended = True, False
            self._playing = asked.playback_command == PlaybackCommand.Play and not self._ended
            self._anchor = (now_s, self._at_ns)
            return self._state(asked.request_id, seeks)

    def close(self) -> None:
        self._server.stop()

    # ------------------------------------------------------------------------------------------------ how

    def _state(self, request: str, did_seek: bool) -> PlaybackState:
        status = PlaybackStatus.Playing if self._playing else PlaybackStatus.Paused
        if self._ended:
            status = PlaybackStatus.Ended
        return PlaybackState(status, self._at_ns, self._speed, did_seek, request)

    def _channels(self) -> dict[tuple[str, int], _Life]:
        lives: dict[tuple[str, int], _Life] = {}
        known: dict[tuple[str, bytes], _Life] = {}
        schemas = self._recording.schemas()
        there = {(stats.topic, stats.epoch) for stats in self._recording.lives()}
        for name, epoch in sorted(there):
            if name == READERS or not (self._topics is None or matches_any(name, self._topics)):
                continue
            meta = schemas.get((name, epoch))
            described = meta.schema if meta is not None else b""
            frames = meta is not None and meta.contract == FRAMES
            life = known.get((name, described))
            if life is None:
                form = RAW if frames else self._form(name, described)
                channel = foxglove.Channel(
                    name, schema=form.schema, message_encoding=form.encoding, context=self._context
                )
                life = known[name, described] = _Life(form, channel, frames)
                self.counts[name] = Counts()
            lives[name, epoch] = life
        return lives

    def _form(self, topic: str, described: bytes) -> Form:
        try:
            schema = Schema.from_bytes(described) if described else None
        except SchemaError:
            schema = None  # of another version: bytes
        newest = None
        if schema is None:
            for _, batch in self._recording.batches(topics=topic, columns=("payload",)):
                newest = batch.column(0)[0].as_py()
                break
        return form_of(schema, newest)

    def _from(self, at_ns: int) -> Iterator[Row]:
        """The rows from a time on, in the order recorded; what is latched before the first is given with it."""
        found = self._recording.batches(topics=self._topics, since=at_ns, until=self._end_ns, columns=_COLUMNS)
        for _, batch in found:
            for first in range(0, len(batch), _MOST_ROWS):
                part = batch.slice(first, _MOST_ROWS)
                columns = (part.column(name).to_pylist() for name in ("topic", "epoch", "lost", "payload"))
                times = pc.max_element_wise(time_ns_of(part), self._begin_ns).to_pylist()
                yield from zip(times, *columns, strict=True)

    def _give(self, row: Row, wanted: set[int]) -> None:
        time_ns, topic, epoch, lost, payload = row
        life = self._lives.get((topic, epoch))
        if life is None or life.channel.id() not in wanted:
            return
        counts = self.counts[topic]
        counts.messages += 1
        counts.lost += lost
        if lost:
            self._say(f"{topic}: the recorder lost {lost:,} messages", StatusLevel.Warning, topic)
        try:
            thing: object = payload
            if life.frames:
                image = of_frame((), time_ns, RecordedFrame(payload))
                thing = image.picture if isinstance(image, Image) and isinstance(image.picture, Pixels) else None
                if thing is None:
                    raise ValueError("a frame of a layout that Foxglove has no name for")
            life.channel.log(life.form.encode(thing, time_ns), log_time=time_ns)
        except (ValueError, TypeError, LookupError) as error:
            self._say(f"{topic}: a message does not decode: {error}", StatusLevel.Error, topic)

    def _say(self, text: str, level: StatusLevel, topic: str) -> None:
        self._server.publish_status(text, level, topic)


class _Controls(Listener):
    """What a viewer asks of the playback, besides what it subscribes to."""

    def __init__(self, playback: FoxglovePlayback) -> None:
        super().__init__()
        self._playback = playback

    def on_playback_control_request(self, playback_control_request: PlaybackControlRequest) -> PlaybackState:
        return self._playback.control(playback_control_request)
