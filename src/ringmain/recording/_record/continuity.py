"""Continuity: a recording has each message of a topic's life once, and counts those it does not have.

The invariant owned here: in one life of a topic, recorded + lost = the number of messages up to the newest recorded,
counted from where recording of that life began (`first_seq` in meta.json). It began with the first message if the life
began while the recorder ran, and otherwise where the tap joined. A recorder that is restarted goes on where the
previous one stopped.
"""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa
import pyarrow.compute as pc

from ringmain.errors import RecordingCorrupt
from ringmain.recording._format import RING_SCHEMA
from ringmain.recording._segment.store import Store, list_here
from ringmain.recording._upkeep.uploads import read_uploaded

_SEQ, _LOST = (RING_SCHEMA.get_field_index(name) for name in ("seq", "lost"))


class Continuity:
    """Keeps the next message of each life, and corrects the first batch that a tap gives of a life."""

    def __init__(self, begun_before: Set[tuple[str, int]]) -> None:
        """`begun_before`: the lives (topic, epoch) that are there before any tap joins. Epochs tell lives apart, but
        not which was first: the wall clock may have been set in between."""
        self._begun_before = begun_before
        self._next: dict[str, tuple[int, int]] = {}  # by topic: epoch, and the next sequence number
        self._known: dict[tuple[str, int], int] = {}

    def know(self, topic: str, epoch: int, next_seq: int) -> None:
        """An earlier recorder has recorded all messages before `next_seq`."""
        self._known[topic, epoch] = next_seq

    def first_seq(self, topic: str, epoch: int, joined_at: int) -> int:
        """Where recording begins of a life that no earlier recorder recorded."""
        return joined_at if (topic, epoch) in self._begun_before else 0

    def correct(self, topic: str, epoch: int, ring: pa.RecordBatch, *, joined: bool) -> pa.RecordBatch:
        """The batch. If the tap has just `joined` this life: without messages that are recorded already, and with the
        number missed before its first row in `lost`. Otherwise the ring has counted them."""
        if joined and len(ring) and (expected := self._expected(topic, epoch)) is not None:
            ring = with_lost(without_known(ring, expected), expected)
        if len(ring):
            self._next[topic] = epoch, ring.column(_SEQ)[len(ring) - 1].as_py() + 1
        return ring

    def _expected(self, topic: str, epoch: int) -> int | None:
        life, seq = self._next.get(topic, (None, 0))
        if life == epoch:
            return seq
        return self._known.get((topic, epoch), None if (topic, epoch) in self._begun_before else 0)


def without_known(ring: pa.RecordBatch, expected: int) -> pa.RecordBatch:
    """Its rows from the expected number on."""
    seqs = ring.column(_SEQ)
    if seqs[0].as_py() >= expected:
        return ring
    return ring.filter(pc.greater_equal(seqs, pa.scalar(expected, pa.uint64())))


def with_lost(ring: pa.RecordBatch, expected: int) -> pa.RecordBatch:
    """With what is missing from the expected number to its first row in that row's `lost`."""
    if not len(ring):
        return ring
    missing = ring.column(_SEQ)[0].as_py() - expected
    lost = ring.column(_LOST)
    if missing == lost[0].as_py():
        return ring
    corrected = pa.concat_arrays([pa.array([missing], pa.uint64()), lost.slice(1)])
    return ring.set_column(_LOST, RING_SCHEMA.field(_LOST), corrected)


def lost_in(ring: pa.RecordBatch) -> int:
    """How many messages were lost before its rows."""
    return int(pc.sum(ring.column(_LOST)).as_py() or 0)


def last_recorded(store: Store, wanted: set[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The last recorded sequence number of each of these lives (topic, epoch), searching the newest segments first. A
    segment that cannot be read is skipped: its messages may then be recorded again. Of segments that were uploaded,
    uploaded.json tells it, so that the store need not answer."""
    found: dict[tuple[str, int], int] = {}
    for ref in reversed(list_here(store)):
        if wanted <= found.keys():
            break
        try:
            segment = ref.open()
        except (RecordingCorrupt, OSError):
            continue
        try:
            for stats in segment.stats():
                key = (stats.topic, stats.epoch)
                if key in wanted and key not in found:
                    found[key] = stats.last_seq
        except RecordingCorrupt:
            continue
        finally:
            segment.close()
    uploaded = read_uploaded(store)
    lives = uploaded.lives if uploaded is not None else []
    return {(life.topic, life.epoch): life.last_seq for life in lives if (life.topic, life.epoch) in wanted} | found
