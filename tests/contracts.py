"""The contracts that a test is about, by what they do: rows of the table, so that a new contract joins their tests."""

from __future__ import annotations

from ringmain._contracts import CONTRACTS, ContractName

ALL: list[ContractName] = [row.name for row in CONTRACTS.values()]
TO_ALL = [row.name for row in CONTRACTS.values() if not row.takes_away]
"""Where every reader gets every message."""
UNSHARED = [row.name for row in CONTRACTS.values() if not row.shared]
"""On `work` a message is its worker's until it takes the next, so what is read, and what is left, differ there:
tests/ring/test_work.py."""
SHARED = [row.name for row in CONTRACTS.values() if row.shared]
KEEPING_UNREAD = [row.name for row in CONTRACTS.values() if row.keeps_unread]
LAPPING = [row.name for row in CONTRACTS.values() if not row.writer_waits]
WAITING = [row.name for row in CONTRACTS.values() if row.writer_waits]
WAITING_FOR_EACH = [row.name for row in CONTRACTS.values() if row.writer_waits and not row.shared]
"""Where a writer waits for the slowest reader. On `work` one that is slow holds up no other."""
HOLDING = [row.name for row in CONTRACTS.values() if row.holds != "never" and not row.shared]
"""Where what a reader has borrowed stays."""
ONE_WRITER = [row.name for row in CONTRACTS.values() if row.one_writer]
MANY_WRITERS = [row.name for row in CONTRACTS.values() if not row.one_writer]
MANY_TO_ALL = [name for name in MANY_WRITERS if name in TO_ALL]
