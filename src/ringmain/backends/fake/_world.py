"""A world of topics that exist in this process alone: the `fake` backend's endpoints live in it.

Owns this invariant: the program and the seed decide all that happens here. The clock is virtual, the seed gives the
order of threads, and faults happen only when the test asks for them.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ringmain._contracts import DEFAULT_CONTRACT, SLOW_READER, ContractName
from ringmain._message import Message
from ringmain.backends._python import reference_ring
from ringmain.backends.fake._schedule import Schedule
from ringmain.errors import RingmainError, RosterFull, TopicBusy, TopicMismatch, TopicNotFound

if TYPE_CHECKING:
    from ringmain.backends.fake._endpoint import FakeEndpoint
    from ringmain.backends.fake._subscriber import FakeSubscriber


class Killed(RingmainError, ConnectionAbortedError):
    """This endpoint was killed: a fault that the test asked for."""


class World(Schedule):
    """Topics, a clock, a seed and faults. `ringmain.testing.fake()` makes one and opens it."""

    def __init__(self, seed: int = 0, patience_s: float = 60.0) -> None:
        super().__init__(seed, patience_s)
        self.rings: dict[str, reference_ring.Ring] = {}
        self.endpoints: list[FakeEndpoint] = []
        self._waiting: dict[str, dict[int, FakeSubscriber]] = {}
        self._epochs = itertools.count()
        self._sent: dict[str, list[Message]] = {}
        self._to_lose: set[tuple[str, int, str | None]] = set()
        self._to_die: dict[tuple[str, str], int] = {}
        self.adopt(threading.current_thread())

    # -------------------------------------------------------------------------------------------- clock

    def time_ns(self) -> int:
        """The time in this world: wall clock, nanoseconds since 1970."""
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        """Let other threads run for this long."""
        until = self.now_ns + int(seconds * 1e9)
        self.wait(lambda: self.now_ns >= until, int(seconds * 1e9), f"{seconds:g} s to pass")

    advance = sleep

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Call `action` after this time. It cannot wait: what it calls behaves as with timeout=0."""
        self.at(int(seconds * 1e9), action)

    # ------------------------------------------------------------------------------------------- faults

    def lose(self, topic: str, seq: int, reader: str | None = None) -> None:
        """Message `seq` of the topic is lost: for all readers, or for the reader of this name."""
        self._to_lose.add((topic, seq, reader))

    def lap(self, topic: str, reader: str | None = None) -> int:
        """The topic's readers (or the one of this name) are lapped now: all messages they have not read are lost.
        Returns how many."""
        ring = self.find_ring(topic)
        if ring.traits.writer_waits:
            raise ValueError(
                f"topic '{topic}' is a {ring.contract}, whose readers cannot be lapped: {SLOW_READER[ring.contract]}"
            )
        gone = 0
        for endpoint in self._readers(topic, reader):
            gone += endpoint.be_lapped()
        return gone

    def kill(self, topic: str, name: str, *, before: int | None = None) -> None:
        """The topic's participant of this name dies: now, or just before it would have published message number
        `before`. It leaves the topic as a dead process does, and its next call raises `Killed`."""
        if before is not None:
            self._to_die[topic, name] = before
            return
        found = [e for e in self.endpoints if e.topic == topic and e.name == name]
        if not found:
            there = sorted({e.name for e in self.endpoints if e.topic == topic})
            raise TopicNotFound(f"topic '{topic}' has no participant {name!r}; it has {there}", topic=topic)
        for endpoint in found:
            endpoint.die()

    def sent(self, topic: str) -> list[Message]:
        """Every message published on the topic since the world began."""
        return list(self._sent.get(topic, ()))

    # ------------------------------------------------------------------------- for the fake's endpoints

    def is_lost(self, topic: str, seq: int, reader: str) -> bool:
        return (topic, seq, None) in self._to_lose or (topic, seq, reader) in self._to_lose

    def dies_before(self, topic: str, name: str, seq: int) -> bool:
        return self._to_die.get((topic, name)) == seq

    def note_sent(self, topic: str, message: Message) -> None:
        self._sent.setdefault(topic, []).append(message)

    def find_ring(self, topic: str) -> reference_ring.Ring:
        if topic not in self.rings:
            raise TopicNotFound(f"there is no topic '{topic}' in the fake world", topic=topic)
        return self.rings[topic]

    def _readers(self, topic: str, name: str | None) -> list[FakeSubscriber]:
        found: list[Any] = [
            e for e in self.endpoints if e._role == "subscriber" and e.topic == topic and name in (None, e.name)
        ]
        if not found:
            raise TopicNotFound(f"topic '{topic}' has no reader" + (f" called {name!r}" if name else ""), topic=topic)
        return found

    def create(
        self,
        topic: str,
        contract: ContractName | None,
        capacity: int | None,
        persist: bool,
        schema: bytes,
        slot_count: int | None = None,
        kept_kinds: int = 0,
    ) -> reference_ring.Ring:
        """The existing topic if it is as asked; otherwise a new one, if the old one has no writer."""
        ring = self.rings.get(topic)
        if ring is not None:
            wanted = reference_ring.round_capacity(capacity or ring.capacity)
            same_slots = (slot_count or ring.slot_count) == ring.slot_count
            same_table = (kept_kinds or ring.kept_kinds) == ring.kept_kinds
            same = (contract or ring.contract) == ring.contract and wanted == ring.capacity
            if same and same_slots and same_table:
                ring.persist |= persist
                return ring
            there = f"{ring.contract} of {ring.capacity} bytes"
            asked = f"{contract or ring.contract} of {wanted} bytes"
            if not same_slots:
                there += f", max_participants {ring.slot_count}"
                asked += f", max_participants {slot_count}"
            if not same_table:
                there += f", keep_last_per_kind {ring.kept_kinds}"
                asked += f", keep_last_per_kind {kept_kinds}"
            self._replace(ring, f"topic '{ring.topic}' is a {there}; asked for was a {asked}")
        self.rings[topic] = reference_ring.Ring(
            topic,
            contract or DEFAULT_CONTRACT,
            reference_ring.round_capacity(capacity or reference_ring.DEFAULT_CAPACITY),
            self.now_ns + next(self._epochs),
            persist,
            schema,
            slot_count=slot_count or reference_ring.SLOT_COUNT,
            kept_kinds=kept_kinds,
        )
        for _, subscriber in sorted(self._waiting.get(topic, {}).items()):
            subscriber.enrol(self.rings[topic])
        return self.rings[topic]

    def wait_for_topic(self, subscriber: FakeSubscriber) -> None:
        """Enrol the subscriber when its topic is made. As in the native waiting file, it gets the lowest free slot:
        where a topic takes one reader, it is the one in front."""
        slots = self._waiting.setdefault(subscriber.topic, {})
        if subscriber not in slots.values() and len(slots) < reference_ring.SLOT_COUNT:
            slots[next(i for i in itertools.count() if i not in slots)] = subscriber

    def stop_waiting(self, subscriber: FakeSubscriber) -> None:
        """It has joined the topic, or was closed."""
        slots = self._waiting.get(subscriber.topic, {})
        for slot in [slot for slot, there in slots.items() if there is subscriber]:
            del slots[slot]

    def _replace(self, ring: reference_ring.Ring, text: str) -> None:
        """Remove a topic that is not as asked; `text` says how it differs."""
        writer = next((slot for slot in ring.slots if slot.role == "writer"), None)
        if writer is not None:
            raise TopicMismatch(f"{text}, but {writer.describe(os.getpid())} uses it as it is", topic=ring.topic)
        if ring.traits.keeps_unread and not ring.disposable:
            raise TopicMismatch(
                f"{text}, but it has unread messages; read them, or unlink it to throw them away", topic=ring.topic
            )
        behind = next((s for s in ring.readers() if s.enrolled and s.hold is not None and s.hold < ring.commit), None)
        if behind is not None:
            raise TopicMismatch(
                f"{text}, but it has messages that {behind.describe(os.getpid())} has yet to receive; let it receive "
                "them, or unlink the topic (force=True) to discard them",
                topic=ring.topic,
            )
        self._retire(ring)

    def join(self, ring: reference_ring.Ring, slot: reference_ring.Slot, takeover: bool = False) -> None:
        """Give the participant a slot, if there is one."""
        if len(ring.slots) >= ring.slot_count:
            raise RosterFull(
                f"topic '{ring.topic}' has all of its {ring.slot_count} slots taken by living participants; "
                "close some of them, or create it with a larger max_participants",
                topic=ring.topic,
            )
        if slot.role == "reader" and ring.traits.one_reader and ring.readers():
            there = ring.readers()[0].describe(os.getpid())
            raise TopicBusy(
                f"topic '{ring.topic}' is a {ring.contract} and has its one reader: {there}", topic=ring.topic
            )
        if slot.role == "writer" and ring.traits.one_writer:
            if ring.turn is not None and not takeover:
                raise TopicBusy(
                    f"topic '{ring.topic}' has its one writer: {ring.turn.describe(os.getpid())}; close it, or open "
                    "with takeover=True to replace it",
                    topic=ring.topic,
                )
            ring.turn = slot
        ring.slots.append(slot)

    def leave_ring(self, ring: reference_ring.Ring, slot: reference_ring.Slot) -> None:
        """Free the slot. The last participant to leave removes the topic."""
        if slot in ring.slots:
            ring.slots.remove(slot)
        if ring.turn is slot:
            ring.turn = None
        if not ring.slots and not ring.retired and ring.disposable:
            self._retire(ring)

    def _retire(self, ring: reference_ring.Ring) -> None:
        ring.retired = True
        ring.turn = None
        if self.rings.get(ring.topic) is ring:
            del self.rings[ring.topic]

    def unlink(self, topic: str, force: bool) -> None:
        ring = self.find_ring(topic)
        if ring.slots and not force:
            raise TopicBusy(
                f"topic '{topic}' is in use by {ring.slots[0].describe(os.getpid())}; close it, or unlink with "
                "force=True to remove the topic",
                topic=topic,
            )
        self._retire(ring)

    def clean(self) -> list[str]:
        """Killed endpoints leave their slots, so only topics without participants can be left over."""
        gone = [name for name, ring in self.rings.items() if not ring.slots and ring.disposable]
        for name in gone:
            self._retire(self.rings[name])
        return gone


_worlds: list[World] = []
_world_of_the_process = functools.cache(World)


def current() -> World:
    """The world that is open; outside of `fake()` one for the whole process."""
    return _worlds[-1] if _worlds else _world_of_the_process()


def push(world: World) -> None:
    _worlds.append(world)


def pop(world: World) -> None:
    _worlds.remove(world)
