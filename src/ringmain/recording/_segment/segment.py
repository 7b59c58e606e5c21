"""What a growing and a sealed segment have in common: runs of consecutive rows, read by row number, with their damage
and statistics.

The invariant owned here: a row is handed out under its own number. Rows that cannot be read raise RecordingCorrupt, or
are left out and reported; the numbers of the rows after them do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import RecordingCorrupt
from ringmain.recording._format import EXTENSION, STORED


@dataclass(frozen=True, slots=True)
class Run:
    """Rows [row, row + rows) of a segment that are stored together, in about so many bytes, and the bounds of their
    publish times."""

    row: int
    rows: int
    bytes: int
    min_ns: int
    max_ns: int

    @property
    def end_row(self) -> int:
        return self.row + self.rows


@dataclass(frozen=True, slots=True)
class Damage:
    """Rows [row, end_row) of a segment cannot be read. `end_row` is None where it is not known."""

    segment: int
    row: int
    end_row: int | None
    bytes: int
    reason: str
    torn: bool = False  # the unfinished end that a killed recorder leaves; no flushed row is in it

    def __str__(self) -> str:
        if self.torn:
            return f"segment {self.segment:09d}: {self.bytes} bytes after row {self.row} were never finished"
        upto = "the end" if self.end_row is None else str(self.end_row)
        return f"segment {self.segment:09d}: rows {self.row} to {upto} ({self.bytes} bytes): {self.reason}"


class TopicStats(msgspec.Struct):
    """What a segment holds of one life of a topic."""

    topic: str
    epoch: int
    rows: int
    bytes: int
    lost: int
    first_seq: int
    last_seq: int
    min_ns: int
    max_ns: int

    def merge(self, other: TopicStats) -> None:
        self.rows += other.rows
        self.bytes += other.bytes
        self.lost += other.lost
        self.first_seq = min(self.first_seq, other.first_seq)
        self.last_seq = max(self.last_seq, other.last_seq)
        self.min_ns = min(self.min_ns, other.min_ns)
        self.max_ns = max(self.max_ns, other.max_ns)


def time_ns_of(table: pa.Table | pa.RecordBatch) -> pa.Array:
    """Publish times in nanoseconds, exactly as the ring gave them."""
    micros = pc.cast(table.column("publish_time"), pa.int64())
    return pc.add(pc.multiply(micros, 1000), pc.cast(table.column("publish_ns"), pa.int64()))


def topic_stats(table: pa.Table) -> list[TopicStats]:
    """One entry for each (topic, epoch) in the table; reads envelope columns only."""
    columns = {name: table.column(name) for name in ("topic", "epoch", "seq", "size", "lost")}
    grouped = pa.table({**columns, "ns": time_ns_of(table)}).group_by(["topic", "epoch"])
    wanted = [("seq", "count"), ("size", "sum"), ("lost", "sum"), ("seq", "min"), ("seq", "max")]
    rows = grouped.aggregate([*wanted, ("ns", "min"), ("ns", "max")]).to_pylist()
    return [
        TopicStats(
            r["topic"], r["epoch"], r["seq_count"], r["size_sum"], r["lost_sum"],
            r["seq_min"], r["seq_max"], r["ns_min"], r["ns_max"],
        )
        for r in rows
    ]  # fmt: skip


def merge_stats(into: dict[tuple[str, int], TopicStats], more: Iterable[TopicStats]) -> None:
    for entry in more:
        known = into.get((entry.topic, entry.epoch))
        if known is None:
            into[entry.topic, entry.epoch] = msgspec.structs.replace(entry)
        else:
            known.merge(entry)


def newest_in(segment: Segment) -> int:
    """The newest publish time in it, 0 when it has no rows."""
    return max((run.max_ns for run in segment.runs), default=0)


def with_columns(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """These columns. Of what was stored without extensions, these are null."""
    if EXTENSION.name in columns and EXTENSION.name not in batch.schema.names:
        batch = batch.append_column(EXTENSION, pa.nulls(len(batch), EXTENSION.type))
    return batch.select(list(columns))


LATCHED_KEY = "ringmain.latched"  # in the metadata of a segment


def with_latched(latched: bytes) -> dict[str, bytes]:
    """The metadata of a segment that carries this."""
    return {LATCHED_KEY: latched} if latched else {}


class Segment:
    """An open segment. Subclasses know the file format."""

    number: int
    sealed: bool
    damage: Sequence[Damage]
    end_row: int
    runs: Sequence[Run]
    schema: pa.Schema = STORED
    """Of what is stored."""
    latched: bytes = b""
    """What it carries of what was latched before its first row: see latched.py."""
    dictionaries = False
    """Give texts as dictionaries, if they are stored so: that takes a tenth of the time, as most are the same."""

    def read(self, index: int, columns: Sequence[str]) -> list[pa.RecordBatch]:
        """The rows of one run. Raises RecordingCorrupt when they do not pass their checksums."""
        raise NotImplementedError

    def stats(self) -> list[TopicStats]:
        raise NotImplementedError

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def batches(
        self,
        first_row: int = 0,
        end_row: int | None = None,
        columns: Sequence[str] | None = None,
        *,
        min_ns: int | None = None,
        max_ns: int | None = None,
        on_damage: Callable[[Damage], None] | None = None,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(number of the first row, rows) for rows in [first_row, end_row), by default with all columns that are
        stored, without runs wholly outside [min_ns, max_ns]. Damaged rows raise RecordingCorrupt, or are left out and
        passed to `on_damage`."""
        for damage in self.damage:
            if on_damage is not None:
                on_damage(damage)
            elif damage.end_row is None or damage.end_row > first_row:  # some of the rows that were asked for
                raise RecordingCorrupt(f"{damage}; verify() lists all damage, repair() sets it aside")
        for index, run in enumerate(self.runs):
            lo = max(first_row, run.row)
            hi = run.end_row if end_row is None else min(end_row, run.end_row)
            outside = (min_ns is not None and run.max_ns < min_ns) or (max_ns is not None and run.min_ns > max_ns)
            if lo >= hi or outside:
                continue
            try:
                found = self.read(index, self.schema.names if columns is None else columns)
            except RecordingCorrupt as error:
                if on_damage is None:
                    raise
                on_damage(Damage(self.number, run.row, run.end_row, 0, str(error)))
                continue
            row = run.row
            for batch in found:
                begin, stop = max(lo, row), min(hi, row + len(batch))
                if begin < stop:
                    yield begin, batch.slice(begin - row, stop - begin)
                row += len(batch)

    def close(self) -> None:
        """Close the file; batches that were read stay valid."""
