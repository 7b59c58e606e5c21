"""A shared contract in Python, as native/rule/worker.hpp: each message goes to one worker.

Owns this invariant: a record that is not done is free, or one worker has it. `Record.owner` and `Record.done` are the
mark that the native ring keeps in the message's header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ringmain.backends._python.reference_ring import Reader, Record, Ring, Slot

MOST_RETURNS = 15


class Worker(Reader):
    """The worker's side. `wanted` says which messages it takes."""

    def __init__(self, ring: Ring, slot: Slot, wanted: Callable[[Record], bool]) -> None:
        super().__init__(ring, slot, "next", True)
        self.wanted = wanted
        self.received: list[Record] = []
        """Done at the next receiving call."""
        self.lent: list[Record] = []
        """Done when their block ends."""
        self.objects: dict[int, Any] = {}
        """By position: what the caller got for a message, for `reject`."""

    def attach(self, start: str, from_the_first: bool) -> None:
        self.expected = self.ring.next_sequence

    def peek(self) -> Record | None:
        return next((record for record in self.ring.free() if self.wanted(record)), None)

    def take(self, record: Record) -> int:
        record.owner = self.slot
        self.received.append(record)
        self.slot.messages += 1
        self.slot.bytes += len(record.data)
        self.slot.redelivered += record.returns > 0
        return 0

    def lend(self, record: Record) -> None:
        self.received.remove(record)
        self.lent.append(record)

    def finish_received(self) -> None:
        for record in self.received:
            record.done = True
        self.received.clear()
        self.objects.clear()

    def finish(self, record: Record) -> None:
        self._drop(record)
        record.done = True

    def give_back(self, record: Record, counts: bool = True) -> None:
        self._drop(record)
        record.owner = None
        record.returns = min(record.returns + counts, MOST_RETURNS)

    def give_back_all(self) -> None:
        for record in [*self.received, *self.lent]:
            self.give_back(record)

    def reject(self, task: Any) -> bool:
        for record in self.received:
            received = self.objects.get(record.position)
            if received is task or getattr(received, "data", None) is task:
                self.give_back(record)
                return True
        return False

    def _drop(self, record: Record) -> None:
        self.objects.pop(record.position, None)
        for records in (self.received, self.lent):
            if record in records:
                records.remove(record)

    def release(self, keep: int | None) -> None:
        needed = [record.position for record in [*self.received, *self.lent]]
        self.slot.hold = min([*needed, *([] if keep is None else [keep])], default=None)
        self.slot.taken = len(needed)
