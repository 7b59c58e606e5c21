"""Where the messages of a data set come from: recordings, or the tables of a lake. Both give the same messages.

The invariant owned here: *each message once, in the order of time*. Recordings of one host may overlap; of copies of a
message one counts. The lake has each message once already. Messages of the same nanosecond are in the order of their
epochs and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.datasets._cells import Messages
from ringmain.errors import TopicNotFound
from ringmain.recording import Recording
from ringmain.recording._decode import ERROR, PAYLOAD, Decoding
from ringmain.recording._format import ENVELOPE_COLUMNS, HOST, decoded_name
from ringmain.recording._scan import lives_of, stats_by_host
from ringmain.recording._segment.segment import TopicStats
from ringmain.recording._upkeep.incidents import Incident

EPOCH, SEQ, PUBLISH_TIME, PUBLISH_NS, LOST, RM_HOST = map(
    decoded_name, ("epoch", "seq", "publish_time", "publish_ns", "lost", "host")
)
_ORDER = [PUBLISH_TIME, PUBLISH_NS, EPOCH, SEQ]
RAW = pa.struct([PAYLOAD])
LOOK_AHEAD_S = 60
"""A loss is counted in the message after it, which is looked for so far beyond an episode's end."""


def span(source: Source, host: str, topics: Iterable[str]) -> tuple[int, int] | None:
    """From the first message of these topics to the last; None if there is none."""
    found = source.reach(host, topics).values()
    return (min(first for first, _ in found), max(end for _, end in found)) if found else None


