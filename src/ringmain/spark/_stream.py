"""Streaming over recordings that may still be growing. Offsets are positions.

    {"consumer": "spark-1f2e3d4c", "at": {"camera-host": "000000003:1500", "arm-host": "000000000:77"}}

A position always means the same row, so Spark reads the same rows again after a crash: exactly once, with any sink that
replaces what the batch wrote before. The consumer's name is chosen when the query first starts. It is part of the
offsets and so of the checkpoint: a restarted query is the same consumer. Under this name the stream registers its
position with the recording's retention, which deletes nothing that it has not read.

What the positions are is owned by ringmain.recording._offsets; this is Spark's interface to it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from ringmain.errors import SchemaMismatch
from ringmain.recording import Position, Store
from ringmain.recording._decode import Decoding
from ringmain.recording._locations import SELF
from ringmain.recording._offsets import Offsets, Tracker
from ringmain.recording._scan import Scan, lives_of
from ringmain.spark._options import Options

Offset = dict[str, Any]


class RecordingStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One for each query, as long as it runs. `read` runs on copies of it, in workers."""

    def __init__(self, options: Options, scan: Scan) -> None:
        self._options, self._scan = options, scan
        self._offsets = Offsets(fail_on_loss=scan.fail_on_loss, consumer=scan.consumer)
        self._registered = False

    # Offsets

    def initialOffset(self) -> Offset:
        offsets = self._now()
        offsets.consumer = self._options.consumer or f"spark-{os.urandom(4).hex()}"
        chosen = _starting(self._options.starting, offsets.trackers)
        at = {}
        for key, tracker in offsets.trackers.items():
            asked = chosen.get(key, "earliest")
            if asked == "earliest":
                at[key] = str(tracker.first())
            elif asked == "latest":
                at[key] = str(tracker.end(offsets.gaps(tracker)))
            else:
                at[key] = str(Position.parse(asked))
        return {"consumer": offsets.consumer, "at": at}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        offsets = self._now(start)
        if not self._registered:
            # Not in initialOffset: Spark calls it at every start, and ignores the result if there is a checkpoint.
            self.commit(start)
            self._registered = True
        unlimited = isinstance(limit, ReadAllAvailable)
        limits = (None, None) if unlimited else (self._options.max_rows, self._options.max_bytes)
        return {"consumer": offsets.consumer, "at": offsets.advance(start["at"], *limits)}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._now().stop_at_end()

    def reportLatestOffset(self) -> Offset | None:
        if self._offsets.consumer is None:
            return None
        return {"consumer": self._offsets.consumer, "at": self._now().end()}

    # Rows

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        offsets = self._now(start)
        self._check_fields([tracker.store for tracker in offsets.trackers.values()])
        found = offsets.ranges(start["at"], end["at"], self._options.split_bytes, self._scan.filter())
        return [InputPartition((item, offsets.consumer)) for item in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted_range, consumer = partition.value
        return replace(self._scan, consumer=consumer).read(wanted_range)

    def commit(self, end: Offset) -> None:
        """Registers with the recordings' retention how far this query has read."""
        if self._options.consumer != "none":
            self._now(end).register(end["at"])

    # How it is done

    def _now(self, offset: Offset | None = None) -> Offsets:
        """With the recordings that there are now."""
        self._offsets.keep(self._options.find_recordings(must_exist=False))
        if offset is not None:
            self._offsets.consumer = offset["consumer"]
        return self._offsets

    def _check_fields(self, stores: list[Store]) -> None:
        """The columns of a running query are fixed. If a topic gains a field, the query must be restarted."""
        known = self._scan.decoding
        if known is None:
            return
        now = Decoding.of(known.topic, lives_of(stores, known.topic))
        if not now.fields.equals(known.fields):
            changed = [f"{f.name} ({f.type})" for f in now.fields if f not in list(known.fields)]
            raise SchemaMismatch(
                f"columns {', '.join(changed)}",
                "the columns that this query started with",
                ["restart the query: it continues where it stopped, with the new columns"],
                topic=known.topic,
            )


def _starting(text: str, recordings: dict[str, Tracker]) -> dict[str, str]:
    """{key: where to start}."""
    if text.lower() in ("earliest", "latest"):
        return dict.fromkeys(recordings, text.lower())
    if text.startswith("{"):
        given: dict[str, str] = json.loads(text)
        unknown = [key for key in given if key not in recordings]
        if unknown:
            raise ValueError(f"startingPosition: no recording {', '.join(unknown)}; there are {', '.join(recordings)}")
        return given
    Position.parse(text)
    if len(recordings) != 1:
        raise ValueError(
            f"startingPosition={text!r} is a position in one recording, not in {len(recordings)}: use earliest, "
            f'latest, or {{"{next(iter(recordings), SELF)}": "{text}", ...}}'
        )
    return dict.fromkeys(recordings, text)
