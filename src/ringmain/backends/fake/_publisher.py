"""Publishing in a fake world. See `ringmain.testing`.

Owns this invariant: every operation is one step of its world. It takes the turn, changes the reference ring, and only
then may another thread run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ringmain import _extension
from ringmain._extension import Said
from ringmain._message import Message
from ringmain._publisher import agree_on_schema
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import parse_timeout, seconds
from ringmain.backends._python.publisher import PythonPublisher
from ringmain.backends.fake._endpoint import FakeEndpoint
from ringmain.errors import TakenOver, TopicNotFound, WaitedFor, no_room, too_few_readers

if TYPE_CHECKING:
    from ringmain._ring import MessageState


class FakePublisher(FakeEndpoint, PythonPublisher):
    """`ringmain.Publisher` in a fake world."""

    def __init__(self, topic: str, **options: Any) -> None:
        self._prepare_options(topic, options)
        asked = self._asked
        self._enter_world(asked.address)
        self._ring = self._world.create(
            self.topic,
            asked.contract,
            asked.capacity,
            asked.persist,
            self._own_schema,
            asked.max_participants,
            asked.keep_last_per_kind,
        )
        self._keeps = self._ring.kept_kinds > 0
        self._slot = reference_ring.Slot(self.name, "writer", self._world.now_ns)
        self._world.join(self._ring, self._slot, asked.takeover)
        self._writer = reference_ring.Writer(self._ring, self._slot)
        self.contract, self.capacity, self.epoch = self._ring.contract, self._ring.capacity, self._ring.epoch
        self._opened()
        if self._codec is not None:
            agree_on_schema(self, self._codec)

    def _check_still_writer(self) -> None:
        self._check_open(while_waiting=True)
        if self._ring.retired:
            raise TopicNotFound(f"topic '{self.topic}' was removed; open it again to go on", topic=self.topic)
        if self._ring.traits.one_writer and self._ring.turn is not self._slot:
            raise TakenOver(
                f"another writer has taken over topic '{self.topic}'; this one cannot send any more", topic=self.topic
            )

    def _try_start(self, room: int) -> reference_ring.Obstacle | None:
        self._check_still_writer()
        growing = self._reservation is not None
        obstacle = None if growing else self._writer.begin()
        if obstacle is None:
            obstacle = self._writer.prepare(room)
            if obstacle is not None and not growing:
                self._writer.end()
        return obstacle

    def _start(self, size: int, kind: Said | str, timeout_ns: int | None) -> None:
        room = reference_ring.room_for(size, self.sender, kind)
        self._world.pause()
        self._wait_for_min_readers(timeout_ns)
        obstacle = self._try_start(room)
        if obstacle is None:
            return

        def free() -> bool:
            return self._is_closed or self._ring.retired or self._has_room(room)

        self._slot.waits_for = obstacle.slot.name if obstacle.slot else "a reader that has not come"
        try:
            while obstacle is not None:
                if not self._world.wait(free, timeout_ns, f"room in topic '{self.topic}'"):
                    slot, who = obstacle.slot, self._describe_obstacle(obstacle)
                    there = [] if slot is None else [WaitedFor(slot.role, slot.name, os.getpid())]
                    raise no_room(self.topic, seconds(timeout_ns), who, there)
                obstacle = self._try_start(room)
        finally:
            self._slot.waits_for = None

    def _wait_for_min_readers(self, timeout_ns: int | None) -> None:
        least, ring = self._asked.min_readers, self._ring

        def enough() -> bool:
            replaced = ring.traits.one_writer and ring.turn is not self._slot
            return self._is_closed or ring.retired or replaced or len(ring.readers()) >= least

        if least and not self._world.wait(enough, timeout_ns, f"{least} readers of topic '{self.topic}'"):
            raise too_few_readers(self.topic, seconds(timeout_ns), len(ring.readers()), least, sends=True)

    def _has_room(self, room: int) -> bool:
        ring = self._ring
        if not ring.traits.one_writer and ring.turn not in (None, self._slot):
            return False
        position = self._writer.position if self._reservation is not None else ring.commit
        end = position + room
        return all(hold + ring.capacity >= end for hold, _ in ring.holds())

    def _describe_obstacle(self, obstacle: reference_ring.Obstacle) -> str:
        slot = obstacle.slot
        if slot is None:
            return "its reader, who has not come yet"
        if obstacle.is_turn:
            return f"{slot.describe(os.getpid())}, whose turn it is to write"
        behind = self._ring.commit - (slot.hold or 0)
        messages = max(0, self._ring.next_sequence - slot.sequence)
        return f"{slot.describe(os.getpid())}, {messages} messages ({behind} bytes) behind"

    def _finish(self, data: bytes, kind: Said | str, seq: int | None = None, time_ns: int | None = None) -> int:
        self._check_still_writer()
        number = self._writer.seq if seq is None else seq
        if self._world.dies_before(self.topic, self.name, number):
            self.die()
            self._check_still_writer()
        when_ns = self._world.now_ns if time_ns is None else time_ns
        self._writer.seal(data, when_ns, self.sender, kind, seq)
        self._writer.publish()
        extension, name = _extension.parts_of(kind)
        sent = Message(data, number, when_ns, self.sender, name, 0, self.topic, extension=extension)
        self._world.note_sent(self.topic, sent)
        return number

    def _abort(self) -> None:
        self._writer.end()

    def wait_for_readers(self, count: int = 1, timeout: float | None = None) -> int:
        self._usable()
        timeout_ns = parse_timeout(timeout)
        ring = self._ring
        if not self._world.wait(
            lambda: len(ring.readers()) >= count or self._is_closed, timeout_ns, f"readers of topic '{self.topic}'"
        ):
            raise too_few_readers(self.topic, seconds(timeout_ns), len(ring.readers()), count, sends=False)
        self._usable()
        return len(ring.readers())

    @property
    def all_read(self) -> bool:
        self._usable()
        if self._ring.traits.shared:
            return all(record.done for record in self._ring.records.values())
        if self._ring.traits.keeps_unread:
            return self._ring.unread_hold >= self._ring.commit
        return all(slot.position >= self._ring.commit for slot in self._ring.readers())

    @property
    def next_sequence(self) -> int:
        self._usable()
        return self._ring.next_sequence

    def _message_state(self, seq: int) -> MessageState:
        """As the native `request_state`. A killed worker gives back what it had at once, so none is orphaned."""
        record = next((record for record in self._ring.records.values() if record.seq == seq), None)
        if record is None or record.done:
            return "done"
        return "taken" if record.owner is not None else "returned" if record.returns else "free"

    def _withdraw(self, seqs: list[int]) -> None:
        """As the native `withdraw`."""
        for record in list(self._ring.free()):
            record.done |= record.seq in seqs

    def _schema(self) -> bytes:
        return self._ring.schema

    def _set_schema(self, schema: bytes, /) -> None:
        self._ring.schema = schema

    def _leave(self) -> None:
        self._writer.end()
        self._world.leave_ring(self._ring, self._slot)
