"""The ring as plain Python: what the fake runs on, and what the native ring is compared with.

Owns this invariant: for any order of whole operations, this ring and the native one give the same answers: the same
messages, the same losses, the same room. So positions, footprints and strides are those of native/layout.hpp and
native/writer.hpp, counted rather than stored. What happens *inside* an operation (tearing, races, dying halfway) does
not exist here. Nothing here waits, locks or knows the time: see testing/world.py for that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Contract = Literal["broadcast", "pipe", "bus", "reliable"]
CONTRACTS: tuple[Contract, ...] = ("broadcast", "pipe", "bus", "reliable")

HEADER_BYTES = 24
NEXT_NUMBER_BYTES = 8  # the first word of the next header is written along with a message
STRIDE_LIMIT_BYTES = 256 * 1024
PAGE_BYTES = 4096
SLOT_COUNT = 128
DEFAULT_CAPACITY = 1024 * 1024
MAX_MESSAGE_BYTES = 0xFFFFFFFF


def align(size: int) -> int:
    return (size + 7) & ~7


def round_capacity(capacity: int) -> int:
    return 1 << (max(capacity, PAGE_BYTES) - 1).bit_length()


def has_one_writer(contract: Contract) -> bool:
    return contract in ("broadcast", "pipe")


def writer_waits(contract: Contract) -> bool:
    return contract in ("pipe", "reliable")


def envelope_bytes(sender: str, kind: str) -> int:
    return align(len(sender.encode()) + len(kind.encode()))


def largest_message(contract: Contract, capacity: int) -> int:
    """The largest payload with an empty envelope. A lapping contract keeps at least two messages."""
    ring = capacity if writer_waits(contract) else capacity // 2
    return min(ring - HEADER_BYTES - NEXT_NUMBER_BYTES, MAX_MESSAGE_BYTES)


def needed_capacity(contract: Contract, size: int, envelope: int) -> int:
    needed = size + envelope + HEADER_BYTES + NEXT_NUMBER_BYTES
    return round_capacity(needed if writer_waits(contract) else 2 * needed)


@dataclass(slots=True)
class Record:
    """A message where it lies: from `position` up to `end`."""

    position: int
    end: int
    seq: int
    time_ns: int
    sender: str
    kind: str
    data: bytes


@dataclass(slots=True, eq=False)
class Seat:
    """Somebody who takes part. `hold` is the position from which it needs the bytes to stay, or None."""

    name: str
    role: Literal["writer", "reader", "observer"]
    joined_ns: int
    hold: int | None = None
    position: int = 0
    sequence: int = 0
    messages: int = 0
    bytes: int = 0
    lost: int = 0
    waits_for: str | None = None
    settle: Callable[[], None] | None = None
    """Called before the holds are looked at: Python views that were dropped meanwhile give their bytes back."""

    def describe(self, pid: int) -> str:
        return f"{self.role} {self.name!r} (pid {pid})"


@dataclass(eq=False)
class Ring:
    """One life of a topic."""

    topic: str
    contract: Contract
    capacity: int
    epoch: int
    persist: bool = False
    schema: bytes = b""
    claim: int = 0
    tail: int = 0
    commit: int = 0
    next_sequence: int = 0
    turn: Seat | None = None
    retired: bool = False
    seats: list[Seat] = field(default_factory=list)
    pipe_hold: int = 0
    """Where a pipe's reader goes on: outlives the reader."""
    records: dict[int, Record] = field(default_factory=dict)
    newest: Record | None = None

    @property
    def stride(self) -> int:
        return min(self.capacity // 8, STRIDE_LIMIT_BYTES)

    @property
    def largest(self) -> int:
        return largest_message(self.contract, self.capacity)

    def readers(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.role == "reader"]

    def holds(self) -> list[tuple[int, Seat | None]]:
        """All holds, with whose they are. A pipe holds for its reader even when it is not there."""
        for seat in self.seats:
            if seat.settle is not None:
                seat.settle()
        holds: list[tuple[int, Seat | None]] = [(s.hold, s) for s in self.seats if s.hold is not None]
        if self.contract == "pipe" and not self.readers():
            holds.append((self.pipe_hold, None))
        return holds

    def intact(self, position: int) -> bool:
        return self.claim <= position + self.capacity

    def number_at(self, position: int) -> int:
        return self.next_sequence if position == self.commit else self.records[position].seq

    def forget(self) -> None:
        """Drop what nobody can reach any more. Only to save memory: the words alone decide what is readable."""
        keep = min([self.tail, *(hold for hold, _ in self.holds())])
        for position in [p for p in self.records if p < keep]:
            del self.records[position]

    @property
    def disposable(self) -> bool:
        """Does nothing speak for keeping it when all have left?"""
        return not self.persist and (self.contract != "pipe" or self.pipe_hold == self.commit)


@dataclass(slots=True)
class Obstacle:
    """Who stops a writer: one that has the turn, or holds bytes. None: a pipe's reader that has not come yet."""

    seat: Seat | None
    is_turn: bool


class Writer:
    """The writer's side of the rule. `begin` and `prepare` say who is in the way, or None."""

    def __init__(self, ring: Ring, seat: Seat) -> None:
        self.ring, self.seat = ring, seat
        self.safe_end = 0
        self.position = ring.commit
        self.seq = ring.next_sequence
        self.pending: list[Record] = []

    def begin(self) -> Obstacle | None:
        """Our turn to write, unless somebody has it. `end` or `publish` must follow."""
        ring = self.ring
        if not has_one_writer(ring.contract):
            if ring.turn is not None and ring.turn is not self.seat:
                return Obstacle(ring.turn, True)
            ring.turn = self.seat
        self.position, self.seq = ring.commit, ring.next_sequence
        return None

    def prepare(self, room: int) -> Obstacle | None:
        """Make `room` bytes writable: drop the oldest, announce, look at the holds."""
        ring = self.ring
        end = self.position + room
        if end <= self.safe_end:
            return None
        target = max(end, self.position + ring.stride, ring.claim)
        if target > ring.claim:
            self._drop_oldest(target)
            ring.claim = target
        safe = ring.claim
        for hold, seat in ring.holds() if ring.contract != "broadcast" else ():
            if hold + ring.capacity < end:
                return Obstacle(seat, False)
            safe = min(safe, hold + ring.capacity)
        self.safe_end = safe
        return None

    def _drop_oldest(self, target: int) -> None:
        ring = self.ring
        written = {record.position: record for record in self.pending}
        while ring.tail + ring.capacity < target:
            record = ring.records.get(ring.tail) or written[ring.tail]
            ring.tail = record.end

    def seal(self, data: bytes, time_ns: int, sender: str, kind: str, seq: int | None = None) -> int:
        number = self.seq if seq is None else seq
        end = self.position + footprint(len(data), sender, kind)
        self.pending.append(Record(self.position, end, number, time_ns, sender, kind, data))
        self.position, self.seq = end, number + 1
        return number

    def publish(self) -> None:
        """Make visible all that was sealed since `begin`, and give the turn back."""
        ring = self.ring
        for record in self.pending:
            ring.records[record.position] = record
            ring.newest = record
            self.seat.messages += 1
            self.seat.bytes += len(record.data)
        ring.commit, ring.next_sequence = self.position, self.seq
        ring.forget()
        self.end()

    def end(self) -> None:
        """Give the turn back; what was sealed and not published is as if it had never been."""
        self.pending.clear()
        if self.ring.turn is self.seat and not has_one_writer(self.ring.contract):
            self.ring.turn = None


def footprint(size: int, sender: str, kind: str) -> int:
    return HEADER_BYTES + envelope_bytes(sender, kind) + align(size)


def room_for(size: int, sender: str, kind: str) -> int:
    return footprint(size, sender, kind) + NEXT_NUMBER_BYTES


class Reader:
    """The reader's side of the rule."""

    def __init__(self, ring: Ring, seat: Seat, on_lap: str, conflate: bool) -> None:
        self.ring, self.seat = ring, seat
        self.on_lap, self.conflate = on_lap, conflate
        observes = seat.role == "observer"  # never holds, whatever the contract
        self.always_holds = writer_waits(ring.contract) and not observes
        self.holds_borrowed = ring.contract == "bus" and not observes
        self.position = self.expected = 0
        self.lost = self.pending_lost = 0

    def attach(self, start: str, from_the_first: bool) -> None:
        """Once after joining. Whoever was there before the topic has a claim on all of its messages: with
        `from_the_first` those that are gone already count as lost."""
        ring = self.ring
        if ring.contract == "pipe" and self.always_holds:
            self.position = self.seat.hold = ring.pipe_hold
        else:
            self._jump(start)
        number = ring.number_at(self.position)
        self.expected = 0 if from_the_first else number
        self._count_lost(number)
        self._show_progress()

    def _jump(self, where: str) -> None:
        self.position = self.ring.commit if where == "latest" else self.ring.tail
        if self.always_holds:
            self._set_hold(self.position)

    def _set_hold(self, hold: int | None) -> None:
        self.seat.hold = hold
        if self.ring.contract == "pipe" and hold is not None:
            self.ring.pipe_hold = hold

    def _count_lost(self, seq: int) -> None:
        if seq > self.expected and not self.conflate:
            self.lost += seq - self.expected
            self.pending_lost += seq - self.expected
        self.expected = seq

    def _show_progress(self) -> None:
        self.seat.position, self.seat.sequence, self.seat.lost = self.position, self.expected, self.lost

    def peek(self) -> Record | None:
        """The next message, without moving on; None if there is none."""
        ring = self.ring
        while self.position != ring.commit:
            if self.conflate and ring.newest is not None and self.position < ring.newest.position:
                self.position, self.expected = ring.newest.position, ring.newest.seq
            if not self.is_held(self.position) and not ring.intact(self.position):
                self._jump("oldest" if self.conflate else self.on_lap)
                self._count_lost(ring.number_at(self.position))
                continue
            return ring.records[self.position]
        return None

    def is_held(self, position: int) -> bool:
        """Held bytes stay, whatever `claim` says: it may run past a hold while its writer waits."""
        return self.always_holds or (self.seat.hold is not None and position >= self.seat.hold)

    def still_whole(self, record: Record) -> bool:
        return self.is_held(record.position) or self.ring.intact(record.position)

    def take(self, record: Record) -> int:
        """Move on past the message; returns how many were lost just before it."""
        self.skip(record)
        self.seat.messages += 1
        self.seat.bytes += len(record.data)
        lost, self.pending_lost = self.pending_lost, 0
        return lost

    def skip(self, record: Record) -> None:
        """Move on past a message that nobody wants to see."""
        self._count_lost(record.seq)
        self.expected = record.seq + 1
        self.position = record.end

    def be_lapped(self) -> int:
        """A fault on demand: all that is unread is gone, as if the writer had gone over it."""
        gone = self.ring.next_sequence - self.expected
        self.position = self.ring.commit
        self._count_lost(self.ring.next_sequence)
        self._show_progress()
        return gone

    def release(self, keep: int | None) -> None:
        """Let the writer have everything below `keep`; on the waiting contracts at most what was read."""
        if self.always_holds:
            self._set_hold(self.position if keep is None else min(keep, self.position))
        else:
            self.seat.hold = keep if self.holds_borrowed else None
        self._show_progress()
