"""The contracts, as data: the table of `native/format/layout.hpp`, by name.

Owns this invariant: what depends on a contract asks for a trait here, and never for the contract's name. A new contract
is a row of the native table, a `ContractName`, and a line in `SLOW_READER`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ringmain import _native

ContractName = Literal["broadcast", "pipe", "bus", "reliable", "work"]


class Contract(NamedTuple):
    """One row: what a topic does with its writers and readers."""

    name: ContractName
    one_writer: bool
    one_reader: bool
    holds: Literal["never", "while borrowed", "always"]
    """When a reader keeps the writers from overwriting what it has not read."""
    keeps_unread: bool
    """Unread messages stay while there is no reader, also when the last participant leaves."""

    shared: bool
    """Each message goes to one of the readers."""

    @property
    def takes_away(self) -> bool:
        """Does what a reader gets go to no other?"""
        return self.one_reader or self.shared

    @property
    def writer_waits(self) -> bool:
        """For slow readers. Otherwise they are lapped."""
        return self.holds == "always"


CONTRACTS: dict[str, Contract] = {row["name"]: Contract(**row) for row in _native.CONTRACTS}
DEFAULT_CONTRACT: ContractName = "broadcast"
SLOW_READER: dict[ContractName, str] = {
    "broadcast": "is lapped, and told how many messages it lost; the writer never waits",
    "pipe": "the writer waits, even for a reader that has not come yet",
    "bus": "is lapped, but a message it has borrowed is never overwritten",
    "work": "holds up no other worker; the writers wait when the ring is full",
    "reliable": "without a reader messages are overwritten; otherwise the writers wait until every reader has read",
}
