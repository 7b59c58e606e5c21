"""The lake: the tables that the pipeline makes, and the ways to read and maintain them. How a table is committed is in
_tables.py.

    LAKE/
      ops/batches           the ledger: a row for each batch (_ledger.py)
      ops/recordings        how far each recording is read (_positions.py)
      silver/TOPIC          one table a topic, decoded, each message once
      quarantine/TOPIC      what did not decode, with the reason
      gold/topic_health, gold/gaps, gold/senders, gold/...
      steps/TABLE           what users' functions made of silver
      train/NAME            data sets: cells on a grid, in episodes (ringmain.datasets)
      bronze                with bronze="copy" only: otherwise the recordings are bronze
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake.exceptions import CommitFailedError

from ringmain.errors import LakeError
from ringmain.lake import _rewrite
from ringmain.lake._bronze import BRONZE, bronze
from ringmain.lake._incidents import messages_of
from ringmain.lake._ledger import BEGUN, LAKE_VERSION, LEDGER, OLDEST_VERSION, Batch, Ledger
from ringmain.lake._positions import POSITIONS, Positions
from ringmain.lake._rewrite import HOST_COLUMNS
from ringmain.lake._tables import LOG_RETENTION, Tables

if TYPE_CHECKING:
    import duckdb
    import polars as pl

SMALL_FILES = 32  # of a table: with more of them, they are compacted
SMALL_BYTES = 16 << 20


@dataclass
class Lake(Tables):
    """`Lake("lake/")`, `Lake("s3://bucket/lake", storage_options={...})`. Credentials come from the environment or from
    the options, which are those of `deltalake`. They are never written anywhere."""

    def check_version(self, ledger: Ledger | None = None) -> Batch | None:
        """Refuses a lake whose tables have other columns than this version writes. It can still be queried. Returns its
        newest batch."""
        last = (ledger or Ledger(self)).last()
        found = LAKE_VERSION if last is None else last.lake_version
        if not OLDEST_VERSION <= found <= LAKE_VERSION:
            what = (
                "build a new lake from the recordings (ringmain pipeline run RECORDINGS --lake NEW)"
                if found < LAKE_VERSION
                else "use the ringmain that wrote it, or a newer one"
            )
            raise LakeError(
                f"{self.uri} is a lake of version {found}, and this ringmain writes version {LAKE_VERSION}, whose "
                f"tables have other columns: {what}. Until then ringmain query reads this one as it is"
            )
        return last

    def to_arrow(
        self, name: str, *, columns: list[str] | None = None, version: int | None = None, incident: str | None = None
    ) -> pa.Table:
        """A table, now or at a version. `incident`: of a table of messages, those of the incident's host in its window;
        by its id, or a part of it."""
        where = None if incident is None else messages_of(self, name, incident)
        return self.dataset(name, version).to_table(columns=columns, filter=where)

    def to_polars(self, name: str, *, version: int | None = None) -> pl.LazyFrame:
        import polars as pl

        return pl.scan_delta(self.table(name, version))

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
        """A connection in which every table is a view: `silver.imu`, `gold.topic_health`, `silver."camera~left"`."""
        import duckdb

        connection = connection or duckdb.connect()
        for name in self.tables():
            schema, _, table = name.rpartition("/")
            hidden = f"_{name}"
            connection.register(hidden, self.dataset(name))
            if schema:
                connection.execute(f'create schema if not exists "{schema}"')
            target = f'"{schema}"."{table}"' if schema else f'"{table}"'
            connection.execute(f'create or replace view {target} as select * from "{hidden}"')
        return connection

    def bronze(self) -> pa.RecordBatchReader:
        """Every message that the lake has taken, as recorded: from the recordings, or from the table `bronze` where
        the pipeline makes one. `ringmain.spark.read_lake(spark, lake, "bronze")` gives them to Spark."""
        return bronze(self)

    def history(self, name: str, limit: int | None = None) -> list[dict[str, Any]]:
        """Every commit to a table, the newest first."""
        return list(self.table(name).history(limit))

    def compact(self, name: str, *, at_least: int = SMALL_FILES, target_bytes: int = 2 * SMALL_BYTES) -> int:
        """Join the small files of a table if there are many. Returns how many were joined. Files up to `target_bytes`
        are written again each time, so while a table is followed that is little."""
        small = [one for one in self.files(name) if one.size < SMALL_BYTES]
        if len(small) < at_least:
            return 0
        return _rewrite.compact(self, name, SMALL_BYTES, target_bytes)

    def vacuum(self, name: str, hours: int) -> int:
        """Deletes files that no version of the last `hours` has, and the log of versions before these, from now on also
        while the pipeline runs: a long log makes commits slow. Returns how many files."""
        table, kept = self.table(name), f"interval {hours} hours"
        if table.metadata().configuration.get(LOG_RETENTION) != kept:
            table.alter.set_table_properties({LOG_RETENTION: kept})
        gone = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.create_checkpoint()
        table.cleanup_metadata()
        return len(gone)

    def retain(self, name: str, days: float) -> int:
        """Deletes the rows of a table whose time is more than so many days ago. Returns how many. Their files go with
        `vacuum`, when no version that is kept has them."""
        table = self.table(name)
        bounded = (table.metadata().configuration.get("delta.dataSkippingStatsColumns") or "").split(",")
        fields = [f for f in pa.schema(table.schema().to_arrow()) if f.name in bounded]
        times = [f.name for f in fields if pa.types.is_timestamp(f.type)]
        if not times:
            raise LakeError(f"{name} has no column of times by which old rows could be told: leave it out of --retain")
        return _rewrite.delete_before(self, name, times[0], int((time.time() - days * 86_400) * 1e6))

    def delete_host(self, host: str) -> dict[str, int]:
        """Deletes everything of a host, as where its recordings came from: in every table that has a column of hosts,
        and in the ledger. Returns how many rows of which table, and of `ops/batches` how many recordings; tables of
        your own without a column of hosts are not in it, and stay. The counts by topic in the ledger stay, too.

        Files go with `vacuum`, when no version that is kept has them. Recordings of the host that are still there are
        read again by the next run."""
        last = Ledger(self).last()
        if last is None:
            raise LakeError(f"{self.uri} is not a lake: it has no {LEDGER}")
        if last.state == BEGUN:
            raise LakeError(f"batch {last.batch} of {self.uri} is not done: let the pipeline finish it first")
        deleted: dict[str, int] = {}
        try:
            for name in self.tables():
                there = [f.name for f in self.schema(name) or ()]
                # Elsewhere a column `host` is a field of a message.
                ours = HOST_COLUMNS if name == BRONZE or name.startswith("gold/") else HOST_COLUMNS[:1]
                column = next((one for one in ours if one in there), None)
                if column is not None:
                    deleted[name] = _rewrite.delete_host(self, name, column, host)
            # Last: what is interrupted can be done again.
            ledger = Ledger(self)
            deleted[LEDGER] = len(Positions(self, ledger).forget(host) | ledger.forget(host))
        except CommitFailedError as error:
            raise LakeError(f"another writer changed {self.uri} while {host} was deleted: do it again") from error
        return deleted

    def maintain(self, keep_hours: int = 168, retain: Mapping[str, float] | None = None) -> Iterator[str]:
        """Compact every table, and delete the files that no version of the last `keep_hours` has. A line for each.

        retain: days by table, or by pattern (`silver/*`); older rows are deleted. The first that matches counts. The
        ledger keeps all its rows.
        """
        last = Ledger(self).last()
        if last is None:
            raise LakeError(f"{self.uri} is not a lake: it has no {LEDGER}")
        # Files of a batch that is not done must keep their names: by these its next try knows them.
        busy = last.state == BEGUN
        for name in self.tables():
            wanted = {} if name in (LEDGER, POSITIONS) else retain or {}
            days = next((days for pattern, days in wanted.items() if fnmatchcase(name, pattern)), None)
            gone = "" if days is None or busy else f"{self.retain(name, days)} rows deleted, "
            joined = 0 if busy else self.compact(name, at_least=2, target_bytes=8 * SMALL_BYTES)
            yield f"{name}: {gone}{joined} files joined, {self.vacuum(name, keep_hours)} deleted"
        if busy:
            yield f"batch {last.batch} is not done, so all rows and files stay: let the pipeline finish it first"
