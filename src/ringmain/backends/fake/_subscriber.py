"""Subscribing in a fake world. See `ringmain.testing`.

Owns this invariant: every operation is one step of its world. It takes the turn, changes the reference ring, and only
then may another thread run.
"""

from __future__ import annotations

import os
import weakref
from typing import Any

from ringmain._topic_info import Role
from ringmain.backends._python import reference_ring
from ringmain.backends._python.buffers import Borrowed, PythonLease
from ringmain.backends._python.endpoint import parse_timeout
from ringmain.backends._python.reference_work import Worker
from ringmain.backends._python.subscriber import NO_TOPIC, PythonSubscriber
from ringmain.backends.fake import _virtual_loop
from ringmain.backends.fake._endpoint import FakeEndpoint
from ringmain.errors import InUse, WaitedFor


class FakeSubscriber(FakeEndpoint, PythonSubscriber):
    """`ringmain.Subscriber` in a fake world."""

    def __init__(self, topic: str, **options: Any) -> None:
        self._prepare_options(topic, options)
        self._reader: reference_ring.Reader | None = None
        self._joined_before_topic = False
        self._enrolled: tuple[reference_ring.Ring, reference_ring.Slot] | None = None
        self._lost_before = 0
        self._borrowed_refs: list[weakref.ref[Borrowed]] = []
        self._enter_world(self._asked.address)
        self._attach()
        self._opened()

    # ---------------------------------------------------------------------------------------- attaching

    def enrol(self, ring: reference_ring.Ring) -> None:
        """The topic that we wait for was made: be a reader of it from the start, if there is a free slot."""
        taken = len(ring.readers()) >= (1 if ring.traits.one_reader else ring.slot_count - 1)
        if self._observes(ring.contract) or taken:
            return
        slot = reference_ring.Slot(self.name, "reader", self._world.now_ns, settle=self._settle, enrolled=True)
        slot.hold = ring.commit if ring.traits.writer_waits and not ring.traits.shared else None
        self._world.join(ring, slot)
        self._enrolled = ring, slot

    def _attach(self) -> bool:
        ring = self._world.rings.get(self.topic)
        if ring is None:
            self._joined_before_topic = True
            if self._asked.observe != "always":
                self._world.wait_for_topic(self)
            return False
        asked = self._asked
        enrolled, self._enrolled = self._enrolled, None
        if enrolled is not None and enrolled[0] is ring:
            slot = enrolled[1]
            slot.enrolled = False
        else:
            role: Role = "observer" if self._observes(ring.contract) else "reader"
            slot = reference_ring.Slot(self.name, role, self._world.now_ns, settle=self._settle)
            self._world.join(ring, slot)
        self._world.stop_waiting(self)  # also where the contract or the type turns out to be another than asked for
        self._contract, self._epoch = ring.contract, ring.epoch
        if ring.traits.shared and slot.role == "reader":
            self._reader = Worker(ring, slot, lambda record: not self._screened(record))
        else:
            self._reader = reference_ring.Reader(ring, slot, asked.on_lap, asked.conflate)
        self._reader.attach("oldest" if self._joined_before_topic else asked.start, self._joined_before_topic)
        try:
            self._check_contract(ring.contract, self._options)
            self._check_schema()
        except BaseException:
            self._detach()
            raise
        return True

    def _detach(self) -> None:
        if self._enrolled is not None:
            self._world.leave_ring(*self._enrolled)
            self._enrolled = None
        if self._reader is not None:
            self._lost_before += self._reader.lost
            reader, self._reader = self._reader, None
            if isinstance(reader, Worker):
                reader.give_back_all()
            self._contract = self._epoch = None
            self._world.leave_ring(reader.ring, reader.slot)
            self._borrowed_refs.clear()

    # -------------------------------------------------------------------------------------------- leases

    def _in_use(self) -> list[Borrowed]:
        return [borrowed for ref in self._borrowed_refs if (borrowed := ref()) is not None]

    def _keep(self) -> int | None:
        return min((borrowed.position for borrowed in self._in_use()), default=None)

    def _settle(self) -> None:
        if self._borrowed_refs and self._reader is not None:
            self._borrowed_refs = [ref for ref in self._borrowed_refs if ref() is not None]
            self._reader.release(self._keep())

    def _borrowed(self, record: reference_ring.Record) -> PythonLease:
        lease = PythonLease(self, record, 0)
        self._borrowed_refs.append(lease.borrowed)
        lease.lost = self._take(record)
        if isinstance(self._reader, Worker):
            self._reader.lend(record)
        return lease

    def _end_task(self, record: reference_ring.Record, failed: bool) -> None:
        if isinstance(self._reader, Worker) and record.owner is self._reader.slot:
            (self._reader.give_back if failed else self._reader.finish)(record)
            self._reader.release(self._keep())

    def _give_back(self, record: reference_ring.Record) -> bool:
        reader = self._reader
        intact = reader is None or reader.still_intact(record)
        self._settle()
        return intact

    # ----------------------------------------------------------------------------------------- receiving

    def _look(self, stay: bool = False) -> reference_ring.Record | None:
        """The next message that is not ignored and not lost by a fault, if it is there; of this life, to `stay`."""
        while True:
            if self._reader is None and not self._attach():
                return None
            reader = self._reader
            assert reader is not None
            record = reader.peek()
            if record is None:
                if stay or not reader.ring.retired or self._in_use():
                    return None
                self._detach()
                self._joined_before_topic = True
            elif isinstance(reader, Worker):
                if not self._world.is_lost(self.topic, record.seq, self.name):
                    return record
                record.done = True
            elif self._world.is_lost(self.topic, record.seq, self.name):
                reader.position = record.end  # its number is still expected, so the next one shows the gap
                reader.release(self._keep())
            elif self._screened(record):
                reader.skip(record)
                reader.release(self._keep())
            else:
                return record

    def has_message(self) -> bool:
        """Would a receive return at once?"""
        return self._is_closed or self._look() is not None

    def _next(self, timeout_ns: int | None) -> reference_ring.Record | None:
        self._world.pause()
        self._usable()
        record = self._look_at_living()
        if record is None and timeout_ns != 0:
            self._world.wait(self.has_message, timeout_ns, f"a message on topic '{self.topic}'")
            record = self._after_waiting()
        return record

    def _more(self) -> reference_ring.Record | None:
        self._world.pause()
        self._usable()
        return self._look_at_living(stay=True)

    def _after_waiting(self) -> reference_ring.Record | None:
        self._check_open(while_waiting=True)
        return self._look_at_living()

    async def _anext(self, timeout_ns: int | None) -> reference_ring.Record | None:
        record = self._look_at_living()
        if record is None and timeout_ns != 0:
            await _virtual_loop.wait_for_message(self, timeout_ns)
            record = self._after_waiting()
        return record

    # -------------------------------------------------------------------------------------------- work

    def _begin_call(self) -> None:
        self._usable()
        self._finish_received()

    def _finish_received(self) -> None:
        if isinstance(self._reader, Worker) and self._reader.received:
            self._reader.finish_received()
            self._reader.release(self._keep())

    def _look_at_living(self, stay: bool = False) -> reference_ring.Record | None:
        """As `_look`; messages that were given back too often go to topic `NAME.dead`."""
        while (record := self._look(stay)) is not None and 0 < self._max_deliveries <= record.returns:
            self._send_dead_letter(
                record.data, record.sender, record.kind, record.extension, record.seq, record.returns
            )
            record.done = True
        return record

    def _received(self, record: reference_ring.Record, what: Any) -> None:
        if isinstance(self._reader, Worker):
            self._reader.objects[record.position] = what

    def _undecodable(self, record: reference_ring.Record) -> None:
        if isinstance(self._reader, Worker):
            self._reader.give_back(record)
        else:
            self._take(record)

    def _reject(self, task: Any) -> bool:
        rejected = isinstance(self._reader, Worker) and self._reader.reject(task)
        if rejected and self._reader is not None:
            self._reader.release(self._keep())
        return rejected

    def _give_back_all(self) -> None:
        if isinstance(self._reader, Worker):
            self._reader.give_back_all()
            self._reader.release(self._keep())

    def _take(self, record: reference_ring.Record) -> int:
        assert self._reader is not None
        lost = self._reader.take(record)
        self._reader.release(self._keep())
        return lost

    def _reason_to_wait(self) -> tuple[str, list[WaitedFor]]:
        if self._reader is None:
            return NO_TOPIC, []
        pid = os.getpid()
        writers = [slot for slot in self._reader.ring.slots if slot.role == "writer"]
        described = ", ".join(writer.describe(pid) for writer in writers)
        return (
            f"waiting for {described}" if writers else "it has no writer",
            [WaitedFor(writer.role, writer.name, pid) for writer in writers],
        )

    def _lost_just_before(self) -> int:
        return self._reader.pending_lost if self._reader else 0

    # ------------------------------------------------------------------------------------ state

    @property
    def lost(self) -> int:
        """Messages lost since it was opened."""
        return self._lost_before + (self._reader.lost if self._reader else 0)

    @property
    def attached(self) -> bool:
        """Has the topic appeared?"""
        return self._reader is not None

    def _schema(self) -> bytes:
        return self._reader.ring.schema if self._reader else b""

    def be_lapped(self) -> int:
        """A fault: all unread messages are lost. Returns how many."""
        return 0 if self._reader is None else self._reader.be_lapped()

    def _leave(self) -> None:
        self._world.stop_waiting(self)
        self._detach()

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if not self._is_closed and self._reader is not None and self._in_use():
            raise InUse(
                f"topic '{self.topic}' cannot be closed: a borrowed message, or a view of one, is still in use",
                topic=self.topic,
            )
        self._finish_received()
        super().close()


def wait(subscribers: list[FakeSubscriber], timeout: float | None) -> list[FakeSubscriber]:
    """Those that have something to read."""

    def look() -> list[FakeSubscriber]:
        """One after the other, as the native wait: those before one that is closed have joined their topics."""
        found = []
        for subscriber in subscribers:
            subscriber._usable()
            if subscriber.has_message():
                found.append(subscriber)
        return found

    world = subscribers[0]._world
    what = "a message on " + ", ".join(f"'{subscriber.topic}'" for subscriber in subscribers)
    world.pause()
    if found := look():
        return found
    world.wait(lambda: any(s.has_message() for s in subscribers), parse_timeout(timeout), what)
    return look()
