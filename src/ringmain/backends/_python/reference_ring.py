"""The ring in Python: the fake runs on it, and tests compare the native ring with it.

Owns this invariant: for any order of whole operations, this ring and the native one give the same answers: the same
messages, the same losses, the same room. So positions, footprints and strides are those of native/format/layout.hpp and
native/rule/writer.hpp, counted rather than stored. What happens *inside* an operation (tearing, races, dying halfway)
does not exist here. Nothing here waits, locks or reads a clock: fake/_world.py does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from ringmain import _extension, _native
from ringmain._contracts import CONTRACTS, Contract, ContractName
from ringmain._extension import Said
from ringmain._topic_info import Role

HEADER_BYTES = 24
NEXT_NUMBER_BYTES = 8  # the first word of the next header is written along with a message
STRIDE_LIMIT_BYTES = 256 * 1024
PAGE_BYTES = 4096
SLOT_COUNT = _native.SLOT_COUNT
DEFAULT_CAPACITY = _native.DEFAULT_CAPACITY
MAX_MESSAGE_BYTES = 0xFFFFFFFF
KEPT_ENTRY_BYTES = 16  # beside the message
KEPT_POSITION = 1 << 62
"""Of messages from the table of kept kinds. Above all positions of the ring: neither held nor overwritten there."""


def align(size: int) -> int:
    return (size + 7) & ~7


def round_capacity(capacity: int) -> int:
    return 1 << (max(capacity, PAGE_BYTES) - 1).bit_length()


def envelope_bytes(sender: str, kind: Said | str) -> int:
    return align(len(sender.encode()) + len(_extension.encoded(kind)))


def largest_message(contract: ContractName, capacity: int, keeps: bool = False) -> int:
    """The largest payload with an empty envelope. A lapping contract keeps at least two messages. `keeps`: each must
    fit into an entry of the table of kept kinds."""
    ring = capacity if CONTRACTS[contract].writer_waits else capacity // 2
    largest = min(ring - HEADER_BYTES - NEXT_NUMBER_BYTES, MAX_MESSAGE_BYTES)
    return min(largest, max(1024, capacity // 1024) - KEPT_ENTRY_BYTES - HEADER_BYTES) if keeps else largest


def needed_capacity(contract: ContractName, size: int, envelope: int, keeps: bool = False) -> int:
    if keeps:
        return round_capacity(1024 * (KEPT_ENTRY_BYTES + HEADER_BYTES + align(size) + envelope))
    needed = size + envelope + HEADER_BYTES + NEXT_NUMBER_BYTES
    return round_capacity(needed if CONTRACTS[contract].writer_waits else 2 * needed)


@dataclass(slots=True, eq=False)
class Record:
    """A message where it lies: from `position` up to `end`."""

    position: int
    end: int
    seq: int
    time_ns: int
    sender: str
    kind: str
    data: bytes
    owner: Slot | None = None
    """On a shared contract: the worker that has taken it."""
    done: bool = False
    returns: int = 0
    """How often a worker gave it back."""
    extension: bytes = b""
    """What is said of it beside its kind."""


@dataclass(slots=True, eq=False)
class Slot:
    """A participant's entry. `hold` is the position from which it needs the bytes to stay, or None."""

    name: str
    role: Role
    joined_ns: int
    hold: int | None = None
    position: int = 0
    sequence: int = 0
    messages: int = 0
    bytes: int = 0
    lost: int = 0
    waits_for: str | None = None
    taken: int = 0
    redelivered: int = 0
    enrolled: bool = False
    """For a subscriber that waited for the topic, until its next call."""
    settle: Callable[[], None] | None = None
    """Called before the holds are read: it releases the bytes of Python views that were dropped meanwhile."""

    def describe(self, pid: int) -> str:
        return f"{self.role} {self.name!r} (pid {pid})"


