"""Publishing in a fake world. See `ringmain.testing`.

Owns this invariant: every operation is one step of its world. It takes the turn, changes the ring of model.py, and only
then may another thread go.
"""

from __future__ import annotations

import os
from typing import Any, NoReturn

from ringmain._message import Message
from ringmain.backends import check_no_address
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import parse_timeout, seconds
from ringmain.backends._python.publisher import PlainPublisher
from ringmain.backends.fake import _world as worlds
from ringmain.backends.fake._world import Killed, refuse_to_travel
from ringmain.errors import Closed, Full, TakenOver, Timeout, TopicNotFound


class FakePublisher(PlainPublisher):
    """`ringmain.Publisher` in a fake world."""

    _backend = "fake"

    def __init__(self, topic: str, *, address: Any = None, **options: Any) -> None:
        check_no_address(address)
        self._prepare_options(topic, **options)
        asked = self._asked
        self._world = worlds.current()
        self._world.pause()
        self._ring = self._world.create(self.topic, asked.contract, asked.capacity, asked.persist, self._own_schema)
        self._seat = reference_ring.Seat(self.name, "writer", self._world.now_ns)
        self._world.join(self._ring, self._seat, asked.takeover)
        self._writer = reference_ring.Writer(self._ring, self._seat)
        self._dead = False
        self._world.endpoints.append(self)
        self._opened()
        self._agree_on_schema(self._own_schema)

    def _agree_on_schema(self, schema: bytes) -> None:
        from ringmain import typed

        if schema and self._ring.schema not in (schema, b""):
            try:
                typed.compatible(typed.Schema.from_bytes(self._ring.schema), self._codec.schema, topic=self.topic)
            except BaseException:
                self._close()
                raise
        if schema:
            self._ring.schema = schema

    def _usable(self) -> None:
        if self._dead:
            raise Killed(f"the publisher {self.name!r} of topic '{self.topic}' was killed")
        super()._usable()

    def _check_place(self) -> None:
        if self._dead:
            raise Killed(f"the publisher {self.name!r} of topic '{self.topic}' was killed")
        if self._is_closed:
            raise Closed(f"the publisher of topic '{self.topic}' was closed while it waited")
        if self._ring.retired:
            raise TopicNotFound(f"topic '{self.topic}' was removed; open it again to go on")
        if reference_ring.has_one_writer(self._ring.contract) and self._ring.turn is not self._seat:
            raise TakenOver(f"another writer has taken over topic '{self.topic}'; this one cannot send any more")

    def _try_start(self, room: int) -> reference_ring.Obstacle | None:
        self._check_place()
        growing = self._reservation is not None
        obstacle = None if growing else self._writer.begin()
        if obstacle is None:
            obstacle = self._writer.prepare(room)
            if obstacle is not None and not growing:
                self._writer.end()
        return obstacle

    def _start(self, size: int, kind: str, timeout_ns: int | None) -> None:
        room = reference_ring.room_for(size, self.sender, kind)
        self._world.pause()
        obstacle = self._try_start(room)
        if obstacle is None:
            return

        def free() -> bool:
            return self._stopped() or self._way_is_free(room)

        self._seat.waits_for = obstacle.seat.name if obstacle.seat else "a reader that has not come"
        try:
            while obstacle is not None:
                if not self._world.wait(free, timeout_ns, f"room in topic '{self.topic}'"):
                    raise Full(
                        f"topic '{self.topic}' had no room within {seconds(timeout_ns)}: waiting for "
                        f"{self._describe_obstacle(obstacle)}"
                    )
                obstacle = self._try_start(room)
        finally:
            self._seat.waits_for = None

    def _stopped(self) -> bool:
        return self._dead or self._is_closed or self._ring.retired

    def _way_is_free(self, room: int) -> bool:
        ring = self._ring
        if not reference_ring.has_one_writer(ring.contract) and ring.turn not in (None, self._seat):
            return False
        position = self._writer.position if self._reservation is not None else ring.commit
        end = position + room
        return all(hold + ring.capacity >= end for hold, _ in ring.holds())

    def _describe_obstacle(self, obstacle: reference_ring.Obstacle) -> str:
        seat = obstacle.seat
        if seat is None:
            return "its reader, who has not come yet"
        if obstacle.is_turn:
            return f"{seat.describe(os.getpid())}, whose turn it is to write"
        behind = self._ring.commit - (seat.hold or 0)
        messages = max(0, self._ring.next_sequence - seat.sequence)
        return f"{seat.describe(os.getpid())}, {messages} messages ({behind} bytes) behind"

    def _finish(self, data: bytes, kind: str, seq: int | None = None, time_ns: int | None = None) -> int:
        self._check_place()
        number = self._writer.seq if seq is None else seq
        if self._world.dies_before(self.topic, self.name, number):
            self.die()
            self._check_place()
        when_ns = self._world.now_ns if time_ns is None else time_ns
        self._writer.seal(data, when_ns, self.sender, kind, seq)
        self._writer.publish()
        self._world.note_sent(self.topic, Message(data, number, when_ns, self.sender, kind, 0, self.topic))
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
            raise Timeout(
                f"topic '{self.topic}' has {len(ring.readers())} of the {count} readers waited for, after "
                f"{seconds(timeout_ns)}"
            )
        self._usable()
        return len(ring.readers())

    @property
    def all_read(self) -> bool:
        self._usable()
        if self._ring.contract == "pipe":
            return self._ring.pipe_hold >= self._ring.commit
        return all(seat.position >= self._ring.commit for seat in self._ring.readers())

    @property
    def contract(self) -> reference_ring.Contract:
        return self._ring.contract

    @property
    def capacity(self) -> int:
        return self._ring.capacity

    @property
    def epoch(self) -> int:
        return self._ring.epoch

    @property
    def next_sequence(self) -> int:
        self._usable()
        return self._ring.next_sequence

    def _schema(self) -> bytes:
        return self._ring.schema

    def _set_schema(self, schema: bytes, /) -> None:
        self._ring.schema = schema

    def die(self) -> None:
        """What the death of its process leaves: nothing that was not committed."""
        self._dead = True
        self._is_closed = True
        self._depart()

    def _depart(self) -> None:
        self._writer.end()
        self._world.depart(self._ring, self._seat)
        if self in self._world.endpoints:
            self._world.endpoints.remove(self)

    def _close(self) -> None:
        self._is_closed = True
        self._depart()

    def __reduce__(self) -> NoReturn:
        refuse_to_travel(self)
