"""One recorded message, made from a row, and how its payload is decoded.

The invariant owned here: a message's fields are those that the table of columns names, in its order, so a column that
readers shall see is a row there and a field here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from typing import TYPE_CHECKING, Any, Generic

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from ringmain import _extension
from ringmain.recording._format import EXTENSION, FRAMES, TABLE, Position
from ringmain.recording._meta import TopicMeta
from ringmain.recording._segment.segment import time_ns_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Payload = TypeVar("Payload", default=bytes)
else:
    from typing import TypeVar

    Payload = TypeVar("Payload")

Decoder = Callable[[bytes], Any]

FIELDS = tuple(column for column in TABLE if column.field)


class RecordedMessage(msgspec.Struct, Generic[Payload], frozen=True):
    """One message, as the ring carried it, and where it is in the recording. `data` is bytes, and during a replay the
    mapped buffer itself."""

    topic: str
    epoch: int
    seq: int
    time_ns: int
    record_time_ns: int
    sender: str
    kind: str
    lost: int
    data: Payload
    position: Position
    decoder: Decoder | None = None
    extension: bytes | None = None
    """What ringmain's own parts say of it, as in `Message`; None in recordings before format 4."""

    @property
    def trace(self) -> str:
        """The `traceparent` of the span in which it was sent; empty if there was none."""
        if self.extension is None:  # in those it is at the end of the kind
            return _extension.trace_in_kind(self.kind)
        return _extension.trace_of(self.extension)

    @property
    def reply_to(self) -> int | None:
        """Of a reply (`ringmain.Server`): the number of its request."""
        answer = _extension.answer_of(self.extension or b"")
        return None if answer is None else answer.number

    @property
    def value(self) -> Any:
        """The payload decoded by the topic's recorded schema; the bytes themselves when the topic was not typed; for a
        frame topic a `RecordedFrame`, which has the array."""
        return self.data if self.decoder is None else self.decoder(self.data)  # type: ignore[arg-type]


def messages_of(
    batch: pa.RecordBatch,
    segment: int,
    rows: Sequence[int],
    decoder: Callable[[str, int], Decoder | None] = lambda topic, epoch: None,
    *,
    copy: bool = True,
) -> Iterator[RecordedMessage[Any]]:
    """The messages of a batch that has all columns with a field, and extensions, with these row numbers. `copy=False`
    leaves payloads where they are."""
    columns: list[list[Any]] = [_values(batch, column.name, copy) for column in FIELDS]
    lives = zip(batch.column("topic").to_pylist(), batch.column("epoch").to_pylist(), strict=True)
    positions = (Position(segment, row) for row in rows)
    extensions = batch.column(EXTENSION.name).to_pylist()
    yield from map(RecordedMessage, *columns, positions, starmap(decoder, lives), extensions)


def _values(batch: pa.RecordBatch, name: str, copy: bool) -> list[Any]:
    column = batch.column(name)
    if name == "publish_time":
        column = time_ns_of(batch)
    elif pa.types.is_timestamp(column.type):
        column = pc.multiply(pc.cast(column, pa.int64()), 1000)
    elif name == "payload" and not copy:
        return [payload.as_buffer() for payload in column]
    values: list[Any] = column.to_pylist()
    return values


class LazyDecoder:
    """Made from a topic's schema when the first value is asked for: most readers want the bytes alone."""

    def __init__(self, make: Callable[[], Decoder]) -> None:
        self._make = make
        self._decode: Decoder | None = None

    def __call__(self, data: bytes) -> Any:
        if self._decode is None:
            self._decode = self._make()
        return self._decode(data)


def decoder_for(life: TopicMeta | None, custom: Callable[[bytes], Decoder] | None) -> Decoder | None:
    """How the payloads of a topic's life are decoded; None: not at all. `custom` makes a decoder from a schema."""
    if life is not None and life.contract == FRAMES:
        return LazyDecoder(lambda: importlib.import_module("ringmain.recording._frames").RecordedFrame)
    if life is None or not life.schema:
        return None
    schema = life.schema
    return LazyDecoder(lambda: (custom or _typed_decoder)(schema))


def _typed_decoder(schema: bytes) -> Decoder:
    typed = importlib.import_module("ringmain.typed")
    decoder: Decoder = typed.codec_from_schema(typed.Schema.from_bytes(schema)).decode
    return decoder