@dataclass(eq=False)
class Ring:
    """One life of a topic."""

    topic: str
    contract: ContractName
    capacity: int
    epoch: int
    persist: bool = False
    schema: bytes = b""
    claim: int = 0
    tail: int = 0
    commit: int = 0
    next_sequence: int = 0
    turn: Slot | None = None
    retired: bool = False
    slots: list[Slot] = field(default_factory=list)
    unread_hold: int = 0
    """Where the next reader continues, on a contract that keeps unread messages."""
    slot_count: int = SLOT_COUNT
    records: dict[int, Record] = field(default_factory=dict)
    newest: Record | None = None
    kept_kinds: int = 0
    """Of how many kinds the last message is kept when it is dropped."""
    kept: dict[str, Record] = field(default_factory=dict)
    not_kept: int = 0

    @property
    def traits(self) -> Contract:
        return CONTRACTS[self.contract]

    @property
    def stride(self) -> int:
        return min(self.capacity // 8, STRIDE_LIMIT_BYTES)

    def readers(self) -> list[Slot]:
        return [slot for slot in self.slots if slot.role == "reader"]

    def holds(self) -> list[tuple[int, Slot | None]]:
        """All holds, each with its slot. Unread messages are held even when there is no reader: slot None."""
        for slot in self.slots:
            if slot.settle is not None:
                slot.settle()
        holds: list[tuple[int, Slot | None]] = [(s.hold, s) for s in self.slots if s.hold is not None]
        if self.traits.shared:
            holds.append((next((record.position for record in self.free()), self.commit), None))
        elif self.traits.keeps_unread and not self.readers():
            holds.append((self.unread_hold, None))
        return holds

    def used_from(self) -> int:
        """Where the part in use begins: where the writer waits, what no reader holds is room for it."""
        if not self.traits.writer_waits:
            return self.tail
        return max(self.tail, min((hold for hold, _ in self.holds()), default=self.commit))

    def free(self) -> Iterator[Record]:
        """On a shared contract: the messages that no worker has taken, oldest first."""
        return (record for record in self.records.values() if record.owner is None and not record.done)

    def keep(self, record: Record) -> None:
        """The record is dropped: it is the last of its kind that was."""
        kind = record.kind
        if kind in self.kept or len(self.kept) < self.kept_kinds:
            self.kept[kind] = record
        elif self.kept_kinds:
            self.not_kept += 1

    def last_of_each_kind(self) -> list[Record]:
        """In the order of their positions."""
        last = dict(self.kept)
        for record in self.records.values():
            if self.tail <= record.position < self.commit:
                last[record.kind] = record
        return sorted(last.values(), key=lambda record: record.position)

    def intact(self, position: int) -> bool:
        return self.claim <= position + self.capacity

    def number_at(self, position: int) -> int:
        return self.next_sequence if position == self.commit else self.records[position].seq

    def forget(self) -> None:
        """Drop records that no reader can reach any more. This only saves memory; positions decide what is readable."""
        keep = min([self.tail, *(hold for hold, _ in self.holds())])
        for position in [p for p in self.records if p < keep]:
            del self.records[position]

    @property
    def disposable(self) -> bool:
        """May it be removed when the last participant has left?"""
        if self.traits.shared:
            return not self.persist and all(record.done for record in self.records.values())
        return not self.persist and (not self.traits.keeps_unread or self.unread_hold == self.commit)


@dataclass(slots=True)
class Obstacle:
    """What a writer waits for: the slot that has the turn or holds bytes. None: a pipe's reader that has not come."""

    slot: Slot | None
    is_turn: bool


class Writer:
    """The writer's side. `begin` and `prepare` return what blocks the writer, or None."""

    def __init__(self, ring: Ring, slot: Slot) -> None:
        self.ring, self.slot = ring, slot
        self.safe_end = 0
        self.position = ring.commit
        self.seq = ring.next_sequence
        self.pending: list[Record] = []

    def begin(self) -> Obstacle | None:
        """Take the turn to write, unless another writer has it. `end` or `publish` must follow."""
        ring = self.ring
        if not ring.traits.one_writer:
            if ring.turn is not None and ring.turn is not self.slot:
                return Obstacle(ring.turn, True)
            ring.turn = self.slot
        self.position, self.seq = ring.commit, ring.next_sequence
        return None

    def prepare(self, room: int) -> Obstacle | None:
        """Make `room` bytes writable: drop the oldest, announce the claim, check the holds."""
        ring = self.ring
        end = self.position + room
        if end <= self.safe_end:
            return None
        target = max(end, self.position + ring.stride, ring.claim)
        if target > ring.claim:
            self._drop_oldest(target)
            ring.claim = target
        safe = ring.claim
        for hold, slot in ring.holds() if ring.traits.holds != "never" else ():
            if hold + ring.capacity < end:
                return Obstacle(slot, False)
            safe = min(safe, hold + ring.capacity)
        self.safe_end = safe
        return None

    def _drop_oldest(self, target: int) -> None:
        ring = self.ring
        written = {record.position: record for record in self.pending}
        while ring.tail + ring.capacity < target:
            record = ring.records.get(ring.tail) or written[ring.tail]
            ring.keep(record)
            ring.tail = record.end

    def seal(self, data: bytes, time_ns: int, sender: str, kind: Said | str, seq: int | None = None) -> int:
        number = self.seq if seq is None else seq
        end = self.position + footprint(len(data), sender, kind)
        extension, name = _extension.parts_of(kind)
        self.pending.append(Record(self.position, end, number, time_ns, sender, name, data, extension=extension))
        self.position, self.seq = end, number + 1
        return number

    def publish(self) -> None:
        """Make visible all that was sealed since `begin`, and give the turn back."""
        ring = self.ring
        for record in self.pending:
            ring.records[record.position] = record
            ring.newest = record
            self.slot.messages += 1
            self.slot.bytes += len(record.data)
        ring.commit, ring.next_sequence = self.position, self.seq
        ring.forget()
        self.end()

    def end(self) -> None:
        """Give the turn back; what was sealed and not published is dropped."""
        self.pending.clear()
        if self.ring.turn is self.slot and not self.ring.traits.one_writer:
            self.ring.turn = None


def footprint(size: int, sender: str, kind: Said | str) -> int:
    return HEADER_BYTES + envelope_bytes(sender, kind) + align(size)


def room_for(size: int, sender: str, kind: Said | str) -> int:
    return footprint(size, sender, kind) + NEXT_NUMBER_BYTES


class Reader:
    """The reader's side."""

    def __init__(self, ring: Ring, slot: Slot, on_lap: str, conflate: bool) -> None:
        self.ring, self.slot = ring, slot
        self.on_lap, self.conflate = on_lap, conflate
        observes = slot.role == "observer"  # never holds, whatever the contract
        self.always_holds = ring.traits.writer_waits and not observes
        self.holds_borrowed = ring.traits.holds == "while borrowed" and not observes
        self.position = self.expected = 0
        self.lost = self.pending_lost = 0
        self.kept: list[Record] = []
        """With start="newest": the last message of each kind, which come first."""

    def attach(self, start: str, from_the_first: bool) -> None:
        """Called once after joining. A reader that existed before the topic expects all of its messages: with
        `from_the_first`, those that are already overwritten count as lost."""
        ring = self.ring
        if self.always_holds and ring.traits.keeps_unread:
            self.slot.hold = ring.unread_hold
        if self.slot.hold is not None:  # goes on where a pipe's last reader stopped, or held since it was enrolled
            self.position, from_the_first = self.slot.hold, False
        else:
            if start == "newest" and ring.kept_kinds and not self.conflate:
                self.kept = [replace(record, position=KEPT_POSITION) for record in ring.last_of_each_kind()]
                start = "next"
            self._jump(start)
        number = ring.number_at(self.position)
        self.expected = 0 if from_the_first else number
        self._count_lost(number)
        self._show_progress()

    def _jump(self, where: str) -> None:
        ring = self.ring
        self.position = ring.tail if where == "oldest" else ring.commit
        if where == "newest" and ring.newest is not None and ring.newest.position >= ring.tail:
            self.position = ring.newest.position
        if self.always_holds:
            self._set_hold(self.position)

    def _set_hold(self, hold: int | None) -> None:
        self.slot.hold = hold
        if self.ring.traits.keeps_unread and hold is not None:
            self.ring.unread_hold = hold

    def _count_lost(self, seq: int) -> None:
        if seq > self.expected and not self.conflate:
            self.lost += seq - self.expected
            self.pending_lost += seq - self.expected
        self.expected = seq

    def _show_progress(self) -> None:
        self.slot.position, self.slot.sequence, self.slot.lost = self.position, self.expected, self.lost

    def peek(self) -> Record | None:
        """The next message, without moving on; None if there is none."""
        if self.kept:
            return self.kept[0]
        ring = self.ring
        while self.position != ring.commit:
            if self.conflate and ring.newest is not None and self.position < ring.newest.position:
                self.position, self.expected = ring.newest.position, ring.newest.seq
            if not self.is_held(self.position) and not ring.intact(self.position):
                self._jump("oldest" if self.conflate else self.on_lap)
                self._count_lost(ring.number_at(self.position))
                self._show_progress()
                continue
            return ring.records[self.position]
        return None

    def is_held(self, position: int) -> bool:
        """Held bytes stay, whatever `claim` says: it may be past a hold while its writer waits."""
        return self.always_holds or (self.slot.hold is not None and position >= self.slot.hold)

    def still_intact(self, record: Record) -> bool:
        return self.is_held(record.position) or self.ring.intact(record.position)

    def take(self, record: Record) -> int:
        """Move on past the message; returns how many were lost just before it."""
        self.skip(record)
        self.slot.messages += 1
        self.slot.bytes += len(record.data)
        lost, self.pending_lost = self.pending_lost, 0
        return lost

    def skip(self, record: Record) -> None:
        """Move on past a message that is ignored."""
        if self.kept:
            del self.kept[0]
            return
        self._count_lost(record.seq)
        self.expected = record.seq + 1
        self.position = record.end

    def be_lapped(self) -> int:
        """A fault on demand: all unread messages are lost, as if the writer had overwritten them."""
        gone = self.ring.next_sequence - self.expected
        self.position = self.ring.commit
        self._count_lost(self.ring.next_sequence)
        self._show_progress()
        return gone

    def release(self, keep: int | None) -> None:
        """Release the bytes below `keep`; on contracts whose writer waits, at most what was read."""
        if self.always_holds:
            self._set_hold(self.position if keep is None else min(keep, self.position))
        else:
            self.slot.hold = keep if self.holds_borrowed else None
        self._show_progress()
