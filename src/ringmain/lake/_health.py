"""The tables of gold about messages, whatever they say: `topic_health`, `senders` and `gaps`; and `incidents`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ringmain.lake import _edges as edges
from ringmain.lake import _sketch as sketch
from ringmain.lake._fields import FIELDS, QUARANTINE
from ringmain.lake._gold import (
    TIME,
    Column,
    GoldTable,
    Groups,
    Key,
    State,
    Values,
    as_numbers,
    flat,
    grouped,
    key_of,
    least,
    list_array,
    most,
    one_array,
    sums,
)

LATE_MS = 1000.0
_NUMBER, _FLOAT, _TEXT, _NUMBERS = pa.int64(), pa.float64(), pa.string(), pa.list_(pa.int64())

_latencies, _all_latencies = sketch.measured("latency"), sketch.merged("latency_buckets", "latency_counts")


def _intervals(sums: np.ndarray) -> pa.Array:
    whole = np.clip(sums, -(2.0**62), 2.0**62).astype(np.int64)
    return list_array(pa.array(whole.ravel()), np.full(len(whole), 3))


def _all_intervals(rows: Groups) -> np.ndarray:
    known = as_numbers(flat(rows["intervals"])[0]).reshape(-1, 3).astype(float)
    added = np.stack([rows.sum(known[:, n]) for n in range(3)], axis=1)
    return np.asarray(added + rows.once(edges.joined).between.sums(len(rows)))


def _jitter_ms(state: Any, window_s: float) -> Values:
    """The standard deviation of the intervals."""
    count, total, squares = as_numbers(flat(state["intervals"])[0]).reshape(-1, 3).astype(float).T
    spread = np.maximum(0.0, squares - total * total / np.maximum(count, 1))
    return np.where(count < 2, 0.0, np.sqrt(spread / np.maximum(count - 1, 1)) / 1000)


def _silence_ms(longest_us: np.ndarray) -> pa.Array:
    return pa.array(longest_us / 1000, mask=longest_us == np.iinfo(np.int64).min)


def _longest_silence(rows: Groups) -> Values:
    known = rows["longest_silence_ms"]
    us = np.rint(pc.fill_null(known, 0.0).to_numpy(zero_copy_only=False) * 1000).astype(np.int64)
    us = rows.most(np.where(known.is_null().to_numpy(zero_copy_only=False), np.iinfo(np.int64).min, us))
    return _silence_ms(np.maximum(us, rows.once(edges.joined).between.longest(len(rows))))


HEALTH = GoldTable(
    "gold/topic_health",
    (
        Column("window_start", TIME),
        Column("window_end", TIME, derive=lambda r, s: as_numbers(r["window_start"]) + int(s * 1e6)),
        Column("topic", _TEXT),
        Column("epoch", _NUMBER),
        Column("recorder", _TEXT),
        Column("host", _TEXT),
        Column("messages", _NUMBER, lambda m: m.sizes, sums("messages")),
        Column("bytes", _NUMBER, lambda m: m.sum(m["size"]), sums("bytes")),
        Column("rate_hz", _FLOAT, derive=lambda r, s: as_numbers(r["messages"]) / s),
        Column("bytes_per_s", _FLOAT, derive=lambda r, s: as_numbers(r["bytes"]) / s),
        Column("latency_p50_ms", _FLOAT, derive=sketch.quantile(0.5), total="mean", head="p50 ms"),
        Column("latency_p99_ms", _FLOAT, derive=sketch.quantile(0.99), total="max", head="p99 ms",
               limit="max_latency_p99_ms", text="has a p99 latency of {value:.4g} ms"),
        Column("latency_p999_ms", _FLOAT, derive=sketch.quantile(0.999), total="max", head="p99.9 ms"),
        Column("latency_max_ms", _FLOAT, lambda m: m.most(m["latency"]), most("latency_max_ms"), total="max"),
        Column("jitter_ms", _FLOAT, derive=_jitter_ms, total="mean", head="jitter ms"),
        Column("lost", _NUMBER, lambda m: m.sum(m["lost"]), sums("lost")),
        Column("gaps", _NUMBER, lambda m: m.sum((m["lost"] > 0).astype(np.int64)), sums("gaps"), head="gaps"),
        Column("late", _NUMBER, lambda m: m.sum((m["latency"] > LATE_MS).astype(np.int64)), sums("late"),
               head="late", mark="warn", limit="max_late", text="has {value:,} late messages"),
        Column("out_of_order", _NUMBER, lambda m: m.once(edges.between_messages).backwards(len(m)),
               lambda r: r.sum(as_numbers(r["out_of_order"])) + r.once(edges.joined).between.backwards(len(r)),
               head="out of order", mark="warn"),
        Column("latency_min_ms", _FLOAT, lambda m: m.least(m["latency"]), least("latency_min_ms"), total="min"),
        Column("latency_buckets", pa.list_(pa.int32()), lambda m: m.once(_latencies).buckets,
               lambda r: r.once(_all_latencies).buckets),
        Column("latency_counts", _NUMBERS, lambda m: m.once(_latencies).counts,
               lambda r: r.once(_all_latencies).counts),
        Column("intervals", _NUMBERS, lambda m: _intervals(m.once(edges.between_messages).sums(len(m))),
               lambda r: _intervals(_all_intervals(r))),
        Column("lines", edges.EDGES, edges.measured, lambda r: r.once(edges.joined).edges),
    ),
)  # fmt: skip
SENDERS = GoldTable(
    "gold/senders",
    (
        Column("window_start", TIME),
        Column("topic", _TEXT),
        Column("sender", _TEXT),
        Column("recorder", _TEXT),
        Column("host", _TEXT),
        Column("messages", _NUMBER, lambda m: m.sizes, sums("messages")),
        Column("bytes", _NUMBER, lambda m: m.sum(m["size"]), sums("bytes")),
        Column("first_time", TIME, lambda m: m.least(m["at"]), least("first_time")),
        Column("last_time", TIME, lambda m: m.most(m["at"]), most("last_time")),
        Column("longest_silence_ms", _FLOAT,
               lambda m: _silence_ms(m.once(edges.between_messages).longest(len(m))), _longest_silence, total="max"),
        Column("lines", edges.EDGES, edges.measured, lambda r: r.once(edges.joined).edges),
    ),
)  # fmt: skip
# A row for each incident of a recording that the lake is made of. Their files are read, no message is measured.
INCIDENTS = GoldTable(
    "gold/incidents",
    (Column("start_time", TIME), Column("end_time", TIME), Column("recording", _TEXT), Column("incident", _TEXT),
     Column("name", _TEXT), Column("why", _TEXT), Column("host", _TEXT), Column("trigger_time", TIME),
     Column("start_ns", _NUMBER), Column("end_ns", _NUMBER), Column("trigger_ns", _NUMBER),
     Column("whole_from_ns", _NUMBER), Column("open", pa.bool_())),
)  # fmt: skip
# A row for each gap: no window, so nothing is merged.
GAPS = GoldTable(
    "gold/gaps",
    (Column("time", TIME), Column("topic", _TEXT), Column("reader", _TEXT), Column("epoch", _NUMBER),
     Column("before_seq", _NUMBER), Column("lost", _NUMBER), Column("host", _TEXT)),
)  # fmt: skip


GOLD = (HEALTH, SENDERS, GAPS, FIELDS, QUARANTINE, INCIDENTS)
_MEASURED = ["topic", "epoch", "recorder", "sender", "seq", "size", "lost", "publish_time", "publish_ns", "record_time"]


def measure(parts: Sequence[tuple[str, pa.RecordBatch]], window_us: int) -> dict[str, pa.Table]:
    """A row of each table for each window and key of these messages: parts of recordings, each with the recording's
    name and of one host, in the order in which the recording has them. Rows of one key may be several."""
    rows = pa.Table.from_batches([rows.select(_MEASURED) for _, rows in parts])
    of_rows = {name: one_array(rows.column(name)) for name in _MEASURED}
    numbers = ("epoch", "seq", "size", "lost", "publish_time", "record_time", "publish_ns")
    epoch, seq, size, lost, at, recorded, ns = (
        as_numbers(of_rows[name]).astype(np.int64, copy=False) for name in numbers
    )
    origin, recording, host = _origins(parts)
    columns: dict[str, Values] = {
        "epoch": epoch, "seq": seq, "size": size, "lost": lost, "at": at, "recording": recording, "host": host,
        "latency": ((recorded - at) - ns / 1000) / 1000, "window_start": at // window_us * window_us,
        **{name: of_rows[name] for name in ("topic", "recorder", "sender")},
    }  # fmt: skip
    # Edges are of one life in one recording.
    keys = [key_of(columns[name]) for name in ("window_start", "topic", "epoch", "recorder")]
    keys.append(Key(origin, len(recording.dictionary)))
    sender = key_of(columns["sender"])
    order, starts = grouped(keys)
    messages = of_senders = _groups(columns, order, starts)
    together = messages.of_row[1:] == messages.of_row[:-1]
    if sender.values > 1 and (np.diff(sender.codes[order])[together] != 0).any():
        of_senders = _groups(columns, *grouped([*keys, sender]))
    return {
        table.name: table.measured({name: _taken(rows[name], rows.starts) for name in table.keys}, rows)
        for table, rows in ((HEALTH, messages), (SENDERS, of_senders))
    }


def _origins(parts: Sequence[tuple[str, pa.RecordBatch]]) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """Of each row the number of its recording and host, the recording, and the host."""
    found: dict[tuple[str, str], int] = {}
    numbers = [found.setdefault((name, rows.column("host")[0].as_py()), len(found)) for name, rows in parts]
    of_rows = np.repeat(np.asarray(numbers, np.int32), [len(rows) for _, rows in parts])
    recording, host = (
        pa.DictionaryArray.from_arrays(pa.array(of_rows), pa.array(names)) for names in zip(*found, strict=True)
    )
    return of_rows.astype(np.int64), recording, host


def _groups(columns: State, order: np.ndarray, starts: np.ndarray) -> Groups:
    in_order = bool((order[1:] > order[:-1]).all())
    return Groups(columns if in_order else {k: _taken(v, order) for k, v in columns.items()}, starts, len(order))


def _taken(values: Values, order: np.ndarray) -> Values:
    return values[order] if isinstance(values, np.ndarray) else values.take(pa.array(order))
