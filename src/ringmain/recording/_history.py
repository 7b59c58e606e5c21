"""History, then live: `rm.Subscriber("ticks", since="2h", recording="drive")`. It gives what was recorded, and goes on
with the ring.

The invariant owned here: of each life of the topic, messages given + messages counted as lost = the number of messages
from the first given to the newest, also where some are screened out. What the recording gives is in _past.py, how it
goes on with the ring in _seam.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
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
from ringmain.errors import Closed, DecodeError, Timeout, Unsupported, no_message
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._past import Past, Since
from ringmain.recording._reader import Recording
from ringmain.recording._record.continuity import lost_in
from ringmain.recording._seam import EMPTY, EVERY_S, Seam

_LOST, _DATA = (RING_SCHEMA.get_field_index(name) for name in ("lost", "data"))


class HistoryBatch:
    """What `recv_batch` of a subscriber with `since=` gives: like a `Batch`, from the recording or the ring."""

    def __init__(self, rows: pa.RecordBatch, epoch: int) -> None:
        self._rows, self.epoch = rows, epoch
        self.lost = lost_in(rows)
        self.nbytes = int(pc.sum(pc.binary_length(rows.column(_DATA))).as_py() or 0)

    def __len__(self) -> int:
        return len(self._rows)

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_array__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._rows.schema.__arrow_c_schema__()


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
        self._codec: Any = typed.codec_for(type) if type is not None else None
        self._ring: Subscriber[Any] | None = None  # past the seam, where the ring alone counts what is lost
        self._closed = False
        self._screen_by(ignore_senders, ignore_kinds, only_senders, only_kinds)
        self._past = Past(topic, since, recording, self._codec)
        self._seam = Seam(self._past, partial(Subscriber, topic, **{**live, "start": "oldest", "type": type}))
        self._carried = self._lost = self._ring_lost_before = 0
        self._gave_past = False  # was the last message one of the recording?
        close_at_exit(self)

    # ------------------------------------------------------------------------------------- receiving

    @property
    def live(self) -> bool:
        """Is it past the seam, in the ring? False: what it gives next is from the recording, as far as is known."""
        return self._seam.is_over and (self._seam.is_of_ring or not self._seam.has_rows())

    @property
    def lost(self) -> int:
        """Messages lost since the first one given: by the recorder, at the seam, and in the ring since."""
        return self._lost + (self._ring.lost - self._ring_lost_before if self._ring is not None else 0)

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def epoch(self) -> int | None:
        """Which life of the topic the last message was of."""
        if self._ring is not None and not self._seam.has_rows():
            return self._ring.epoch
        return self._seam.epoch or None

    @property
    def schema(self) -> typed.Schema | None:
        """What the messages of this life look like, if they are typed."""
        here = self._ring.schema if self._ring is not None else None
        return here or parse_schema(self._past.schema(self.epoch))

    def try_recv_message(self) -> Message[Any] | None:
        """The next message, or None at once."""
        self._check_open()
        while self._fill():
            self._gave_past = not self._seam.is_of_ring
            if (message := self._given(self._seam.next_row())) is not None:
                return message
        message = self._ring.try_recv_message() if self._ring is not None else None
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
                if len(batch := self._batch(self._seam.take(max_messages))):
                    return batch
                continue
            if self._ring is not None:
                found = self._ring.recv_batch(max_messages, timeout=0, max_bytes=max_bytes)
                if len(found):
                    return HistoryBatch(pa.record_batch(found), found.epoch)
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return HistoryBatch(EMPTY, 0)
            _wait_for_all([self], left_s)

    def borrow(self, timeout: float | None = None) -> _native.Lease:
        """As `Subscriber.borrow`, past the seam."""
        if self._fill() or self._ring is None:
            raise Unsupported(
                "a message of a recording is not in the ring: receive it, and borrow once sub.live is true"
            )
        return self._ring.borrow(timeout)

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
            if self._ring is not None:
                return await _aio.receive(self._ring, left_s)
            if left_s == 0:
                self._raise_timeout(timeout)
            if not self._seam.is_over:
                left_s = EVERY_S if left_s is None else min(EVERY_S, left_s)
            if (ring := self._seam.waits_for()) is not None:
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
        if self._seam.ring is not None:
            self._seam.ring.close()

    # ------------------------------------------------------------------------------------- helpers

    def _fill(self) -> bool:
        """Are there rows to give that are not left to the ring?"""
        found = self._seam.fill()
        if self._ring is None and self._seam.is_settled and self._seam.ring is not None:
            self._ring, self._ring_lost_before = self._seam.ring, self._seam.ring.lost
            self._rescreen()
        return found

    def _rescreen(self) -> None:
        super()._rescreen()
        if self._ring is not None:
            for name, names in self._screens().items():
                setattr(self._ring, name, names)

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
        return Message(
            data, row["seq"], row["time_ns"], row["sender"], row["kind"], row["lost"] + carried, self.topic,
            extension=row["extension"],
        )  # fmt: skip

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
        return HistoryBatch(taken, self._seam.epoch)

    def _has_next(self) -> bool:
        """Is there a message to receive that is not in the ring? Rows that are screened out are passed."""
        self._check_open()
        while self._fill():
            if self._wanted(self._seam.next()).all():
                return True
            self._batch(self._seam.take(1))
        return False

    def _raise_timeout(self, timeout: float | None) -> None:
        if self._seam.ring is not None:
            self._seam.ring._raise_timeout(timeout)
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
        at_end = any(not each._seam.is_over for each in histories)
        slice_s = 0.0 if ready else left_s if not at_end else EVERY_S if left_s is None else min(left_s, EVERY_S)
        if waited:
            ready |= {id(ring) for ring in backends.wait(waited, slice_s)}
        elif not ready:
            time.sleep(slice_s or 0.0)
        found = [
            each
            for each, ring in zip(subscribers, rings, strict=True)
            if id(each) in ready or (id(ring) in ready and (each is ring or each._ring is not None or each._has_next()))
        ]
        if found or (left_s is not None and left_s <= 0):
            return found


def _ring_of(each: Any) -> Any:
    """What is waited for: nothing of one that is still in its recording, or for which enough waits."""
    return each._seam.waits_for() if isinstance(each, HistorySubscriber) else each
