"""History, then live: `rm.Subscriber("ticks", since="2h", recording="drive")`. It gives what was recorded, and goes on
with the ring.

    recording ──► its end for now ──► join the ring at its oldest message ──► what is recorded meanwhile ──► the ring

The invariants owned here: each message once, in order; and of each life of the topic, messages given + messages counted
as lost = the number of messages from the first given to the newest. Which message is the next is known by the epoch and
the sequence number alone: the ring's messages below it were given from the recording, and those that neither has are
counted at the *seam*, in `lost` of the first message after it. Until it joins, the topic does not know of it: no
writer waits for a reader of history.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain import _aio, _contracts, _names, _native, typed
from ringmain._closing import Closing
from ringmain._endpoint import AsyncIteration, close_at_exit
from ringmain._message import Message
from ringmain._screens import Screened
from ringmain._subscriber import Subscriber
from ringmain.errors import Closed, DecodeError, RecordingNotFound, RingmainError, Timeout, Unsupported, no_message
from ringmain.recording._filters import as_ns
from ringmain.recording._format import RING_SCHEMA, Position
from ringmain.recording._meta import TopicMeta
from ringmain.recording._reader import Recording
from ringmain.recording._record.continuity import with_lost, without_known
from ringmain.recording._segment.segment import time_ns_of
from ringmain.recording._segment.store import read_retired
from ringmain.recording._upkeep.incidents import Incident, find_incident
from ringmain.recording._upkeep.lock import is_locked

Since: TypeAlias = "str | timedelta | datetime | int | Incident"

_SPANS_S = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_COLUMNS = ("epoch", "seq", "publish_time", "publish_ns", "sender", "kind", "lost", "payload")
_SEAM_S = 2.0  # for what the recorder has taken and not written yet; a recorder flushes ten times a second
_EVERY_S = 0.02  # the recording is looked at so often then
_SEQ, _LOST, _DATA = (RING_SCHEMA.get_field_index(name) for name in ("seq", "lost", "data"))
_EMPTY = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in RING_SCHEMA], schema=RING_SCHEMA)


class HistoryBatch:
    """What `recv_batch` of a subscriber with `since=` gives: like a `Batch`, from the recording or the ring."""

    def __init__(self, rows: pa.RecordBatch, epoch: int) -> None:
        self._rows, self.epoch = rows, epoch
        self.lost = int(pc.sum(rows.column(_LOST)).as_py() or 0)
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
        self.topic = _names.check_topic(topic)
        self._live_options = {**live, "start": "oldest", "type": type}
        self._codec: Any = typed.codec_for(type) if type is not None else None
        self._live: Subscriber[Any] | None = None
        self._settled = False  # is it past the seam? Then the ring alone counts what is lost.
        self._closed = False
        self._screen_by(ignore_senders, ignore_kinds, only_senders, only_kinds)
        self._recording, self._skip, self._position, self._since_ns = _beginning(topic, since, recording)
        self._lives: dict[int, TopicMeta] = {}
        self._check_lives()
        self._next: dict[int, int] = {}  # by epoch: the next message; the last epoch is that of the newest given
        self._rows: pa.RecordBatch | None = None
        self._row, self._epoch = 0, 0
        self._coming = self._read_on()
        self._over = False  # has all of the recording been given that came before the ring?
        self._first: tuple[int, int] | None = None  # (epoch, sequence) of the first message of the ring for us
        self._deadline_s = self._look_s = 0.0
        self._carried = self._lost = self._live_before = 0
        close_at_exit(self)

    # ------------------------------------------------------------------------------------- receiving

    @property
    def live(self) -> bool:
        """Is it past the seam, in the ring? False: what it gives next is from the recording, as far as is known."""
        return self._over and (self._rows is None or self._row >= len(self._rows))

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
        return self._live.epoch if self._settled and self._live is not None else self._epoch or None

    def try_recv_message(self) -> Message[Any] | None:
        """The next message, or None at once."""
        self._check_open()
        while self._fill():
            assert self._rows is not None
            row = self._rows.slice(self._row, 1).to_pylist()[0]
            self._row += 1
            if (message := self._given(row)) is not None:
                return message
        while self._over and self._live is not None:
            message = self._live.try_recv_message()
            if message is None or (message := self._past_seam(message)) is not None:
                return message
        return None

    def recv_message(self, timeout: float | None = None) -> Message[Any]:
        """The next message. `Timeout` if none comes in time."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while (message := self.try_recv_message()) is None:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                self._raise_timeout(timeout)
            self._wait(left_s, timeout)
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
                assert self._rows is not None
                taken = self._rows.slice(self._row, max_messages)
                self._row += len(taken)
                return self._batch(self._screened(taken), self._epoch)
            if self._over and self._live is not None:
                batch = self._live.recv_batch(max_messages, timeout=0, max_bytes=max_bytes)
                rows = pa.record_batch(batch)
                if len(rows) and not self._settled:
                    rows = self._rows_past_seam(rows, batch.epoch)
                if len(rows):
                    return HistoryBatch(rows, batch.epoch)
                if len(batch):
                    continue
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            if left_s is not None and left_s <= 0:
                return HistoryBatch(_EMPTY, 0)
            self._wait(left_s, timeout)

    def borrow(self, timeout: float | None = None) -> _native.Lease:
        """As `Subscriber.borrow`, past the seam."""
        if not self._settled or self._live is None:
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
            if self._over and self._live is not None:
                message = self._past_seam(await _aio.receive(self._live, left_s))
                if message is not None:
                    break
            else:
                if left_s == 0:
                    self._raise_timeout(timeout)
                await asyncio.sleep(_EVERY_S if left_s is None else min(_EVERY_S, left_s))
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

    # ------------------------------------------------------------------------------------- history

    def _fill(self) -> bool:
        """Are there rows of the recording to give? Reads on, and joins the topic at the recording's end."""
        while not self._over:
            if self._rows is not None and self._row < len(self._rows):
                return True
            found = next(self._coming, None)
            if found is not None:
                self._take(*found)
            elif self._live is None:
                self._join()
                self._coming = self._read_on()
            elif self._has_reached_the_ring() or time.monotonic() >= self._deadline_s:
                self._over = True
            elif time.monotonic() < self._look_s:
                return False
            else:
                self._look_s = time.monotonic() + _EVERY_S
                self._coming = self._read_on()
        return self._rows is not None and self._row < len(self._rows)

    def _read_on(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(epoch, rows as the ring has them) of what is recorded from the position on, by now."""
        try:
            for where, batch in self._recording.batches(
                topics=self.topic, since=self._since_ns, start=self._position, columns=_COLUMNS
            ):
                last = where[len(where) - 1].as_py()
                self._position = Position(last["segment"], last["row"] + 1)
                for epoch in pc.unique(batch.column("epoch")).to_pylist():
                    yield epoch, _as_ring(batch.filter(pc.equal(batch.column("epoch"), epoch)))
        except RecordingNotFound:  # retention was faster than we: what it has deleted is counted as lost
            first = read_retired(self._recording.store).first_segment
            if self._position is not None and self._position.segment >= first:
                raise
            self._position = Position(first, 0)

    def _take(self, epoch: int, rows: pa.RecordBatch) -> None:
        if self._skip:
            skipped = min(self._skip, len(rows))
            self._skip -= skipped
            rows = rows.slice(skipped)
        if not len(rows):
            return
        expected = self._expected(epoch, rows.column(_SEQ)[0].as_py())
        rows = with_lost(without_known(rows, expected), expected)
        if not len(rows):
            return
        self._check_lives()
        self._rows, self._row, self._epoch = rows, 0, epoch
        self._next.pop(epoch, None)
        self._next[epoch] = int(rows.column(_SEQ)[len(rows) - 1].as_py()) + 1

    def _check_lives(self) -> None:
        """Can the type read what was recorded?"""
        for (name, epoch), life in self._recording.schemas().items():
            if name == self.topic and self._lives.get(epoch) != life:
                traits = _contracts.CONTRACTS.get(life.contract)
                if traits is not None and traits.shared:
                    raise Unsupported(
                        f"topic '{name}' is a queue of work: its tasks are done once, and have no history", topic=name
                    )
                if self._codec is not None and life.schema:
                    typed.compatible(typed.Schema.from_bytes(life.schema), self._codec.schema, topic=name)
                self._lives[epoch] = life

    # ------------------------------------------------------------------------------------- the seam

    def _join(self) -> None:
        self._live = Subscriber(self.topic, **self._live_options)
        self._deadline_s = time.monotonic() + _SEAM_S
        there = self._live._describe()
        if there is None:
            return
        try:
            seen = _native.inspect(_names.runtime_directory(), self.topic)
        except RingmainError:
            return
        for each in seen["participants"]:
            if each["slot"] == there["slot"] and seen["epoch"] == there["epoch"]:
                self._first = (there["epoch"], each["sequence"])

    def _has_reached_the_ring(self) -> bool:
        """Has everything been read that was recorded before the first message that the ring has for us?"""
        if self._first is not None and self._next.get(self._first[0], -1) >= self._first[1]:
            return True
        directory = self._recording.store.directory
        return self._recording.incident is not None or directory is None or not is_locked(directory)

    def _expected(self, epoch: int, seq: int) -> int:
        """The next message of this life. Before the first message that is given none is lost, and of a life that
        follows another one, all are wanted."""
        return self._next.get(epoch, 0 if self._next else seq)

    def _settle(self, epoch: int, lost: int) -> None:
        """The ring's first message past the seam has come, with so many missing before it."""
        assert self._live is not None
        self._settled, self._epoch = True, epoch
        self._lost += lost
        self._live_before = self._live.lost
        for name, names in self._screens().items():
            setattr(self._live, name, names)

    def _past_seam(self, message: Message[Any]) -> Message[Any] | None:
        """A message of the ring, with what the seam lost; None if the recording gave it, or it is screened out."""
        if self._settled:
            return message
        assert self._live is not None
        epoch = self._live.epoch or 0
        expected = self._expected(epoch, message.seq)
        if message.seq < expected:
            return None
        lost = message.seq - expected if self._next else message.lost
        if self._senders.skips(message.sender) or self._kinds.skips(message.kind):
            self._note_screened(epoch, message.seq, lost)
            return None
        carried, self._carried = self._carried, 0
        self._settle(epoch, lost)
        return msgspec.structs.replace(message, lost=lost + carried)

    def _note_screened(self, epoch: int, seq: int, lost: int) -> None:
        self._carried += lost
        self._lost += lost
        self._next.pop(epoch, None)
        self._next[epoch] = seq + 1

    def _rows_past_seam(self, rows: pa.RecordBatch, epoch: int) -> pa.RecordBatch:
        expected = self._expected(epoch, rows.column(_SEQ)[0].as_py())
        rows = without_known(rows, expected)
        if not len(rows):
            return rows
        rows = with_lost(rows, expected) if self._next else rows
        whole = int(pc.sum(rows.column(_LOST)).as_py() or 0)
        self._settle(epoch, whole)
        return self._screened(rows)

    # ------------------------------------------------------------------------------------- helpers

    def _given(self, row: dict[str, Any]) -> Message[Any] | None:
        """A row of the recording as a message; None if it is screened out."""
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

    def _screened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        for screen, column in ((self._senders, "sender"), (self._kinds, "kind")):
            if screen.active:
                names = pc.unique(rows.column(column)).to_pylist()
                wanted = pa.array([name for name in names if not screen.skips(name)], pa.string())
                rows = rows.filter(pc.is_in(rows.column(column), wanted))
        return rows

    def _batch(self, rows: pa.RecordBatch, epoch: int) -> HistoryBatch:
        batch = HistoryBatch(rows, epoch)
        self._lost += batch.lost
        return batch

    def _wait(self, left_s: float | None, timeout: float | None) -> None:
        """For what may come next: the recorder's next flush, or the ring's next message."""
        if self._over and self._live is not None:
            _native.wait([self._live], left_s)
        else:
            time.sleep(_EVERY_S if left_s is None else min(_EVERY_S, left_s))

    def _raise_timeout(self, timeout: float | None) -> None:
        if self._live is not None:
            self._live._raise_timeout(timeout)
        raise no_message(self.topic, timeout, "it is still at the end of the recording", (), 0)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the subscriber of topic '{self.topic}' is closed", topic=self.topic)

    def __repr__(self) -> str:
        state = " closed" if self._closed else "" if self.live else f" in {self._recording}"
        return f"<ringmain.Subscriber '{self.topic}'{state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a subscriber with since= cannot be passed to another process: open it there")


