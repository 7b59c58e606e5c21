"""What a table of the lake has got between two of its versions: whose rows, and of which times.

Delta's log says which files were added, and the bounds of their rows. Of a file with rows of several hosts, hosts and
times are read: by its bounds alone, each of them would seem to have new rows at all of these times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileSelector

from ringmain.datasets._sources import PUBLISH_TIME, RM_HOST
from ringmain.lake._tables import Tables, micros

_OF_A_BATCH = re.compile(r"b\d{9,}-")


class Stretch(NamedTuple):
    """New rows of a host, or of any, between two times."""

    host: str | None
    first_us: int
    last_us: int

    def may_have(self, host: str) -> bool:
        return self.host is None or self.host == host


ANY = Stretch(None, -(1 << 62), 1 << 62)


def added(lake: Tables, table: str, since: int, until: int) -> Iterator[Stretch]:
    """Of the versions after `since`, up to `until`. Files that were joined, or written again without a host, have
    nothing new. Where the log is no longer whole, everything may be."""
    if since < 0:
        yield ANY
        return
    files = lake.filesystem()
    for version in range(since + 1, until + 1):
        try:
            with files.open_input_file(f"{table}/_delta_log/{version:020d}.json") as source:
                lines = bytes(source.read()).splitlines()
        except FileNotFoundError:
            yield ANY
            return
        for line in lines:
            add: dict[str, Any] | None = msgspec.json.decode(line).get("add")
            if add is not None and _OF_A_BATCH.match(name := unquote(add["path"])):
                yield from _stretches(lake, table, name, msgspec.json.decode(add.get("stats") or "{}"))


def is_whole(lake: Tables, table: str, version: int) -> bool:
    """Are all files of this version there, and its log? Upkeep deletes those of old versions."""
    try:
        wanted = {uri.rpartition("/")[2] for uri in lake.table(table, version).file_uris()}
    except DeltaError:
        return False
    return wanted <= {info.base_name for info in lake.filesystem().get_file_info(FileSelector(table))}


def _stretches(lake: Tables, table: str, name: str, stats: dict[str, Any]) -> Iterator[Stretch]:
    least, most = stats.get("minValues", {}), stats.get("maxValues", {})
    if PUBLISH_TIME not in least or PUBLISH_TIME not in most:
        yield ANY
        return
    first, last = (micros(datetime.fromisoformat(bound[PUBLISH_TIME])) for bound in (least, most))
    if RM_HOST in least and least[RM_HOST] == most.get(RM_HOST):
        yield Stretch(least[RM_HOST], first, last)
        return
    try:
        (rows,) = lake.read_files(table, [name], [RM_HOST, PUBLISH_TIME])
    except FileNotFoundError:  # joined with others, and deleted
        yield Stretch(None, first, last)
        return
    times = pa.table({"host": rows.column(RM_HOST), "at": rows.column(PUBLISH_TIME).cast(pa.int64())})
    for row in times.group_by("host").aggregate([("at", "min"), ("at", "max")]).to_pylist():
        yield Stretch(row["host"], row["at_min"], row["at_max"])
