"""DataFrames to topics: `df.write.format("ringmain").option("topic", "plan").mode("append").save()` and `writeStream`.

Rows are published on the machine where the task runs, in order within a partition; between partitions there is none.

What is guaranteed: **at least once**. A task that Spark tries again, and a micro-batch that it runs again after a
crash, publish their rows again. Every message says which attempt it belongs to, in its sender:

    spark/QUERY/BATCH/PARTITION/ATTEMPT         e.g. spark/1f2e3d4c/17/0/3

If the query is deterministic, the k-th message of one attempt at a partition is the k-th of every other attempt, so a
consumer that counts can drop repeats: `RepeatFilter` does. Readers get what the topic's contract promises.

Each row is one message. Its columns are the fields of the topic's type, encoded as msgpack, with a schema; those of
ringmain begin with `rm_`, as wherever messages are decoded: `rm_topic` and `rm_kind` are used, others are not sent. A
frame with a column `payload` and none of these is not decoded: `payload` (binary or string) is the message's data, and
`topic` and `kind` have their names from the recording.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType, StructType

import ringmain as rm
from ringmain import _names
from ringmain._contracts import CONTRACTS, ContractName
from ringmain.errors import TopicNotFound
from ringmain.recording._format import COLUMNS, HOST, decoded_name, is_ours
from ringmain.recording._scan import POSITION_COLUMNS
from ringmain.spark._options import known_options
from ringmain.typed._materialise import materialise

_NEW_TOPIC: ContractName = "bus"  # several writers, because tasks run side by side, and no wait for readers
_OPTIONS = {
    "topic": "where to publish, unless the rows have a column rm_topic (topic, beside a payload)",
    "contract": f"{', '.join(CONTRACTS)}; by default that of the topic, or {_NEW_TOPIC} for a new topic",
    "capacity": "of the ring, for a new topic",
    "timeout": "seconds to wait for slow readers, where the contract waits, before the task fails; default 60",
    "readers": "how many readers to wait for before the first message; default 0",
    "persist": "true: a new topic stays when the last participant leaves",
    "path": "ignored",
    "checkpointlocation": "Spark's own",
}
_OPEN_TOPICS = 64  # publishers kept open by a task


@dataclass
class Published(WriterCommitMessage):
    """What one task published."""

    messages: int


class Roles(NamedTuple):
    """Which columns of a frame say what of a message."""

    topic: str | None
    kind: str | None
    payload: str | None
    fields: list[str]

    @classmethod
    def of(cls, names: Sequence[str]) -> Roles:
        raw = "payload" in names and not any(map(is_ours, names))
        fields = [] if raw else [name for name in names if not is_ours(name)]
        topic, kind, payload = (name if raw else decoded_name(name) for name in ("topic", "kind", "payload"))
        unknown = [name for name in names if name not in (*COLUMNS, HOST.name, *POSITION_COLUMNS)] if raw else []
        if unknown:
            raise ValueError(
                f"payload is the message's data, so {', '.join(unknown)} would not be sent: drop that, or, if payload "
                "is a field like the others, add the column rm_topic"
            )
        return cls(
            topic if topic in names else None,
            kind if kind in names else None,
            payload if payload in names and not fields else None,
            fields,
        )


@dataclass(frozen=True)
class Target:
    """Where and how to publish; picklable."""

    topic: str | None
    contract: Any
    capacity: int | None
    timeout_s: float
    readers: int
    persist: bool

    @classmethod
    def parse(cls, given: Mapping[str, str], schema: StructType) -> Target:
        options = known_options(given, _OPTIONS, "writing with format('ringmain')")
        topic = options.get("topic")
        roles = Roles.of(schema.names)
        if topic is None and roles.topic is None:
            raise ValueError("which topic? Give the option topic=NAME, or a column rm_topic (topic, beside a payload)")
        if topic is not None:
            _names.check_topic(topic)
        data = schema[roles.payload].dataType if roles.payload is not None else BinaryType()
        if not isinstance(data, BinaryType | StringType):
            raise ValueError(f"{roles.payload} must be binary or string, not {data.simpleString()}")
        return cls(
            topic,
            options.get("contract"),
            _names.parse_capacity(options.get("capacity")),
            float(options.get("timeout", "60")),
            int(options.get("readers", "0")),
            options.get("persist", "false").lower() == "true",
        )


class TopicWriter(DataSourceArrowWriter):
    """Batch."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._target = Target.parse(options, schema)
        self._batch = os.urandom(4).hex()  # one for all tasks of this write

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _publish(self._target, iterator, self._batch, "0")

    def commit(self, messages: Any) -> None: ...

    def abort(self, messages: Any) -> None: ...


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Streaming."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._target = Target.parse(options, schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = (context.getLocalProperty("sql.streaming.queryId") if context else None) or "unknown"
        batch = (context.getLocalProperty("streaming.sql.batchId") if context else None) or "0"
        return _publish(self._target, iterator, query.partition("-")[0], batch)

    def commit(self, messages: Any, batchId: int) -> None: ...

    def abort(self, messages: Any, batchId: int) -> None: ...


