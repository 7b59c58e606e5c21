"""A tap: the recorder's subscriber on one topic. It takes messages in batches, large messages in place, frames by copy.

The invariants owned here: a batch is of one life of its topic, and the life is known before any of its messages is
taken. Messages are held while they are written to disk only on `reliable` topics, where writers wait for the recorder
anyway: elsewhere a slow disk costs messages, which are counted, and never a writer's time.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain import _names, _native
from ringmain._contracts import CONTRACTS, DEFAULT_CONTRACT
from ringmain._native import Lease
from ringmain._subscriber import Start, Subscriber
from ringmain.errors import MessageTooLarge, RingmainError, Timeout
from ringmain.frames import Frame, FrameSubscriber
from ringmain.recording import _frames
from ringmain.recording._format import FRAMES, MAX_PAYLOAD_BYTES, RING_SCHEMA
from ringmain.recording._meta import NOT_KNOWN, Properties

if TYPE_CHECKING:
    from ringmain._ring import ParticipantRecord

_LARGE_BYTES = 64 << 10  # messages of this size and more are written in place, without a copy
_MOST_IN_PLACE = 256  # messages in one batch: a system call takes 1024 pieces
_SHARE = 8  # one batch borrows at most 1/8 of a ring: up to four batches are held at once
_DATA = RING_SCHEMA.field("data")


class Life(NamedTuple):
    """What is known of one life of a topic."""

    epoch: int
    contract: str
    schema: bytes
    first_seq: int
    """The first message that the tap can still get, or could when it joined."""
    properties: Properties


class Taken(NamedTuple):
    """Messages that were taken from a topic, in the ring's columns."""

    ring: pa.RecordBatch
    epoch: int
    bytes: int
    lost: int
    in_place: Sequence[Lease] = ()
    """Borrowed messages: their bytes are here, and the column `data` only has their sizes."""

    def release(self) -> None:
        """Release the borrowed messages."""
        for lease in self.in_place:
            lease.release()


def _rows(messages: Sequence[Lease] | Sequence[Frame], data: pa.Array) -> pa.RecordBatch:
    """The ring's columns, from messages taken one by one. Frames have no extension."""
    envelope = [field for field in RING_SCHEMA if field != _DATA]
    arrays = [pa.array([getattr(m, field.name, b"") for m in messages], field.type) for field in envelope]
    return pa.RecordBatch.from_arrays([*arrays, data], schema=RING_SCHEMA)


_untouched = pa.py_buffer(mmap.mmap(-1, 1 << 20))


def untouched(size: int) -> pa.Buffer:
    """A buffer of this size that is never read: pages that are never touched take no memory."""
    global _untouched
    if _untouched.size < size:
        _untouched = pa.py_buffer(mmap.mmap(-1, 2 * size))
    return _untouched.slice(0, size)


