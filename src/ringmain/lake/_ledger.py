"""The ledger, `ops/batches`: how far the lake has come, and what every batch did. It is a Delta table like the others.

A batch is *begun* in the ledger before any table has a row of it, with the positions up to which it reads. It is *done*
there after all tables have it. So a batch that died is run again with the same rows; tables that have it skip it. The
row of a batch has the end positions of the recordings of which it read something; what the rows come to is in
_positions.py. No checkpoint is kept anywhere else.

Two pipelines on one lake want to begin the same batch, from the same version of the ledger: one of them gets it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from ringmain.errors import LakeError
from ringmain.lake._files import Written
from ringmain.lake._log import Snapshot, TableFile
from ringmain.lake._tables import APPLICATION, Change, Tables

LEDGER = "ops/batches"
# 1: the columns of ours in silver had no prefix; 2: gold/fields and gold/quarantine had no host; 3: the ledger did not
# have the state of a recording's files; 4: each row of the ledger had all recordings.
LAKE_VERSION = 5
OLDEST_VERSION = 4
"""Lakes from this version on are gone on with."""
COMPLETE_BEFORE = 5
"""Earlier rows of the ledger have all recordings so far."""
BEGUN, DONE = "begun", "done"
_BEGIN = "ringmain.begin"


class TopicCount(msgspec.Struct):
    """The row counts of one topic. `rows_in == rows_out + quarantined + duplicates`, or the batch is refused."""

    topic: str
    rows_in: int = 0
    rows_out: int = 0
    quarantined: int = 0
    duplicates: int = 0
    lost: int = 0
    bytes: int = 0

    def add(self, other: TopicCount) -> None:
        for name in self.__struct_fields__[1:]:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class HostCount(msgspec.Struct):
    """Rows of one host whose times are far from those of the batch's others: they are in files apart."""

    host: str
    rows: int


class Source(msgspec.Struct):
    """How far one recording is read. `rows` and `damaged` are this batch's; the rest is so far."""

    recording: str
    location: str
    identity: str
    end: str
    begin: str = ""
    rows: int = 0
    damaged: int = 0
    first_us: int | None = None
    last_us: int | None = None
    seen: str = ""
    """The state of its files when all of it was read; empty if it is not."""
    gone_us: int | None = None
    """Since when it is not where it was; None if it is there."""


class Batch(msgspec.Struct):
    """A row of the ledger."""

    batch: int
    state: str
    window_s: float
    consumer: str
    host: str = ""
    process: str = ""
    seconds: float = 0.0
    topics: list[TopicCount] = []
    recordings: list[Source] = []
    lake_version: int = LAKE_VERSION
    engine: str = ""
    engine_version: str = ""
    application: str = ""
    apart: list[HostCount] = []

    def made_by(self) -> str:
        """What ran its tasks, for people."""
        if self.engine == "spark":
            return f"Spark {self.engine_version}, application {self.application}"
        return f"the local engine of ringmain {self.engine_version}, without Spark" if self.engine else ""


_COUNT = pa.struct([("topic", pa.string()), *((name, pa.int64()) for name in TopicCount.__struct_fields__[1:])])
_SOURCE = pa.struct(
    [("recording", pa.string()), ("location", pa.string()), ("identity", pa.string())]
    + [("end", pa.string()), ("begin", pa.string())]
    + [(name, pa.int64()) for name in ("rows", "damaged", "first_us", "last_us")]
    + [("seen", pa.string())]
)
SCHEMA = pa.schema(
    [
        ("batch", pa.int64()), ("state", pa.string()), ("window_s", pa.float64()), ("consumer", pa.string()),
        ("host", pa.string()), ("process", pa.string()), ("seconds", pa.float64()),
        ("topics", pa.list_(_COUNT)), ("recordings", pa.list_(_SOURCE)), ("lake_version", pa.int64()),
        ("engine", pa.string()), ("engine_version", pa.string()), ("application", pa.string()),
        ("apart", pa.list_(pa.struct([("host", pa.string()), ("rows", pa.int64())]))),
    ]
)  # fmt: skip