class Source(Protocol):
    """Messages by host and topic. Spans are [since, until) in microseconds."""

    def pinned(self, topics: Iterable[str]) -> Source:
        """The same messages of these topics, whatever is added later; of recordings, what is there when it is read."""

    def state(self, topics: Iterable[str]) -> Any:
        """What JSON has of it: different if there are other messages of these topics."""

    def newest(self) -> Any:
        """Different when there are new rows; cheaper than `state`."""

    def hosts(self) -> list[str]:
        """Where there are recordings of, in order."""

    def reach(self, host: str, topics: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Of each of these topics that has messages, from the first to the last."""

    def messages(self, host: str, topic: str, span: tuple[int, int]) -> Messages:
        """Those in a span."""

    def lost_before_next(self, host: str, topic: str, at_us: int) -> int:
        """How many messages were lost just before the first one from this time on."""

    def incidents(self, host: str) -> list[Incident]:
        """What flight recorders have kept there."""

    def type_of(self, topic: str) -> pa.DataType:
        """The struct of a topic's fields."""


@dataclass
class OfRecordings:
    """Recordings as a source."""

    recordings: Sequence[Recording]
    _decodings: dict[str, Decoding] = field(default_factory=dict)

    def pinned(self, topics: Iterable[str]) -> Source:
        return self

    def state(self, topics: Iterable[str]) -> Any:
        wanted = set(topics)
        return [
            [
                str(one.store.directory or one.store.sealed_uri),
                [msgspec.to_builtins(life) for life in one.lives() if life.topic in wanted],
                [msgspec.to_builtins(incident) for incident in one.incidents()],
            ]
            for one in self.recordings
        ]

    def newest(self) -> Any:
        return [(str(one.store.directory or one.store.sealed_uri), one.end()) for one in self.recordings]

    def hosts(self) -> list[str]:
        return sorted(self._by_host)

    @cached_property
    def _by_host(self) -> dict[str, list[tuple[Recording, list[TopicStats]]]]:
        """What each host has in which recordings. One has several hosts if it was continued on another."""
        found: dict[str, list[tuple[Recording, list[TopicStats]]]] = {}
        for one in self.recordings:
            by_host: dict[str, list[TopicStats]] = {}
            for host, stats in stats_by_host(one):
                by_host.setdefault(host, []).extend(stats)
            for host, stats in by_host.items():
                if stats:
                    found.setdefault(host, []).append((one, stats))
        return found

    def reach(self, host: str, topics: Iterable[str]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        wanted = set(topics)
        for stats in (stats for _, there in self._by_host[host] for stats in there if stats.topic in wanted):
            first, end = stats.min_ns // 1000, stats.max_ns // 1000 + 1
            known = found.get(stats.topic, (first, end))
            found[stats.topic] = min(first, known[0]), max(end, known[1])
        return found

    def incidents(self, host: str) -> list[Incident]:
        return [incident for one, _ in self._by_host[host] for incident in one.incidents()]

    def type_of(self, topic: str) -> pa.DataType:
        decoding = self._decoding(topic)
        return pa.struct(decoding.columns()) if len(decoding.fields) else RAW

    def _decoding(self, topic: str) -> Decoding:
        if topic not in self._decodings:
            lives = lives_of([one.store for one in self.recordings], topic)
            if not lives and not any(topic in one.topics() for one in self.recordings):
                there = sorted({name for one in self.recordings for name in one.topics()})
                raise TopicNotFound(f"no topic {topic!r} is recorded here; there are {', '.join(there)}", topic=topic)
            self._decodings[topic] = Decoding.of(topic, lives)
        return self._decodings[topic]

    def messages(self, host: str, topic: str, span: tuple[int, int]) -> Messages:
        decoding = self._decoding(topic)
        typed = len(decoding.fields) > 0
        schema = decoding.schema()
        found = [
            decoding.rows(batch)
            for batch in self._batches(host, topic, span, (*ENVELOPE_COLUMNS, "payload", HOST.name))
        ] if typed else [
            batch.rename_columns([decoded_name(name) for name in batch.schema.names])
            for batch in self._batches(host, topic, span, (*ENVELOPE_COLUMNS, "payload"))
        ]  # fmt: skip
        rows = pa.Table.from_batches(found, schema if typed else None) if found else schema.empty_table()
        return messages_of(rows, self.type_of(topic))

    def lost_before_next(self, host: str, topic: str, at_us: int) -> int:
        span = (at_us, at_us + LOOK_AHEAD_S * 1_000_000)
        found = list(self._batches(host, topic, span, ENVELOPE_COLUMNS))
        if not found:
            return 0
        rows = pa.Table.from_batches(found).sort_by([(name, "ascending") for name in ("publish_time", "publish_ns")])
        return int(rows.column("lost")[0].as_py())

    def _batches(
        self, host: str, topic: str, span: tuple[int, int], columns: Sequence[str]
    ) -> Iterable[pa.RecordBatch]:
        wanted = columns if HOST.name in columns else (*columns, HOST.name)
        for one, _ in self._by_host[host]:
            for _, batch in one.batches(topics=topic, since=span[0] * 1000, until=span[1] * 1000, columns=wanted):
                if batch.column(HOST.name)[0].as_py() == host:  # the same in all of a batch
                    yield batch.select(list(columns))


def messages_of(rows: pa.Table, type_: pa.DataType, quarantined: int = 0, lost: int = 0) -> Messages:
    """Decoded rows as messages: in order, each once. Rows with a reason did not decode."""
    rows = rows.sort_by([(name, "ascending") for name in _ORDER])
    epoch, seq = (np.asarray(rows.column(name)) for name in (EPOCH, SEQ))
    first = np.append(True, (epoch[1:] != epoch[:-1]) | (seq[1:] != seq[:-1]))[: len(rows)]
    if not first.all():
        rows = rows.filter(pa.array(first))
    lost += int(pc.sum(rows.column(LOST)).as_py() or 0)
    if ERROR.name in rows.schema.names and rows.column(ERROR.name).null_count < len(rows):
        bad = rows.column(ERROR.name).is_valid()
        quarantined += int(pc.sum(bad).as_py())
        rows = rows.filter(pc.invert(bad))
    at_us = np.asarray(rows.column(PUBLISH_TIME).cast(pa.int64()))
    times_ns = at_us * 1000 + np.asarray(rows.column(PUBLISH_NS)).astype(np.int64)
    rows = rows.combine_chunks()
    there = set(rows.schema.names)
    parts = [
        rows.column(f.name).combine_chunks().cast(f.type) if f.name in there else pa.nulls(len(rows), f.type)
        for f in type_
    ]
    values = pa.StructArray.from_arrays([_one(part) for part in parts], fields=list(type_))
    return Messages(times_ns, values, lost, quarantined)


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
