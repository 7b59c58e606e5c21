"""What a recorder has latched so far: of topics that keep kinds, the last message of each. The next segment carries it.

The invariant owned here: it is of the rows that are written, and of those that the ring of a topic had kept when the
recorder joined it; so a segment that begins now carries what came before its first row.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Sequence, Set

import pyarrow as pa

from ringmain.errors import RecordingCorrupt
from ringmain.recording._meta import MetaFile
from ringmain.recording._record.gather import Pending
from ringmain.recording._record.row_builder import RowBuilder
from ringmain.recording._segment.latched import MOST_BYTES, Latched, latched_by, lives_that_keep, packed
from ringmain.recording._segment.store import Store, list_here


class LatchedSoFar:
    """Of one recorder."""

    def __init__(self, meta: MetaFile, builder: RowBuilder) -> None:
        self._meta, self._builder = meta, builder
        self._latched = Latched()
        self._told = False

    def __bool__(self) -> bool:
        return bool(self._latched)

    def recover(self, store: Store) -> None:
        """What an earlier recorder had latched, as its last segment tells. One that is only at `sealed_uri`, or cannot
        be read, tells nothing: what the rings have kept is then all there is."""
        keeping = lives_that_keep(self._meta.content)
        for ref in list_here(store)[-1:] if keeping else []:
            try:
                self._latched, _ = latched_by([ref.open()], keeping)
            except (RecordingCorrupt, OSError):
                continue

    def add(self, entries: Iterable[Pending], rows: pa.RecordBatch, in_place: Sequence[memoryview] = ()) -> None:
        """These entries have been written as these rows."""
        first = 0
        for entry in entries:
            count, life = len(entry.ring), (entry.topic, entry.epoch)
            kinds = self._kinds(life)
            if kinds or self._latched.has(entry.topic):
                self._latched.add(life, kinds, rows.slice(first, count), in_place)
            first += count

    def add_kept(self, topic: str, epoch: int, ring: pa.RecordBatch) -> bool:
        """The topic's ring had kept these before the recorder joined it. Is any of them new?"""
        life = topic, epoch
        if not len(ring) or not (kinds := self._kinds(life)):
            return False
        rows = self._builder.build(topic, epoch, ring, [(len(ring), time.time_ns())]).batch
        return self._latched.add_earlier(life, kinds, rows)

    def keep_only(self, topics: Set[str]) -> None:
        """The others are gone: a reader that joins them would find nothing."""
        for topic in self._latched.topics - topics:
            self._latched.forget(topic)

    def carried(self) -> bytes:
        """As the next segment carries it."""
        if not self._latched:
            return b""
        carried, left_out = packed(self._latched.rows())
        if left_out and not self._told:
            self._told = True
            warnings.warn(
                f"{left_out} messages that topics keep for readers that join late are not in incidents that begin "
                f"after them: together they are larger than {MOST_BYTES >> 20} MiB, which is what a segment carries",
                RuntimeWarning,
                stacklevel=2,
            )
        return carried

    def _kinds(self, life: tuple[str, int]) -> int:
        meta = self._meta.topics.get(life)
        return meta.properties.kept_kinds if meta is not None else 0