def _beginning(
    topic: str, since: Since, recording: Recording | str | Path
) -> tuple[Recording, int, Position | None, int | None]:
    """(the recording, messages of the topic to skip, from which position on, publish times from when on)."""
    of = recording if isinstance(recording, Recording) else Recording(recording)
    if isinstance(since, int) and not isinstance(since, bool):
        return of, *_last(of, topic, since), None
    return of, 0, None, _since_ns(of, since)


def _last(recording: Recording, topic: str, messages: int) -> tuple[int, Position | None]:
    """Where the last so many messages of a topic begin: (messages to skip, from this position on)."""
    if messages < 0:
        raise ValueError(f"since= is a number of messages, 0 or more, not {messages}")
    left = messages
    for ref in reversed(recording.segments()):
        with recording.opened(ref) as segment:
            rows = sum(stats.rows for stats in segment.stats() if stats.topic == topic) if segment is not None else 0
        if rows >= left:
            return rows - left, Position(ref.number, 0)
        left -= rows
    return 0, None


def _since_ns(recording: Recording, since: Since) -> int:
    if isinstance(since, Incident):
        return since.start_ns
    if isinstance(since, datetime):
        return as_ns(since) or 0
    if isinstance(since, timedelta):
        return time.time_ns() - round(since.total_seconds() * 1e9)
    if not isinstance(since, str):
        raise TypeError(f"since= is a time like '2h', a datetime, a number of messages or an incident, not {since!r}")
    unit = since.lstrip("0123456789.")
    try:
        span_s = float(since.removesuffix(unit)) * _SPANS_S[unit]
    except (ValueError, KeyError):
        return find_incident(recording.store, since).start_ns
    return time.time_ns() - round(span_s * 1e9)


def _as_ring(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a recording in the columns that the ring gives."""
    columns = [
        batch.column("seq").cast(pa.uint64()), time_ns_of(batch), batch.column("sender"), batch.column("kind"),
        batch.column("lost").cast(pa.uint64()), batch.column("payload"),
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=RING_SCHEMA)
