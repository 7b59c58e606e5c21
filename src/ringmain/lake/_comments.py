"""What tables and columns of ours are about, with units, for the comments that a table has in its log: Spark's
DESCRIBE, catalogs and `Lake.comments` show them. Columns of one name are about the same in all tables."""

from __future__ import annotations

import pyarrow as pa

from ringmain.recording._format import PREFIX, is_ours

TABLES = {
    "bronze": "every message as recorded",
    "silver": "messages of one topic, decoded, each once",
    "quarantine": "messages of one topic that did not decode, with the reason",
    "gold/topic_health": "for each window, topic, epoch and recorder: rate, latency, jitter, losses",
    "gold/senders": "for each window, topic and sender: messages and the longest silence",
    "gold/gaps": "every gap: when, how many messages, which reader",
    "gold/fields": "for each window, topic, epoch, host and numeric field: statistics of its values",
    "gold/quarantine": "for each window, topic, epoch, host and reason: messages that did not decode",
    "gold/incidents": "what flight recordings have kept",
    "ops/batches": "the ledger: a row for each batch",
    "ops/recordings": "how far each recording is read",
}
_MESSAGES = {
    "recorder": "the program that recorded the message",
    "topic": "the topic's name",
    "epoch": "which creation of the topic, in ns since 1970",
    "seq": "the number of the message in its topic, from 0",
    "publish_time": "when the message was published, in µs",
    "publish_ns": "the ns within that µs",
    "record_time": "when it was recorded, in µs",
    "sender": "which program sent it",
    "kind": "what its sender says it is",
    "lost": "messages before it that the recorder did not get",
    "size": "of the payload, in bytes",
    "payload": "the bytes that were sent",
    "host": "where the recorder ran",
    "segment": "the file of the recording",
    "row": "the row in that file",
    "recording": "the recording's key in the lake",
    "reason": "why it did not decode",
}
_GOLD = {
    "window_start": "where the window begins, inclusive",
    "window_end": "where it ends, exclusive",
    "messages": "how many messages",
    "bytes": "of all payloads, in bytes",
    "rate_hz": "messages a second",
    "bytes_per_s": "bytes a second",
    "latency_p50_ms": "from publish to record, median within 1 %, in ms",
    "latency_p99_ms": "from publish to record, 99th percentile within 1 %, in ms",
    "latency_p999_ms": "from publish to record, 99.9th percentile within 1 %, in ms",
    "latency_max_ms": "from publish to record, longest, in ms",
    "latency_min_ms": "from publish to record, shortest, in ms; below 0: clocks differ",
    "latency_buckets": "the sketch of latencies: its buckets, each 2 % wide",
    "latency_counts": "the sketch of latencies: how many are in each bucket",
    "jitter_ms": "standard deviation of the intervals, in ms",
    "lost": "messages that the recorder did not get",
    "gaps": "how often some were lost",
    "late": "messages whose latency is over 1 s",
    "out_of_order": "messages that were published before the one that was recorded before",
    "intervals": "how many there are, their sum in µs, the sum of their squares",
    "lines": "first and last message of each life, from which rows are merged",
    "first_time": "the first message",
    "last_time": "the last message",
    "longest_silence_ms": "the longest interval, in ms",
    "time": "of the message after the gap",
    "reader": "which recorder has the gap",
    "before_seq": "the message after the gap",
    "field": "the field's name, with dots; of short lists with its index",
    "count": "finite numbers, of which the rest is about",
    "nulls": "values that are null",
    "nans": "values that are NaN",
    "infinite": "values that are infinite",
    "min": "the least",
    "max": "the greatest",
    "mean": "the mean",
    "stddev": "the standard deviation",
    "stuck": "all values were the same",
    "squares": "the sum of squared differences from the mean",
    "start_time": "where the incident begins",
    "end_time": "where it ends",
    "trigger_time": "when it was triggered",
    "incident": "the incident's id",
    "name": "the trigger's name",
    "why": "what triggered it",
    "start_ns": "where it begins, in ns since 1970",
    "end_ns": "where it ends, in ns since 1970",
    "trigger_ns": "when it was triggered, in ns since 1970",
    "whole_from_ns": "from where on it is whole, in ns since 1970",
    "open": "it was not over yet",
}


def table_comment(table: str) -> str | None:
    return TABLES.get(table) or TABLES.get(table.partition("/")[0])


def commented(table: str, schema: pa.Schema) -> pa.Schema:
    """The columns of a table with what they are about; a field of messages has what its type says of it."""
    return pa.schema([_commented(table, f) for f in schema])


def _commented(table: str, column: pa.Field) -> pa.Field:
    about: str | None = None
    if is_ours(column.name):
        about = _MESSAGES.get(column.name.removeprefix(PREFIX))
    elif table == "bronze":
        about = _MESSAGES.get(column.name)
    elif table in TABLES and table.startswith("gold/"):
        about = _GOLD.get(column.name) or _MESSAGES.get(column.name)
    return with_comment(column, about)


def with_comment(column: pa.Field, about: str | None) -> pa.Field:
    return column.with_metadata({**(column.metadata or {}), "comment": about}) if about else column


def comments_of(schema: pa.Schema) -> dict[str, str]:
    """What the columns of a table say that they are about."""
    return {f.name: f.metadata[b"comment"].decode() for f in schema if b"comment" in (f.metadata or {})}