class _Tapping(Subscriber if TYPE_CHECKING else object):  # type: ignore[misc]
    """What both kinds of taps have: the lives of the topic, and how far behind they are."""

    lives: dict[int, Life]
    capacity: int
    begun: int
    """The epoch of the life that messages were last taken of."""
    _contract: str | None = None  # what meta.json says instead of the topic's own
    _ahead: Lease | Frame | None = None

    @property
    def ahead(self) -> bool:
        """Was a message taken that `take()` has not returned yet? The topic does not count it any more."""
        return self._ahead is not None

    def _attached(self) -> None:
        super()._attached()
        there = self._describe()
        assert there is not None
        epoch, self.capacity = there["epoch"], there["capacity_bytes"]
        contract, schema = self._contract or there["contract"], self._schema()
        own = self._own_record()
        sequence = own["sequence"] if own is not None else 0
        self.lives[epoch] = Life(epoch, contract, schema, sequence, self._properties())
        if len(self.lives) > 2:  # a batch is of this life or, at the turn, of the one before
            del self.lives[min(self.lives)]

    def refresh(self) -> None:
        """The newest writer of a topic may have changed its schema."""
        there = self._describe()
        known = self.lives.get(there["epoch"]) if there is not None else None
        if known is not None and (schema := self._schema()) != known.schema:
            self.lives[known.epoch] = known._replace(schema=schema)

    def _properties(self) -> Properties:
        """What the topic was created with, if it is still there to be asked."""
        seen = self._inspect()
        if seen is None:
            return NOT_KNOWN
        kept = seen["kept"]
        return Properties(
            seen["capacity_bytes"], seen["max_participants"], kept["max_kinds"] if kept else 0, seen["persist"]
        )

    def _inspect(self) -> _native.Inspection | None:
        """The topic from outside, in the life that this tap has joined."""
        there = self._describe() if not self.closed else None
        try:
            seen = _native.inspect(_names.runtime_directory(), self.topic) if there is not None else None
        except RingmainError:
            return None
        return seen if seen is not None and there is not None and seen["epoch"] == there["epoch"] else None

    def lag(self) -> tuple[int, int]:
        """(messages, bytes) between this tap and the newest message. May be called from any thread."""
        own = self._own_record()
        return (own["lag_messages"] + self.ahead, own["lag_bytes"]) if own is not None else (int(self.ahead), 0)

    def _own_record(self) -> ParticipantRecord | None:
        """What the roster says of this tap."""
        there, seen = (self._describe(), self._inspect()) if not self.closed else (None, None)
        if there is None or seen is None:
            return None
        return next((each for each in seen["participants"] if each["slot"] == there["slot"]), None)


