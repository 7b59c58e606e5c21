"""How far each recording is read, `ops/recordings`: what the rows of the ledger come to.

A row of the ledger has the recordings of which its batch read something, so it is small however many there are. This
table has the state of all of them after some batch, which is its transaction's number; the rows of the ledger after
that batch are laid over it. So it need not be written with every batch. It is at most two files: all recordings, and
those that have changed since that was written.
"""

from __future__ import annotations

import time

import msgspec
import pyarrow as pa

from ringmain.lake._ledger import COMPLETE_BEFORE, LEDGER, Batch, Ledger, Source, without_host
from ringmain.lake._log import Snapshot, TableFile
from ringmain.lake._tables import APPLICATION, Change, Tables

POSITIONS = "ops/recordings"
EVERY = 16  # batches: so many rows of the ledger are read beside the table
GONE_DAYS = 30
"""A recording that was read to its end and deleted leaves the table after so long."""
_WHOLE_ROWS = 2000  # up to here all of it is written each time
_NUMBERS = ("first_us", "last_us", "gone_us", "batch")
SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("recording", "location", "identity", "end", "seen")]
    + [(name, pa.int64()) for name in _NUMBERS]
)


class Positions:
    """The state of all recordings of one lake, after its newest batch."""

    def __init__(self, lake: Tables, ledger: Ledger) -> None:
        self._lake, self._ledger = lake, ledger
        self._upto = -1  # the batch after which the table has the state
        self._changed: set[str] = set()  # since then
        self._recent: set[str] = set()  # those of the smaller file
        self.known: dict[str, Source] = {}

    def read(self, last: Batch | None) -> dict[str, Source]:
        """All recordings, as the lake has them now; `last` is the newest batch of the ledger."""
        found = self._lake.snapshot(POSITIONS)
        self._upto, self.known, self._recent, self._changed = -1, {}, set(), set()
        if found is not None:
            said = found.transactions.get(APPLICATION)
            self._upto = -1 if said is None else int(said["version"])
            names = [one.name for one in _base_first(found)]
            tables = list(self._lake.read_files(POSITIONS, names))
            rows = sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["batch"])
            self.known = {row["recording"]: _source(row) for row in rows}
            self._recent = {name for table in tables[1:] for name in table.column("recording").to_pylist()}
        if last is not None and last.lake_version < COMPLETE_BEFORE:
            self.advance(last)  # its row has all recordings
        else:
            for batch in self._ledger.after(self._upto):
                self.advance(batch)
        return self.known

    def advance(self, batch: Batch) -> None:
        """The batch is done, or begun."""
        for one in batch.recordings:
            self.known[one.recording] = one
            self._changed.add(one.recording)

    def write(self, batch: int, *, now: bool) -> None:
        """Give the table the state after a batch that is done, if there is enough of it or if it must be `now`."""
        if batch <= self._upto or not (now or batch - self._upto > EVERY):
            return
        since = int((time.time() - GONE_DAYS * 86_400) * 1e6)
        for name in [name for name, one in self.known.items() if one.seen and (one.gone_us or since) < since]:
            del self.known[name]
        recent = (self._recent | self._changed) & self.known.keys()
        whole = len(self.known) <= _WHOLE_ROWS or not self._upto_is_there() or 4 * len(recent) > len(self.known)
        names = self.known.keys() if whole else recent
        rows = [{**msgspec.to_builtins(self.known[name]), "batch": batch} for name in names]
        written = self._lake.write(POSITIONS, batch, pa.Table.from_pylist(rows, schema=SCHEMA))

        def build(found: Snapshot | None) -> Change:
            files = [] if found is None else _base_first(found)
            return Change(SCHEMA, [written], files if whole else files[1:])

        if not self._lake.commit(POSITIONS, batch, build):
            self._lake.discard([written])
            return
        self._upto, self._changed, self._recent = batch, set(), set() if whole else recent
        if now:
            for table in (LEDGER, POSITIONS):  # the next process reads one file of each log
                self._lake.checkpoint(table)

    def _upto_is_there(self) -> bool:
        return self._lake.snapshot(POSITIONS, known=True) is not None

    def forget(self, host: str) -> set[str]:
        """Delete the recordings that this host made. Returns which."""
        found = self._lake.snapshot(POSITIONS)
        gone: set[str] = set()
        for one in [] if found is None else found.files():
            (table,) = self._lake.read_files(POSITIONS, [one.name])
            rows = table.to_pylist()
            rest = without_host(host, rows)
            if len(rest) < len(rows):
                gone |= {row["recording"] for row in rows} - {row["recording"] for row in rest}
                made = self._lake.write(POSITIONS, None, pa.Table.from_pylist(rest, schema=SCHEMA))
                self._lake.exchange(POSITIONS, "a host deleted", [made], [one], data_change=True)
        return gone


def _base_first(found: Snapshot) -> list[TableFile]:
    return sorted(found.files(), key=lambda one: -one.rows)


def _source(row: dict[str, object]) -> Source:
    return msgspec.convert({name: value for name, value in row.items() if value is not None}, Source)


def sources_of(lake: Tables) -> list[Source]:
    """The recordings that a lake is made of."""
    ledger = Ledger(lake)
    return list(Positions(lake, ledger).read(ledger.last()).values())
