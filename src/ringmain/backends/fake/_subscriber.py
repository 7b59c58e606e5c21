"""Subscribing in a fake world. See `ringmain.testing`.

Owns this invariant: every operation is one step of its world. It takes the turn, changes the ring of model.py, and only
then may another thread go.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, NoReturn

from ringmain.backends import check_no_address
from ringmain.backends._python import reference_ring
from ringmain.backends._python.endpoint import parse_timeout
from ringmain.backends._python.leases import PlainLease
from ringmain.backends._python.subscriber import PlainSubscriber
from ringmain.backends.fake import _world as worlds
from ringmain.backends.fake._world import Killed, refuse_to_travel
from ringmain.errors import Closed, InUse


class FakeSubscriber(PlainSubscriber):
    """`ringmain.Subscriber` in a fake world."""

    _backend = "fake"

    def __init__(self, topic: str, *, address: Any = None, **options: Any) -> None:
        check_no_address(address)
        self._prepare_options(topic, **options)
        self._world = worlds.current()
        self._reader: reference_ring.Reader | None = None
        self._came_first = False
        self._lost_before = 0
        self._leases: list[weakref.ref[PlainLease]] = []
        self._dead = False
        self._world.pause()
        self._attach()
        self._world.endpoints.append(self)
        self._opened()

    # ---------------------------------------------------------------------------------------- attaching

    def _attach(self) -> bool:
        ring = self._world.rings.get(self.topic)
        if ring is None:
            self._came_first = True
            return False
        observes = self._observe == "always" or (self._observe == "pipes" and ring.contract == "pipe")
        seat = reference_ring.Seat(
            self.name, "observer" if observes else "reader", self._world.now_ns, settle=self._settle
        )
        self._world.join(ring, seat)
        self._reader = reference_ring.Reader(ring, seat, self._on_lap, self._conflate)
        self._reader.attach("oldest" if self._came_first else self._start, self._came_first)
        try:
            self._check_schema()
        except BaseException:
            self._detach()
            raise
        return True

    def _detach(self) -> None:
        if self._reader is not None:
            self._lost_before += self._reader.lost
            reader, self._reader = self._reader, None
            self._world.depart(reader.ring, reader.seat)
            self._leases.clear()

    # -------------------------------------------------------------------------------------------- leases

    def _in_use(self) -> list[PlainLease]:
        alive = [lease for ref in self._leases if (lease := ref()) is not None]
        return [lease for lease in alive if lease._open or lease.viewed()]

    def _keep(self) -> int | None:
        return min((lease._record.position for lease in self._in_use()), default=None)

    def _settle(self) -> None:
        if self._leases and self._reader is not None:
            self._leases = [weakref.ref(lease) for lease in self._in_use()]
            self._reader.release(self._keep())

    def _borrowed(self, record: reference_ring.Record) -> PlainLease:
        lease = PlainLease(self, record, 0)
        self._leases.append(weakref.ref(lease))
        lease._lost = self._take(record)
        return lease

    def _give_back(self, record: reference_ring.Record) -> bool:
        reader = self._reader
        whole = reader is None or reader.still_whole(record)
        self._settle()
        return whole

    # ----------------------------------------------------------------------------------------- receiving

    def _usable(self) -> None:
        if self._dead:
            raise Killed(f"the subscriber {self.name!r} of topic '{self.topic}' was killed")
        super()._usable()

    def _look(self) -> reference_ring.Record | None:
        """The next message that is not screened and not lost on the way, if it is there."""
        while True:
            if self._reader is None and not self._attach():
                return None
            reader = self._reader
            assert reader is not None
            record = reader.peek()
            if record is None:
                if not reader.ring.retired or self._in_use():
                    return None
                self._detach()
                self._came_first = True
            elif self._world.is_lost(self.topic, record.seq, self.name):
                reader.position = record.end  # its number stays expected: the next one shows the gap
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
        record = self._look()
        if record is None and timeout_ns != 0:
            self._world.wait(self.has_message, timeout_ns, f"a message on topic '{self.topic}'")
            record = self._after_waiting()
        return record

    def _after_waiting(self) -> reference_ring.Record | None:
        if self._dead:
            raise Killed(f"the subscriber {self.name!r} of topic '{self.topic}' was killed")
        if self._is_closed:
            raise Closed(f"the subscriber of topic '{self.topic}' was closed while it waited")
        return self._look()

    async def _anext(self, timeout_ns: int | None) -> reference_ring.Record | None:
        from ringmain.backends.fake import _virtual_loop

        record = self._look()
        if record is None and timeout_ns != 0:
            await _virtual_loop.wait_for_message(self, timeout_ns)
            record = self._after_waiting()
        return record

    def _take(self, record: reference_ring.Record) -> int:
        assert self._reader is not None
        lost = self._reader.take(record)
        self._reader.release(self._keep())
        return lost

    def _whom_it_waits_for(self) -> str:
        if self._reader is None:
            return "there is no such topic (nobody has opened a publisher)"
        writers = [s.describe(os.getpid()) for s in self._reader.ring.seats if s.role == "writer"]
        return "waiting for " + ", ".join(writers) if writers else "it has no writer"

    # ------------------------------------------------------------------------------------ what is known

    @property
    def lost(self) -> int:
        """Messages lost since it was opened."""
        return self._lost_before + (self._reader.lost if self._reader else 0)

    @property
    def attached(self) -> bool:
        """Has the topic appeared?"""
        return self._reader is not None

    @property
    def contract(self) -> str | None:
        """The topic's contract; None before the topic exists."""
        self._usable()
        return self._reader.ring.contract if self._reader else None

    @property
    def epoch(self) -> int | None:
        """Which life of the topic this is."""
        self._usable()
        return self._reader.ring.epoch if self._reader else None

    def _schema(self) -> bytes:
        return self._reader.ring.schema if self._reader else b""

    def be_lapped(self) -> int:
        """A fault: what is unread is gone. Returns how many messages that was."""
        return 0 if self._reader is None else self._reader.be_lapped()

    def die(self) -> None:
        """What the death of its process leaves."""
        self._dead = True
        self._close()

    def _close(self) -> None:
        self._is_closed = True
        self._detach()
        if self in self._world.endpoints:
            self._world.endpoints.remove(self)

    def close(self) -> None:
        """Leave the topic. Closing twice is harmless."""
        if not self._is_closed and self._reader is not None and self._in_use():
            raise InUse(f"topic '{self.topic}' cannot be closed: a borrowed message, or a view of one, is still in use")
        super().close()

    def __reduce__(self) -> NoReturn:
        refuse_to_travel(self)


def wait(subscribers: list[FakeSubscriber], timeout: float | None) -> list[FakeSubscriber]:
    """Those that have something to read."""
    for subscriber in subscribers:
        subscriber._usable()
    world = subscribers[0]._world
    what = "a message on " + ", ".join(f"'{subscriber.topic}'" for subscriber in subscribers)
    world.pause()
    world.wait(lambda: any(s.has_message() for s in subscribers), parse_timeout(timeout), what)
    for subscriber in subscribers:
        subscriber._usable()
    return [subscriber for subscriber in subscribers if subscriber.has_message()]
