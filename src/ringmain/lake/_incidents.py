"""The incidents of a lake's flight recordings, and which messages they have: those of the host, in the window."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from ringmain.errors import LakeError
from ringmain.lake._health import INCIDENTS
from ringmain.lake._tables import Tables
from ringmain.recording import Incident
from ringmain.recording._format import HOST, decoded_name
from ringmain.recording._upkeep.incidents import choose_incident

_TIME = pa.timestamp("us", "UTC")


def incidents_of(lake: Tables, version: int | None = None) -> list[tuple[str, Incident]]:
    """(host, incident) of all that `gold/incidents` has, or had at a version, oldest first."""
    if lake.snapshot(INCIDENTS.name) is None:
        return []
    rows = lake.dataset(INCIDENTS.name, version).to_table().sort_by("trigger_ns").to_pylist()
    return [
        (row["host"], Incident("", row["incident"], row["name"], row["why"], row["trigger_ns"], row["start_ns"],
                               row["end_ns"], 0, -1 if row["open"] else 0, whole_from_ns=row["whole_from_ns"]))
        for row in rows
    ]  # fmt: skip


def find(lake: Tables, wanted: str) -> tuple[str, Incident]:
    """(host, incident), by its id or a part of it."""
    known = incidents_of(lake)
    one = choose_incident([incident for _, incident in known], wanted)
    return next(pair for pair in known if pair[1] is one)


def messages_of(lake: Tables, table: str, wanted: str) -> Any:
    """Which rows of a table of messages an incident has."""
    columns = (HOST.name, "publish_time", "publish_ns")
    there = lake.existing(table).schema.names
    named = [names for names in (columns, tuple(map(decoded_name, columns))) if set(names) <= set(there)]
    if not named:
        raise LakeError(f"{table} has no messages of which an incident has some: choose silver/, quarantine/ or bronze")
    where, one = find(lake, wanted)
    host, time, below = map(ds.field, named[-1])
    return (host == where) & ~_is_before(time, below, one.start_ns) & _is_before(time, below, one.end_ns)


def _is_before(time: Any, below: Any, at_ns: int) -> Any:
    at = pa.scalar(at_ns // 1000, _TIME)
    return (time < at) | ((time == at) & (below < at_ns % 1000))
