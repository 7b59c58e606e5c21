"""A world of topics that exist in this process alone: what the `fake` backend's endpoints live in.

Owns this invariant: all that happens here is decided by the program and the seed. The clock is virtual, the order of
threads comes from the seed, and faults happen when they were asked for.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from ringmain._message import Message
from ringmain.backends._python import reference_ring
from ringmain.backends.fake._schedule import Schedule
from ringmain.errors import RingmainError, RosterFull, TopicBusy, TopicMismatch, TopicNotFound

if TYPE_CHECKING:
    from ringmain.backends.fake import FakePublisher, FakeSubscriber


class Killed(RingmainError, ConnectionAbortedError):
    """This endpoint's process has died, as far as the world is concerned: a fault that was asked for."""


class World(Schedule):
    """Topics, a clock, a seed and faults. `ringmain.testing.fake()` makes one and opens it."""

    def __init__(self, seed: int = 0, patience_s: float = 60.0) -> None:
        super().__init__(seed, patience_s)
        self.rings: dict[str, reference_ring.Ring] = {}
        self.endpoints: list[FakePublisher | FakeSubscriber] = []
        self._epochs = itertools.count()
        self._sent: dict[str, list[Message]] = {}
        self._to_lose: set[tuple[str, int, str | None]] = set()
        self._to_die: dict[tuple[str, str], int] = {}
        self.adopt(threading.current_thread())

    # -------------------------------------------------------------------------------------------- clock

    def time_ns(self) -> int:
        """What the clock of this world shows: wall clock, nanoseconds since 1970."""
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        """Let others run for so long."""
        until = self.now_ns + int(seconds * 1e9)
        self.wait(lambda: self.now_ns >= until, int(seconds * 1e9), f"{seconds:g} s to pass")

    advance = sleep

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Do it when so much time has passed. It must not wait: what it calls behaves as with timeout=0."""
        self.at(int(seconds * 1e9), action)

    # ------------------------------------------------------------------------------------------- faults

    def lose(self, topic: str, seq: int, reader: str | None = None) -> None:
        """Message `seq` of the topic does not arrive: at nobody, or not at the reader of this name."""
        self._to_lose.add((topic, seq, reader))

    def lap(self, topic: str, reader: str | None = None) -> int:
        """The topic's readers (or the one of this name) are lapped now: what they have not read is gone. Returns how
        many messages were taken away."""
        ring = self.find_ring(topic)
        if reference_ring.writer_waits(ring.contract):
            raise ValueError(f"topic '{topic}' is a {ring.contract}: its readers cannot be lapped, the writer waits")
        gone = 0
        for endpoint in self._readers(topic, reader):
            gone += endpoint.be_lapped()
        return gone

    def kill(self, topic: str, name: str, *, before: int | None = None) -> None:
        """Whoever takes part in the topic under this name dies: now, or just before it would have published message
        number `before`. It leaves what a dead process leaves, and its next call raises `Killed`."""
        if before is not None:
            self._to_die[topic, name] = before
            return
        found = [e for e in self.endpoints if e.topic == topic and e.name == name]
        if not found:
            there = sorted({e.name for e in self.endpoints if e.topic == topic})
            raise TopicNotFound(f"nobody called {name!r} takes part in topic '{topic}'; there are {there}")
        for endpoint in found:
            endpoint.die()

    def sent(self, topic: str) -> list[Message]:
        """Every message published on the topic since the world began, whoever read it."""
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
            raise TopicNotFound(f"there is no topic '{topic}' in the fake world")
        return self.rings[topic]

    def _readers(self, topic: str, name: str | None) -> list[FakeSubscriber]:
        from ringmain.backends.fake import FakeSubscriber

        found = [
            e
            for e in self.endpoints
            if isinstance(e, FakeSubscriber) and e.topic == topic and (name is None or e.name == name)
        ]
        if not found:
            raise TopicNotFound(f"topic '{topic}' has no reader" + (f" called {name!r}" if name else ""))
        return found

    def create(
        self, topic: str, contract: reference_ring.Contract | None, capacity: int | None, persist: bool, schema: bytes
    ) -> reference_ring.Ring:
        """The topic as it is if that is what is asked for; otherwise a new one, if nobody writes the old."""
        ring = self.rings.get(topic)
        if ring is not None:
            wanted = reference_ring.round_capacity(capacity or ring.capacity)
            if (contract or ring.contract) == ring.contract and wanted == ring.capacity:
                return ring
            self._make_way(ring, contract or ring.contract, wanted)
        self.rings[topic] = reference_ring.Ring(
            topic,
            contract or "broadcast",
            reference_ring.round_capacity(capacity or reference_ring.DEFAULT_CAPACITY),
            self.now_ns + next(self._epochs),
            persist,
            schema,
        )
        return self.rings[topic]

    def _make_way(self, ring: reference_ring.Ring, contract: str, capacity: int) -> None:
        text = (
            f"topic '{ring.topic}' is a {ring.contract} of {ring.capacity} bytes; asked for was a {contract} of "
            f"{capacity} bytes"
        )
        writer = next((seat for seat in ring.seats if seat.role == "writer"), None)
        if writer is not None:
            raise TopicMismatch(f"{text}, but {writer.describe(os.getpid())} uses it as it is")
        if ring.contract == "pipe" and not ring.disposable:
            raise TopicMismatch(f"{text}, but it has unread messages; read them, or unlink it to throw them away")
        self._retire(ring)

    def join(self, ring: reference_ring.Ring, seat: reference_ring.Seat, takeover: bool = False) -> None:
        """Take a seat, if there is one."""
        if len(ring.seats) >= reference_ring.SLOT_COUNT:
            raise RosterFull(
                f"topic '{ring.topic}' has all of its {reference_ring.SLOT_COUNT} places taken by living "
                "participants; close some of them"
            )
        if seat.role == "reader" and ring.contract == "pipe" and ring.readers():
            there = ring.readers()[0].describe(os.getpid())
            raise TopicBusy(f"topic '{ring.topic}' is a pipe and has its one reader: {there}")
        if seat.role == "writer" and reference_ring.has_one_writer(ring.contract):
            if ring.turn is not None and not takeover:
                raise TopicBusy(
                    f"topic '{ring.topic}' has its one writer: {ring.turn.describe(os.getpid())}; close it, or open "
                    "with takeover=True to take its place"
                )
            ring.turn = seat
        ring.seats.append(seat)

    def depart(self, ring: reference_ring.Ring, seat: reference_ring.Seat) -> None:
        """Give a seat back, with all that belongs to it. The last to leave takes the topic away."""
        if seat in ring.seats:
            ring.seats.remove(seat)
        if ring.turn is seat:
            ring.turn = None
        if not ring.seats and not ring.retired and ring.disposable:
            self._retire(ring)

    def _retire(self, ring: reference_ring.Ring) -> None:
        ring.retired = True
        ring.turn = None
        if self.rings.get(ring.topic) is ring:
            del self.rings[ring.topic]

    def unlink(self, topic: str, force: bool) -> None:
        ring = self.find_ring(topic)
        if ring.seats and not force:
            raise TopicBusy(
                f"topic '{topic}' is in use by {ring.seats[0].describe(os.getpid())}; close it, or unlink with "
                "force=True to take the topic away"
            )
        self._retire(ring)

    def clean(self) -> list[str]:
        """Nobody dies in a fake world without giving back its place, so there is only what has no member."""
        gone = [name for name, ring in self.rings.items() if not ring.seats and ring.disposable]
        for name in gone:
            self._retire(self.rings[name])
        return gone


def refuse_to_travel(endpoint: object) -> NoReturn:
    raise TypeError(
        f"{endpoint!r} cannot be passed to another process: a fake world exists in one process alone. "
        "Use ringmain.testing.Lockstep to test several processes"
    )


_worlds: list[World] = []
_implicit: list[World] = []


def current() -> World:
    """The world that is open; outside of `fake()` one for the whole process."""
    if _worlds:
        return _worlds[-1]
    if not _implicit:
        _implicit.append(World())
    return _implicit[0]


def is_open() -> bool:
    """Is there any world at all?"""
    return bool(_worlds or _implicit)


def push(world: World) -> None:
    _worlds.append(world)


def pop(world: World) -> None:
    _worlds.remove(world)
