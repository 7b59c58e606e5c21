"""`ops/train`: how far each data set of a lake has come, a row for each. A build is *begun* there before anything of it
is written, with the versions of all tables that it reads; it is *done* there after all tables have it."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from ringmain.lake._files import Written
from ringmain.lake._log import Snapshot, TableFile
from ringmain.lake._tables import Change, Tables

TABLE = "ops/train"
BEGUN, DONE = "begun", "done"
_SCHEMA = pa.schema(
    [("dataset", pa.string()), ("build", pa.int64()), ("state", pa.string()), ("progress", pa.string())]
)


class Progress(msgspec.Struct):
    """A row."""

    dataset: str
    build: int
    state: str
    recipe: dict[str, Any]
    versions: dict[str, int]
    """Of the tables that it reads,"""
    before: dict[str, int]
    """and that the build before had read."""
    episodes_version: int
    """Of `gold/episodes` when it began; -1: there was none."""
    whole: bool = False
    """All episodes are made again, and replace all that is in the table."""


class Progresses:
    """The row of one data set."""

    def __init__(self, lake: Tables, dataset: str) -> None:
        self._lake, self._dataset = lake, dataset

    def last(self) -> Progress | None:
        table = self._lake.snapshot(TABLE)
        mine = [row for _, rows in ([] if table is None else self._files(table)) for row in rows if self._is_mine(row)]
        found = [msgspec.json.decode(row["progress"], type=Progress) for row in mine]
        return max(found, key=lambda one: (one.build, one.state == DONE), default=None)

    def put(self, progress: Progress) -> None:
        """In place of the row before. Of two builds at once, one is refused."""
        text = msgspec.json.encode(progress).decode()
        row = {"dataset": self._dataset, "build": progress.build, "state": progress.state, "progress": text}
        written: list[Written] = []

        def change(found: Snapshot | None) -> Change:
            files = [] if found is None else self._files(found)
            hit = [(file, rows) for file, rows in files if any(map(self._is_mine, rows))]
            rest = [one for _, rows in hit for one in rows if not self._is_mine(one)]
            table = pa.Table.from_pylist([*rest, row], schema=_SCHEMA)
            written.append(self._lake.write(TABLE, progress.build, table))
            return Change(_SCHEMA, written, [file for file, _ in hit], ())

        if not self._lake.commit(TABLE, progress.build, change, f"ringmain.train.{self._dataset}.{progress.state}"):
            self._lake.discard(written)

    def _is_mine(self, row: dict[str, Any]) -> bool:
        return bool(row["dataset"] == self._dataset)

    def _files(self, table: Snapshot) -> list[tuple[TableFile, list[dict[str, Any]]]]:
        return [
            (file, rows.to_pylist()) for file in table.files() for rows in self._lake.read_files(TABLE, [file.name])
        ]
