"""One topic, as a recorder draws from it: messages by the batch, large ones where they lie, frames by the copy.

The invariants owned here: a batch is of one life of its topic, and the life is known before anything of it is taken.
And only where writers wait for the recorder anyway (`reliable`) are messages held while they are written to disk:
elsewhere a slow disk costs messages, which are counted, and never a writer's time.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from ringmain import _names, _native
from ringmain._native import Lease
from ringmain._subscriber import Start, Subscriber
from ringmain.errors import MessageTooLarge, RingmainError, Timeout
from ringmain.frames import Frame, FrameSubscriber
from ringmain.recording import _frames
from ringmain.recording._format import FRAMES, MAX_PAYLOAD_BYTES, RING_SCHEMA

_LARGE_BYTES = 64 << 10  # from here on messages are written from where they lie
_MOST_IN_PLACE = 256  # at once: a system call takes 1024 pieces
_SHARE = 8  # the part of a ring that is borrowed at once: up to four such are under way
_DATA = RING_SCHEMA.field("data")
_DESCRIPTOR = b"FRME"  # how one begins; see docs/spec/frames.md


class Life(NamedTuple):
    """What is known of one life of a topic."""

    epoch: int
    contract: str
    schema: bytes
    first_seq: int
    """The first message that the tap can still get, or could when it joined."""


class Taken(NamedTuple):
    """Messages that were taken from a topic, in the ring's columns."""

    ring: pa.RecordBatch
    epoch: int
    bytes: int
    lost: int
    in_place: Sequence[Lease] = ()
    """Borrowed messages: their bytes are here, and the column `data` only says how many they are."""

    def release(self) -> None:
        """Give back what was borrowed."""
        for lease in self.in_place:
            lease.release()


def _rows(messages: Sequence[Lease] | Sequence[Frame], data: pa.Array) -> pa.RecordBatch:
    """The ring's columns, from messages taken one by one."""
    envelope = [field for field in RING_SCHEMA if field != _DATA]
    arrays = [pa.array([getattr(m, field.name) for m in messages], field.type) for field in envelope]
    return pa.RecordBatch.from_arrays([*arrays, data], schema=RING_SCHEMA)


_untouched = pa.py_buffer(mmap.mmap(-1, 1 << 20))


def untouched(size: int) -> pa.Buffer:
    """A buffer of so many bytes that nobody is going to read: pages that are never touched take no memory."""
    global _untouched
    if _untouched.size < size:
        _untouched = pa.py_buffer(mmap.mmap(-1, 2 * size))
    return _untouched.slice(0, size)


class _Tapping(Subscriber if TYPE_CHECKING else object):  # type: ignore[misc]
    """What taps of either kind know of their topic. It loses as little as it can: a lapped tap goes on with the oldest
    message that is left."""

    lives: dict[int, Life]
    capacity: int
    begun: int
    """The life of which something has been taken."""
    _contract: str | None = None  # what meta.json says instead of the topic's own
    _ahead: Lease | Frame | None = None

    @property
    def ahead(self) -> bool:
        """Has something been taken from the topic, and not been given by `take()` yet? The topic says nothing of it."""
        return self._ahead is not None

    def _attached(self) -> None:
        super()._attached()
        there = self._describe()
        assert there is not None
        epoch, self.capacity = there["epoch"], there["capacity_bytes"]
        _, _, sequence, _ = self._whereabouts()
        self.lives[epoch] = Life(epoch, self._contract or there["contract"], self._schema(), sequence)
        if len(self.lives) > 2:  # a batch is of this life or, at the turn, of the one before
            del self.lives[min(self.lives)]

    def refresh(self) -> None:
        """The newest writer of a topic may have changed its schema."""
        there = self._describe()
        known = self.lives.get(there["epoch"]) if there is not None else None
        if known is not None and (schema := self._schema()) != known.schema:
            self.lives[known.epoch] = known._replace(schema=schema)

    def lag(self) -> tuple[int, int]:
        """(messages, bytes) between this tap and the newest message. May be called from any thread."""
        newest, end, sequence, position = self._whereabouts()
        return max(0, newest - sequence) + self.ahead, max(0, end - position)

    def _whereabouts(self) -> tuple[int, int, int, int]:
        """Where the topic's writers are, and where this tap is: each as the number and position of the next message."""
        nowhere = (0, 0, 0, 0)
        there = self._describe() if not self.closed else None
        if there is None:
            return nowhere
        try:
            seen = _native.inspect(_names.runtime_directory(), self.topic)
        except RingmainError:
            return nowhere
        if seen["epoch"] != there["epoch"]:
            return nowhere
        for each in seen["participants"]:
            if each["slot"] == there["slot"]:
                return seen["next_sequence"], seen["position"], each["sequence"], each["position"]
        return nowhere