def _publish(target: Target, batches: Iterator[pa.RecordBatch], query: str, batch: str) -> Published:
    context = TaskContext.get()
    partition, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
    sender = f"spark/{query}/{batch}/{partition}/{attempt}"
    open_topics: OrderedDict[str, rm.Publisher] = OrderedDict()
    types: dict[str, Any] = {}
    count = 0

    def publisher(topic: str, schema: pa.Schema) -> rm.Publisher:
        found = open_topics.get(topic)
        if found is None:
            if len(open_topics) >= _OPEN_TOPICS:
                open_topics.popitem(last=False)[1].close()
            contract, types[topic] = _agree(topic, schema, Roles.of(schema.names))
            found = rm.Publisher(
                topic, contract=target.contract or contract, capacity=target.capacity, type=types[topic],
                sender=sender, name="spark", persist=target.persist,
            )  # fmt: skip
            open_topics[topic] = found
            if target.readers:
                found.wait_for_readers(target.readers, timeout=target.timeout_s)
        open_topics.move_to_end(topic)
        return found

    try:
        for rows in batches:
            roles = Roles.of(rows.schema.names)
            topics = rows.column(roles.topic).to_pylist() if roles.topic is not None else None
            kinds = rows.column(roles.kind).to_pylist() if roles.kind is not None else None
            for index, message in enumerate(_messages(rows, roles)):
                topic = topics[index] if topics is not None else target.topic
                if topic is None or message is None:
                    raise ValueError(
                        f"row {count} of partition {partition} has no {'topic' if topic is None else 'payload'}"
                    )
                kind = (kinds[index] or "") if kinds is not None else ""
                out = publisher(topic, rows.schema)
                value = message if types[topic] is None else _fitted(message, types[topic], topic, count)
                out.send(value, kind=kind, timeout=target.timeout_s)
                count += 1
    finally:
        for opened in open_topics.values():
            opened.close()
    return Published(count)


def _agree(topic: str, schema: pa.Schema, roles: Roles) -> tuple[Any, Any]:
    """(contract, type) to publish rows with: those of the topic if it exists. A new topic has the rows' columns as the
    fields of its type."""

    def own_type() -> Any:
        return None if roles.payload is not None else row_type([schema.field(name) for name in roles.fields])

    try:
        there = rm.info(topic)
    except TopicNotFound:
        return _NEW_TOPIC, own_type()
    if roles.payload is not None or there.schema is None:
        return there.contract, own_type()
    if there.schema.codec != "msgpack":
        raise ValueError(
            f"topic {topic!r} carries {there.schema.type_name} ({there.schema.codec}), which rows cannot be made into: "
            "give a column `payload` with the encoded bytes"
        )
    return there.contract, materialise(there.schema)


def _fitted(row: Any, type_: Any, topic: str, number: int) -> Any:
    try:
        return msgspec.convert(row, type_, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"row {number} does not fit topic {topic!r}: {error}") from error


def _messages(rows: pa.RecordBatch, roles: Roles) -> Iterator[Any]:
    if roles.payload is not None:
        return iter(rows.column(roles.payload).cast(pa.binary()).to_pylist())
    return iter(rows.select(roles.fields).to_pylist())


def row_type(fields: list[pa.Field]) -> Any:
    """A msgspec type with the fields of a DataFrame's rows. Nulls are allowed, as they are in Spark."""
    return msgspec.defstruct("Row", [(f.name, _python_type(f.type) | None, None) for f in fields])


def _python_type(type_: pa.DataType) -> Any:
    import datetime
    import decimal

    checks: list[tuple[Callable[[pa.DataType], bool], Any]] = [
        (pa.types.is_boolean, bool), (pa.types.is_integer, int), (pa.types.is_floating, float),
        (pa.types.is_string, str), (pa.types.is_large_string, str), (pa.types.is_binary, bytes),
        (pa.types.is_large_binary, bytes), (pa.types.is_timestamp, datetime.datetime),
        (pa.types.is_date, datetime.date), (pa.types.is_duration, datetime.timedelta),
        (pa.types.is_decimal, decimal.Decimal),
    ]  # fmt: skip
    for is_one, python in checks:
        if is_one(type_):
            return python
    if pa.types.is_list(type_):
        return list[_python_type(type_.value_type) | None]  # type: ignore[misc]
    if pa.types.is_struct(type_):
        return row_type(list(type_))
    if pa.types.is_map(type_):
        return dict[_python_type(type_.key_type), _python_type(type_.item_type) | None]  # type: ignore[misc]
    raise TypeError(f"a column of type {type_} cannot be part of a message: cast it, or give a column `payload`")


@dataclass(slots=True)
class _Sent:
    """Messages of a partition of a batch."""

    new: int = 0
    by_attempt: Counter[str] = field(default_factory=Counter)


class RepeatFilter:
    """Recognises messages that a sink sent again: `if repeats.is_new(message.sender): use(message)`, for each message
    in the order received. Remembers the newest `batches` batches of each query."""

    def __init__(self, batches: int = 64) -> None:
        self._batches = batches
        self._done: dict[str, OrderedDict[str, dict[str, _Sent]]] = {}

    def is_new(self, sender: str) -> bool:
        """Is this message new, and not sent before by another attempt? Messages from other senders are always new."""
        parts = sender.split("/")
        if len(parts) != 5 or parts[0] != "spark":
            return True
        _, query, batch, partition, attempt = parts
        of_query = self._done.setdefault(query, OrderedDict())
        of_batch = of_query.setdefault(batch, {})
        while len(of_query) > self._batches:
            of_query.popitem(last=False)
        sent = of_batch.setdefault(partition, _Sent())
        sent.by_attempt[attempt] += 1
        if sent.by_attempt[attempt] > sent.new:
            sent.new += 1
            return True
        return False