class Ledger:
    """The ledger of one lake."""

    def __init__(self, lake: Tables) -> None:
        self.lake = lake
        self._read: dict[str, list[dict[str, Any]]] = {}  # rows of files, which do not change

    def last(self) -> Batch | None:
        """The newest batch, done or not."""
        files = self.lake.files(LEDGER)
        if not files:
            return None
        return self._since(files, max(one.most["batch"] for one in files))[-1]

    def version(self) -> int:
        """Of the ledger's log, when it was last looked at."""
        found = self.lake.snapshot(LEDGER, known=True)
        return -1 if found is None else found.version

    def after(self, batch: int) -> list[Batch]:
        """The batches after this one, done or not, as the ledger was when it was last looked at."""
        found = self.lake.snapshot(LEDGER, known=True)
        return [] if found is None else self._since(found.files(), batch + 1)

    def _since(self, files: list[TableFile], first: int) -> list[Batch]:
        """From this batch on."""
        wanted = [one.name for one in files if one.most["batch"] >= first]
        self._read = {name: rows for name, rows in self._read.items() if name in wanted}
        for name in wanted:
            if name not in self._read:
                self._read[name] = [row for table in self.lake.read_files(LEDGER, [name]) for row in table.to_pylist()]
        rows = [row for name in wanted for row in self._read[name] if row["batch"] >= first]
        # Where compaction has joined a begun batch with others, its row stays beside that of the same batch when done.
        rows.sort(key=lambda row: (row["batch"], row["state"] == DONE))
        return [_batch(row) for row in {row["batch"]: row for row in rows}.values()]

    def batches(self) -> list[Batch]:
        """Every batch that is done."""
        parts = self.lake.read_files(LEDGER, [one.name for one in self.lake.files(LEDGER)])
        rows = sorted((row for part in parts for row in part.to_pylist()), key=lambda row: row["batch"])
        return [_batch(row) for row in rows if row["state"] == DONE]

    def begin(self, batch: Batch) -> None:
        """Write down what the batch will read. One that is there already, of a pipeline that died, stays as it is."""
        batch.host, batch.process = socket.gethostname(), _process(os.getpid())
        if not self._put(batch, _BEGIN):
            raise LakeError(
                f"another pipeline has begun batch {batch.batch} of {self.lake.uri}: a lake takes one pipeline at a "
                "time. Nothing is doubled; run it again when the other has ended"
            )

    def done(self, batch: Batch) -> bool:
        """The batch is complete. False if another pipeline said so first."""
        return self._put(batch, APPLICATION)

    def refuse_second(self, begun: Batch) -> None:
        """Raises if the process that began the batch is at work on this machine."""
        pid = begun.process.partition("@")[0]
        if begun.host != socket.gethostname() or pid == str(os.getpid()) or not pid.isdigit():
            return
        if _process(int(pid)) == begun.process:
            raise LakeError(
                f"process {pid} on this machine is writing batch {begun.batch} of {self.lake.uri}: a lake takes one "
                "pipeline at a time. Stop it, or wait for its end"
            )

    def forget(self, host: str) -> set[str]:
        """Delete what the rows have of recordings that this host made. Returns of which recordings."""
        gone: set[str] = set()
        removed: list[TableFile] = []
        made: list[Written] = []
        for one in self.lake.files(LEDGER):
            (table,) = self.lake.read_files(LEDGER, [one.name])
            rows = table.to_pylist()
            rest = [_without(host, row) for row in rows]
            if rest != rows:
                gone |= {source["recording"] for row in rows for source in row["recordings"]}
                gone -= {source["recording"] for row in rest for source in row["recordings"]}
                removed.append(one)
                made.append(self.lake.write(LEDGER, None, pa.Table.from_pylist(rest, schema=SCHEMA)))
        if removed:
            self.lake.exchange(LEDGER, "a host deleted", made, removed, data_change=True)
        return gone

    def _put(self, batch: Batch, application: str) -> bool:
        row = pa.Table.from_pylist([msgspec.to_builtins(batch)], schema=SCHEMA)
        written = self.lake.write(LEDGER, batch.batch, row)

        def build(found: Snapshot | None) -> Change:
            mine = [one for one in found.files() if one.least["batch"] == batch.batch] if found else []
            return Change(SCHEMA, [written], mine)

        if self.lake.commit(LEDGER, batch.batch, build, application, as_known=True):
            return True
        self.lake.discard([written])
        return False


def totals(counts: Iterable[TopicCount]) -> dict[str, TopicCount]:
    """The row counts by topic, of all tasks or all batches."""
    sums: dict[str, TopicCount] = {}
    for count in counts:
        sums.setdefault(count.topic, TopicCount(count.topic)).add(count)
    return sums


def _batch(row: dict[str, Any]) -> Batch:
    known = {name: value for name, value in row.items() if value is not None}  # columns that came later are null
    return msgspec.convert({"lake_version": 1, **known}, Batch)


def without_host(host: str, sources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of other hosts. A recording's identity is RECORDER:HOST:PID:TIME."""
    return [one for one in sources if one["identity"].rsplit(":", 3)[1:2] != [host]]


def _without(host: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row without what it has of this host."""
    sources = without_host(host, row["recordings"])
    apart = row.get("apart") and [one for one in row["apart"] if one["host"] != host]
    return {**row, "recordings": sources} | ({"apart": apart} if "apart" in row else {})


def _process(pid: int) -> str:
    """A process's number and when it started, which no later process has; empty when there is none."""
    try:
        return f"{pid}@{Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[19]}"
    except OSError:
        return ""
