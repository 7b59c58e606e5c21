"""`gold/incidents`: what the flight recordings of a lake have kept.

An incident begins before its trigger fires, so messages are in the lake before it is known that they are in one. Which
they are is told by its times and its host, when the lake is read. The table is written when it has changed, with or
without a batch; a row stays when the incident is removed from its recording.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from ringmain.lake._health import INCIDENTS
from ringmain.lake._log import Snapshot
from ringmain.lake._tables import Change, Tables
from ringmain.recording import Incident, Store
from ringmain.recording._locations import recording_of
from ringmain.recording._meta import Meta, host_of
from ringmain.recording._segment.store import reading
from ringmain.recording._upkeep.incidents import incidents_in

_APPLICATION = "ringmain.incidents"


def note_incidents(lake: Tables, flights: Iterable[tuple[str, Store, Meta | None]]) -> None:
    """Write down the incidents of these recordings: (key, store, meta.json)."""
    now: dict[tuple[str, str], dict[str, Any]] = {}
    for key, store, meta in flights:
        with reading(store.shown):
            for one in incidents_in(store):
                if store.kept is None or store.kept.incident == one.id:
                    now[recording_of(key), one.id] = _row(recording_of(key), host_of(meta, one.first_segment), one)
    table = lake.snapshot(INCIDENTS.name) if now else None
    names = [] if table is None else [one.name for one in table.files()]
    known = {
        (row["recording"], row["incident"]): row
        for part in lake.read_files(INCIDENTS.name, names)
        for row in INCIDENTS.of(part).to_pylist()
    }
    wanted = pa.Table.from_pylist([*(known | now).values()], INCIDENTS.schema)
    if wanted.to_pylist() == [*known.values()]:
        return
    written = lake.write(INCIDENTS.name, None, wanted.sort_by("start_ns"))

    def build(found: Snapshot | None) -> Change:
        return Change(INCIDENTS.schema, [written], found.files() if found is not None else [])

    if not lake.commit(INCIDENTS.name, 0 if table is None else table.version + 1, build, _APPLICATION):
        lake.discard([written])


def _row(recording: str, host: str, one: Incident) -> dict[str, Any]:
    return {
        "start_time": one.start_ns // 1000, "end_time": one.end_ns // 1000, "trigger_time": one.trigger_ns // 1000,
        "recording": recording, "incident": one.id, "name": one.name, "why": one.why, "host": host,
        "start_ns": one.start_ns, "end_ns": one.end_ns, "trigger_ns": one.trigger_ns,
        "whole_from_ns": one.whole_from_ns, "open": one.is_open,
    }  # fmt: skip