class Tap(_Tapping, Subscriber):
    """Takes messages."""

    def __init__(self, topic: str, *, start: Start, observe: bool, name: str) -> None:
        self.lives, self.capacity, self.begun = {}, 0, 0
        self._observes = observe
        self._large = False  # did large messages come last?
        self._ahead: Lease | None = None  # borrowed, and to be taken next
        super().__init__(topic, start=start, on_lap="oldest", observe="always" if observe else "pipes", name=name)

    def take(self, most: int, most_bytes: int) -> Taken | None:
        """What is there, up to so many messages and bytes, but one in any case."""
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
        self._large = batch.nbytes >= len(batch) * _LARGE_BYTES and self.contract == "reliable" and not self._observes
        return Taken(pa.record_batch(batch), batch.epoch, batch.nbytes, batch.lost)

    def _take_in_place(self, most: int, most_bytes: int) -> Taken | None:
        """Large messages are written from where they lie: copying a megabyte costs half of what writing it does."""
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
                break  # it comes again
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
        told = pa.Array.from_buffers(_DATA.type, len(leases), [None, offsets, untouched(size)])
        return Taken(_rows(leases, told), self.begun, size, sum(lease.lost for lease in leases), leases)

    def close(self) -> None:
        if self._ahead is not None:
            self._ahead.release()
            self._ahead = None
        super().close()

    def sees_frames(self, taken: Taken) -> bool:
        """Are these descriptors of frames? A stream's topic is there before its pool, so it may have been taken for one
        of messages; but the pool is there before the first frame."""
        if memoryview(taken.ring.column("data")[0].as_buffer())[: len(_DESCRIPTOR)] != _DESCRIPTOR:
            return False
        return self.topic in _native.pools(_names.runtime_directory())


class FrameTap(_Tapping, FrameSubscriber):
    """Takes frames: each is held for as long as it takes to copy it, so that a recorder never keeps a publisher from
    its buffers for longer."""

    _contract = FRAMES

    def __init__(self, topic: str, *, start: Start, name: str) -> None:
        self.lives, self.capacity, self.begun = {}, 0, 0
        self._ahead: Frame | None = None  # of the life after the one that the last batch was of
        self._trouble: RingmainError | None = None
        super().__init__(topic, start=start, name=name)

    def take(self, most: int, most_bytes: int) -> Taken | None:
        """What is there, up to so many frames and bytes, but one in any case."""
        rows: list[Frame] = []
        payloads: list[bytes] = []
        size = lost = life = 0
        while len(rows) < most and (not rows or size < most_bytes):
            try:
                frame, epoch = self._next_frame()
            except RingmainError as error:
                if not rows:
                    raise
                self._trouble = error  # what was taken is not thrown away
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
        """The next frame, if there is one, and the life it is of."""
        trouble, self._trouble = self._trouble, None
        if trouble is not None:
            raise trouble
        frame, self._ahead = self._ahead or self.try_recv(), None
        if frame is not None and frame.size > MAX_PAYLOAD_BYTES:
            frame.release()
            raise MessageTooLarge(
                f"a frame of stream '{self.topic}' has {frame.size} bytes; a recording holds messages of "
                f"{MAX_PAYLOAD_BYTES} at most. Leave the stream out (exclude=, --no-frames)"
            )
        return frame, self.epoch or 0

    @property
    def ahead(self) -> bool:
        return super().ahead or self._trouble is not None

    def sees_frames(self, _: Taken) -> bool:
        return False  # it does, and is the tap for them

    def lag(self) -> tuple[int, int]:
        messages, _ = super().lag()
        return messages, messages * (self._layout.size if self._layout is not None else 0)
