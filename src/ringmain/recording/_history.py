"""History, then live: `rm.Subscriber("ticks", since="2h", recording="drive")`. It gives what was recorded, and goes on
with the ring.

    recording ──► its end for now ──► join the ring at its oldest message ──► what is recorded meanwhile ──► the ring

The invariants owned here: of each life of the topic, messages given + messages counted as lost = the number of messages
from the first given to the newest; those that neither the recording nor the ring has are counted at the *seam*, in
`lost` of the first message after it. Until it joins, the topic does not know of it: no writer waits for a reader of
history. Where the ring has lapped it before all that it had taken was given, the recording is asked again; it is past
the seam once nothing waits. What the recording gives is in _past.py, what waits of the ring in _seam.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy
import pyarrow as pa
import pyarrow.compute as pc

from ringmain import _aio, _names, _native, backends, typed
from ringmain._closing import Closing
from ringmain._endpoint import AsyncIteration, close_at_exit
from ringmain._message import Message
from ringmain._screens import Screened
from ringmain._subscriber import Subscriber
from ringmain._topic_info import parse_schema
from ringmain.errors import Closed, DecodeError, RingmainError, Timeout, Unsupported, no_message
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._past import Past, Since
from ringmain.recording._reader import Recording
from ringmain.recording._seam import EMPTY, Ahead, HistoryBatch

_SEAM_S = 2.0  # for what the recorder has taken and not written yet; a recorder flushes ten times a second
_EVERY_S = 0.02  # the recording is looked at so often then
_LISTED, _LISTED_BYTES = 256, 1 << 20  # rows that become Python objects at once: of one by one, each takes 10 us
_LOST = RING_SCHEMA.get_field_index("lost")


class HistorySubscriber(Screened, AsyncIteration, Closing):
    """A `Subscriber` that begins in a recording. See `ringmain.Subscriber` for its options."""

    _backend = "shm"
    _role = "subscriber"

    def __init__(
        self,
        topic: str,
        *,
        since: Since,
        recording: Recording | str | Path,
        type: Any = None,
        ignore_senders: Iterable[str] = (),
        ignore_kinds: Iterable[str] = (),
        only_senders: Iterable[str] | None = None,
        only_kinds: Iterable[str] | None = None,
        **live: Any,
    ) -> None:
        refused = [name for name in ("start", "conflate", "max_deliveries") if live.get(name)]
        if refused:
            raise ValueError(
                f"{refused[0]}= and since= exclude each other: a reader of history begins where since= says"
            )
        if not backends.TABLE[backends.choose(live.get("backend"))].native:
            raise Unsupported("a recording is gone on with in shared memory: since= is for the backend 'shm'")
        self.topic = _names.check_topic(topic)
        self._live_options = {**live, "start": "oldest", "type": type}
        self._codec: Any = typed.codec_for(type) if type is not None else None
        self._live: Subscriber[Any] | None = None
        self._closed = False
        self._screen_by(ignore_senders, ignore_kinds, only_senders, only_kinds)
        self._past = Past(topic, since, recording, self._codec)
        self._rows = EMPTY  # what is given next, of the recording or of the ring at the seam
        self._row, self._epoch = 0, 0
        self._listed: list[dict[str, Any]] = []  # the next of them
        self._of_ring = False  # are they of the ring?
        self._over = False  # has all of the recording been given that comes before the ring's next message?
        self._settled = False  # is it past the seam? Then the ring alone counts what is lost.
        self._ahead: Ahead | None = None
        self._joined_at: tuple[int, int] | None = None  # (epoch, sequence) of the first message of the ring for us
        self._reaching: tuple[int, int] | None = None  # up to this one the recording is read
        self._deadline_s = self._look_s = 0.0
        self._is_last_look = self._gave_up = False  # at the recording, for what comes before that message
        self._carried = self._lost = self._live_before = 0
        self._gave_past = False  # was the last message one of the recording?
        close_at_exit(self)

    # ------------------------------------------------------------------------------------- receiving

    @property
    def live(self) -> bool:
        """Is it past the seam, in the ring? False: what it gives next is from the recording, as far as is known."""
        return self._over and (self._of_ring or not self._has_rows())

    @property
    def lost(self) -> int:
        """Messages lost since the first one given: by the recorder, at the seam, and in the ring since."""
        return self._lost + (self._live.lost - self._live_before if self._settled and self._live is not None else 0)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def epoch(self) -> int | None:
        """Which life of the topic the last message was of."""
        if self._settled and self._live is not None and not self._has_rows():
            return self._live.epoch
        return self._epoch or None

    @property
    def schema(self) -> typed.Schema | None:
        """What the messages of this life look like, if they are typed."""
        here = self._live.schema if self._settled and self._live is not None else None
        return here or parse_schema(self._past.schema(self.epoch))

    def try_recv_message(self) -> Message[Any] | None:
        """The next message, or None at once."""
        self._check_open()
        while self._fill():
            self._gave_past = not self._of_ring
            if (message := self._given(self._next_row())) is not None:
                return message
        message = self._live.try_recv_message() if self._settled and self._live is not None else None
        self._gave_past = self._gave_past and message is None
        return message

    def recv_message(self, timeout: float | None = None) -> Message[Any]:
        """The next message. `Timeout` if none comes in time."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while (message := self.try_recv_message()) is None:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self._raise_timeout(timeout)
            _wait_for_all([self], left_s)
        return message

    def recv(self, timeout: float | None = None) -> Any:
        """The next message's data."""
        return self.recv_message(timeout).data

    def try_recv(self) -> Any:
        """The next message's data, or None at once."""
        message = self.try_recv_message()
        return None if message is None else message.data

    def recv_messages(self, max_messages: int, timeout: float | None = 0) -> list[Message[Any]]:
        """The messages that are there, up to so many. Waits, if at all, only for the first."""
        found: list[Message[Any]] = []
        while len(found) < max_messages:
            try:
                message = self.try_recv_message() if found else self.recv_message(timeout)
            except Timeout:
                break
            if message is None:
                break
            found.append(message)
        return found

    def recv_many(self, max_messages: int, timeout: float | None = 0) -> list[Any]:
        """`recv_messages` without the envelopes."""
        return [message.data for message in self.recv_messages(max_messages, timeout)]

    def recv_batch(
        self, max_messages: int = 65536, *, timeout: float | None = 0, max_bytes: int = 64 * 1024 * 1024
    ) -> HistoryBatch:
        """The messages that are there, as Arrow columns, of one life of the topic; with no Python object for each. Not
        more than so many messages; of the recording, perhaps more bytes."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while True:
            self._check_open()
            if self._fill():
                taken = self._rows.slice(self._row, max_messages)
                self._pass(len(taken))
                if len(batch := self._batch(taken)):
                    return batch
                continue
            if self._settled and self._live is not None:
                found = self._live.recv_batch(max_messages, timeout=0, max_bytes=max_bytes)
                if len(found):
                    return HistoryBatch(pa.record_batch(found), found.epoch)
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return HistoryBatch(EMPTY, 0)
            _wait_for_all([self], left_s)

    def borrow(self, timeout: float | None = None) -> _native.Lease:
        """As `Subscriber.borrow`, past the seam."""
        if self._fill() or not self._settled or self._live is None:
            raise Unsupported(
                "a message of a recording is not in the ring: receive it, and borrow once sub.live is true"
            )
        return self._live.borrow(timeout)

    def __iter__(self) -> HistorySubscriber:
        return self

    def __next__(self) -> Any:
        try:
            return self.recv()
        except Closed:
            raise StopIteration from None

    async def arecv_message(self, timeout: float | None = None) -> Message[Any]:
        """`recv_message` for asyncio. The recording is read in the loop, a block at a time."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while (message := self.try_recv_message()) is None:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            if self._settled and self._live is not None:
                return await _aio.receive(self._live, left_s)
            if left_s == 0:
                self._raise_timeout(timeout)
            if not self._over:
                left_s = _EVERY_S if left_s is None else min(_EVERY_S, left_s)
            if (ring := _ring_of(self)) is not None:
                await _aio.until_changed(ring, left_s)
            else:
                await asyncio.sleep(left_s or 0.0)
        return message

    async def arecv(self, timeout: float | None = None) -> Any:
        """`recv` for asyncio."""
        return (await self.arecv_message(timeout)).data

    def __aiter__(self) -> HistorySubscriber:
        return self

    def close(self) -> None:
        """Leave the topic, if it has joined it. Closing twice is harmless."""
        self._closed = True
        if self._live is not None:
            self._live.close()

    # ------------------------------------------------------------------------------------- history, and the seam

    def _has_rows(self) -> bool:
        return self._row < len(self._rows)

    def _next_row(self) -> dict[str, Any]:
        if not self._listed:
            rows = len(self._rows) - self._row
            most = max(1, min(_LISTED, rows, rows * _LISTED_BYTES // max(1, self._rows.nbytes)))
            self._listed = self._rows.slice(self._row, most).to_pylist()[::-1]
        self._row += 1
        return self._listed.pop()

    def _pass(self, rows: int) -> None:
        self._row += rows
        del self._listed[-rows:]

    def _fill(self) -> bool:
        """Are there rows to give? Reads on, joins the topic at the recording's end, and takes what the ring has."""
        while not self._has_rows():
            if self._settled:
                return False
            if self._ahead is not None and self._is_the_rings_turn(self._ahead):
                if self._ahead.first() is None:
                    self._settle()
                    return False
                self._give(*self._ahead.pop(), of_ring=True)
            elif (found := self._past.take()) is not None:
                self._give(*found, of_ring=False)
            elif self._ahead is None:
                self._join()
                self._past.look_again()
            elif self._is_last_look:
                self._gave_up = True
            elif time.monotonic() < self._look_s:
                return False
            else:
                now_s = time.monotonic()
                self._look_s, self._is_last_look = now_s + _EVERY_S, self._past.is_over or now_s >= self._deadline_s
                self._past.look_again()
        return True

    def _give(self, epoch: int, rows: pa.RecordBatch, *, of_ring: bool) -> None:
        if of_ring:
            rows = self._past.new(epoch, rows)  # without those that the recording gave, with what the seam has lost
        self._epoch, self._rows, self._row, self._listed, self._of_ring = epoch, rows, 0, [], of_ring

    def _join(self) -> None:
        self._live = Subscriber(self.topic, **self._live_options)
        self._ahead = Ahead(self._live)
        there = self._live._describe()
        if there is None:
            return
        try:
            seen = _native.inspect(_names.runtime_directory(), self.topic)
        except RingmainError:
            return
        for each in seen["participants"]:
            if each["slot"] == there["slot"] and seen["epoch"] == there["epoch"]:
                self._joined_at = (there["epoch"], each["sequence"])

    def _is_the_rings_turn(self, ahead: Ahead) -> bool:
        """Has everything been given that was recorded before the ring's next message, or will it not come?"""
        ahead.take_in()
        reaching = ahead.first() or self._joined_at
        if reaching != self._reaching or not self._deadline_s:
            self._reaching, self._deadline_s = reaching, time.monotonic() + _SEAM_S
            self._is_last_look = self._gave_up = False
        self._over = self._gave_up or (reaching is not None and self._past.has_reached(*reaching))
        return self._over

    def _settle(self) -> None:
        """Nothing of the ring waits. Its next message is the first that the native reader gives, unless what is lost
        before that one is not known yet: a message tells it."""
        if self._live is not None and (self._of_ring or not self._gave_up):
            self._settled = self._of_ring = True
            self._live_before = self._live.lost
            for name, names in self._screens().items():
                setattr(self._live, name, names)

    # ------------------------------------------------------------------------------------- helpers

    def _given(self, row: dict[str, Any]) -> Message[Any] | None:
        """A row as a message; None if it is screened out."""
        self._lost += row["lost"]
        if self._senders.skips(row["sender"]) or self._kinds.skips(row["kind"]):
            self._carried += row["lost"]
            return None
        carried, self._carried = self._carried, 0
        data = row["data"]
        if self._codec is not None:
            try:
                data = self._codec.decode(data)
            except Exception as error:
                raise DecodeError(self.topic, row["seq"], str(error)) from error
        return Message(data, row["seq"], row["time_ns"], row["sender"], row["kind"], row["lost"] + carried, self.topic)

    def _wanted(self, rows: pa.RecordBatch) -> numpy.ndarray:
        """Which of them are not screened out."""
        wanted = numpy.ones(len(rows), bool)
        for screen, column in ((self._senders, "sender"), (self._kinds, "kind")):
            if screen.active:
                names = pc.unique(rows.column(column)).to_pylist()
                passing = pa.array([name for name in names if not screen.skips(name)], pa.string())
                wanted &= pc.is_in(rows.column(column), passing).to_numpy(zero_copy_only=False)
        return wanted

    def _batch(self, taken: pa.RecordBatch) -> HistoryBatch:
        """What was lost before a message that is screened out is lost before the next that is not."""
        wanted = self._wanted(taken)
        so_far = numpy.cumsum(taken.column(_LOST).to_numpy()) + numpy.uint64(self._carried)
        self._lost += int(so_far[-1]) - self._carried
        told = so_far[wanted]
        self._carried = int(so_far[-1]) - (int(told[-1]) if len(told) else 0)
        if not wanted.all() or (len(told) and told[0] != taken.column(_LOST)[0].as_py()):
            lost = pa.array(numpy.diff(told, prepend=numpy.uint64(0)), pa.uint64())
            taken = taken.filter(pa.array(wanted)).set_column(_LOST, RING_SCHEMA.field(_LOST), lost)
        return HistoryBatch(taken, self._epoch)

    def _has_next(self) -> bool:
        """Is there a message to receive that is not in the ring? Rows that are screened out are passed."""
        self._check_open()
        while self._fill():
            row = self._rows.slice(self._row, 1)
            if self._wanted(row).all():
                return True
            self._pass(1)
            self._batch(row)
        return False

    def _raise_timeout(self, timeout: float | None) -> None:
        if self._live is not None:
            self._live._raise_timeout(timeout)
        raise no_message(self.topic, timeout, "it is still at the end of the recording", (), 0)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the subscriber of topic '{self.topic}' is closed", topic=self.topic)

    def __repr__(self) -> str:
        state = " closed" if self._closed else "" if self.live else f" in {self._past.recording}"
        return f"<ringmain.Subscriber '{self.topic}'{state}>"

    @staticmethod
    def _wait_among(subscribers: Sequence[Any], timeout: float | None) -> list[Any]:
        """`ringmain.wait` for these, some of which are of this kind."""
        return _wait_for_all(subscribers, timeout)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a subscriber with since= cannot be passed to another process: open it there")


def _wait_for_all(subscribers: Sequence[Any], timeout: float | None) -> list[Any]:
    """`ringmain.wait` where some of the subscribers are, or may be, in their history."""
    deadline_s = None if timeout is None else time.monotonic() + timeout
    while True:
        histories = [each for each in subscribers if isinstance(each, HistorySubscriber)]
        ready = {id(each) for each in histories if each._has_next()}
        rings = [_ring_of(each) for each in subscribers]
        waited = [ring for ring in rings if ring is not None]
        left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        at_end = any(not each._over for each in histories)
        slice_s = 0.0 if ready else left_s if not at_end else _EVERY_S if left_s is None else min(left_s, _EVERY_S)
        if waited:
            ready |= {id(ring) for ring in backends.wait(waited, slice_s)}
        elif not ready:
            time.sleep(slice_s or 0.0)
        found = [
            each
            for each, ring in zip(subscribers, rings, strict=True)
            if id(each) in ready or (id(ring) in ready and (each is ring or each._settled or each._has_next()))
        ]
        if found or (left_s is not None and left_s <= 0):
            return found


def _ring_of(each: Any) -> Any:
    """What is waited for: nothing of one that is still in its recording, or for which enough waits."""
    if not isinstance(each, HistorySubscriber):
        return each
    return None if each._ahead is None or each._ahead.is_full else each._live