class Tap(_Tapping, Subscriber):
    """Takes messages. When lapped, it goes on with the oldest message that is left."""

    _observer_sees_descriptors = False

    def __init__(self, topic: str, *, start: Start, observe: bool, name: str) -> None:
        self.lives, self.capacity, self.begun = {}, 0, 0
        self._observes = observe
        self._large = False  # were the last messages large?
        self._ahead: Lease | None = None  # borrowed, and returned by the next take()
        self._of_kept = _reader_of_kept(topic, name)  # joins first, so that it and the tap miss no message between them
        super().__init__(topic, start=start, observe="always" if observe else "pipes", name=name)

    def take_kept(self) -> tuple[int, pa.RecordBatch] | None:
        """(epoch, messages) that the topic kept before the first that the tap can get, the last of each kind; once."""
        reader, self._of_kept = self._of_kept, None
        if reader is None:
            return None
        found = [pa.RecordBatch.from_pylist([], RING_SCHEMA)]
        with reader:
            life = self.lives.get(reader.epoch or 0)
            while life is not None and len(batch := reader.recv_batch(timeout=0)) and batch.epoch == life.epoch:
                rows = pa.record_batch(batch)
                found.append(rows.filter(pc.less(rows.column("seq"), pa.scalar(life.first_seq, pa.uint64()))))
                if len(found[-1]) < len(rows):
                    break
        return (life.epoch, pa.concat_batches(found)) if life is not None else None

    def take(self, most: int, most_bytes: int) -> Taken | None:
        """The messages that are there, up to these limits, but at least one; None if there is none."""
        if self._ahead is not None and self.epoch != self.begun:  # the first of a new life
            lease, self._ahead = self._ahead, None
            with lease:
                return Taken(_rows([lease], pa.array([bytes(lease.data)], _DATA.type)), self.epoch or 0,
                             len(lease.data), lease.lost)  # fmt: skip
        if self._ahead is not None or (self._large and self.epoch == self.begun):
            return self._take_in_place(min(most, _MOST_IN_PLACE), most_bytes)
        batch = self.recv_batch(most, timeout=0, max_bytes=most_bytes)
        if not len(batch):
            return None
        contract = CONTRACTS[self.contract or DEFAULT_CONTRACT]
        stays = contract.writer_waits and not contract.takes_away and not self._observes  # a pipe is observed
        self._large = stays and batch.nbytes >= len(batch) * _LARGE_BYTES
        return Taken(pa.record_batch(batch), batch.epoch, batch.nbytes, batch.lost)

    def _take_in_place(self, most: int, most_bytes: int) -> Taken | None:
        """Borrow large messages, to be written without a copy: copying a megabyte costs half as much as writing it."""
        leases: list[Lease] = []
        size = 0
        most_bytes = min(most_bytes, self.capacity // _SHARE)
        while len(leases) < most and (not leases or size < most_bytes):
            lease, self._ahead = self._ahead, None
            try:
                lease = lease or self.borrow(timeout=0)
            except Timeout:
                break
            except RingmainError:
                if not leases:
                    raise
                break  # the next call raises it again
            if self.epoch != self.begun or (leases and size + len(lease.data) > MAX_PAYLOAD_BYTES):
                self._ahead = lease
                break
            leases.append(lease)
            size += len(lease.data)
        if not leases:
            return None
        self._large = size >= len(leases) * _LARGE_BYTES
        ends = list(accumulate((len(lease.data) for lease in leases), initial=0))
        offsets = pa.array(ends, pa.int32()).buffers()[1]
        sizes_only = pa.Array.from_buffers(_DATA.type, len(leases), [None, offsets, untouched(size)])
        return Taken(_rows(leases, sizes_only), self.begun, size, sum(lease.lost for lease in leases), leases)

    def close(self) -> None:
        if self._of_kept is not None:
            self._of_kept.close()
        if self._ahead is not None:
            self._ahead.release()
            self._ahead = None
        super().close()


def _reader_of_kept(topic: str, name: str) -> Subscriber | None:
    """A reader that begins with the last message of each kind; None where the topic keeps none, or cannot be read."""
    try:
        if not _native.inspect(_names.runtime_directory(), topic)["kept"]:
            return None
        return Subscriber(topic, start="newest", observe="always", name=name)
    except RingmainError:
        return None


class FrameTap(_Tapping, FrameSubscriber):
    """Takes frames. Each is held only while it is copied, so that a recorder does not block a publisher's buffers."""

    _contract = FRAMES

    def __init__(self, topic: str, *, start: Start, name: str) -> None:
        self.lives, self.capacity, self.begun = {}, 0, 0
        self._ahead: Frame | None = None  # the first frame of the next life
        self._trouble: RingmainError | None = None
        super().__init__(topic, start=start, name=name)

    def take(self, most: int, most_bytes: int) -> Taken | None:
        """The frames that are there, up to these limits, but at least one; None if there is none."""
        rows: list[Frame] = []
        payloads: list[bytes] = []
        size = lost = life = 0
        while len(rows) < most and (not rows or size < most_bytes):
            try:
                frame, epoch = self._next_frame()
            except RingmainError as error:
                if not rows:
                    raise
                self._trouble = error  # the frames taken so far are returned first
                break
            if frame is None or (rows and epoch != life):
                self._ahead = frame
                break
            life = epoch
            with frame:
                payloads.append(b"".join((frame.data, _frames.trailer_of(frame))))
            rows.append(frame)
            size += len(payloads[-1])
            lost += frame.lost
        if not rows:
            return None
        return Taken(_rows(rows, pa.array(payloads, _DATA.type)), life, size, lost)

    def _next_frame(self) -> tuple[Frame | None, int]:
        """The next frame, if there is one, and the epoch of its life."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        frame, self._ahead = self._ahead or self.try_recv(), None
        if frame is not None and frame.size > MAX_PAYLOAD_BYTES:
            frame.release()
            raise MessageTooLarge(
                f"a frame of topic '{self.topic}' has {frame.size} bytes; a recording holds messages of "
                f"{MAX_PAYLOAD_BYTES} at most. Leave the topic out (exclude=, --no-frames)",
                topic=self.topic,
            )
        return frame, self.epoch or 0

    @property
    def ahead(self) -> bool:
        return super().ahead or self._trouble is not None

    def _properties(self) -> Properties:
        try:
            pool = _native.inspect_pool(_names.runtime_directory(), self.topic)
        except RingmainError:
            return super()._properties()
        return msgspec.structs.replace(super()._properties(), buffers=pool["buffers"])

    def lag(self) -> tuple[int, int]:
        messages, _ = super().lag()
        return messages, messages * (self._layout.size if self._layout is not None else 0)
