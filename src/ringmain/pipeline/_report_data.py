"""What the report shows of the data itself: numeric fields over time, the last pictures of cameras, and what live
readers lost.

All of it comes from silver, column by column and batch by batch, so memory does not grow with the lake. The invariant
owned here: the page's size does not, either. Time is cut into at most BINS bins, and topics, fields and pictures have
limits; how many fields are left out is said.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ringmain.errors import Corrupt
from ringmain.frames._thumbnail import thumbnail
from ringmain.pipeline._lake import Lake
from ringmain.pipeline._work import silver_table
from ringmain.recording._format import COLUMNS
from ringmain.recording._frames import RecordedFrame
from ringmain.recording._record.live_readers import READERS
from ringmain.spark._tables import Live, latest

BINS = 120
FIELDS_OF_A_TOPIC = 8
FIELDS = 96
PICTURES = 12
WORST = 30
_PICTURE_PIXELS = (320, 120)  # at most so wide, and twice as high
_PICTURE_BYTES = 300_000  # of one that is compressed already, and is taken as it is
_ELEMENTS = 3  # of a short list: x, y, z
_SHORT_LIST = 16
_DEPTH = 3
_COMPRESSED = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG": "image/png"}


class Span(NamedTuple):
    """The time that the page shows."""

    start_us: int
    bin_us: int
    bins: int

    @classmethod
    def of(cls, start_ms: int, bin_ms: float, bins: int) -> Span:
        coarser = -(-bins // BINS)
        return cls(start_ms * 1000, max(1, int(bin_ms * 1000 * coarser)), -(-bins // coarser))


def data_of(lake: Lake, span: Span) -> dict[str, Any]:
    """The page's part about the data."""
    fields: list[dict[str, Any]] = []
    left_out = 0
    pictures: list[dict[str, Any]] = []
    silver = [name for name in lake.tables() if name.startswith("silver/")]
    for name in silver:
        schema = lake.schema(name)
        if schema is None or name == silver_table(READERS):
            continue
        if "payload" in schema.names:
            picture = _last_picture(lake, name) if len(pictures) < PICTURES else None
            pictures += [picture] if picture is not None else []
            continue
        found, more = _fields(lake, name, schema, span)
        room = FIELDS - len(fields)
        fields += found[:room]
        left_out += more + len(found[room:])
    return {
        "field_bins": span.bins, "field_bin_ms": span.bin_us / 1000,
        "fields": fields, "fields_left_out": left_out, "pictures": pictures, "live": _live_readers(lake),
    }  # fmt: skip


# ----------------------------------------------------------------------------------------- fields over time


@dataclass
class _Binned:
    """The values of one field: how many, their sum, the least and the most, by bin."""

    name: str
    bins: int
    count: Any = field(init=False)
    total: Any = field(init=False)
    low: Any = field(init=False)
    high: Any = field(init=False)

    def __post_init__(self) -> None:
        self.count, self.total = np.zeros(self.bins), np.zeros(self.bins)
        self.low, self.high = np.full(self.bins, np.inf), np.full(self.bins, -np.inf)

    def add(self, at: Any, values: Any) -> None:
        there = np.isfinite(values)
        at, values = at[there], values[there]
        self.count += np.bincount(at, minlength=self.bins)
        self.total += np.bincount(at, values, minlength=self.bins)
        np.minimum.at(self.low, at, values)
        np.maximum.at(self.high, at, values)

    def shown(self, topic: str) -> dict[str, Any]:
        there = self.count > 0
        mean = np.divide(self.total, self.count, out=np.zeros(self.bins), where=there)
        series = {"mean": mean, "low": self.low, "high": self.high}
        return {
            "topic": topic,
            "field": self.name,
            **{name: [_brief(v) if ok else None for v, ok in zip(s, there, strict=True)] for name, s in series.items()},
        }


def _fields(lake: Lake, table: str, schema: pa.Schema, span: Span) -> tuple[list[dict[str, Any]], int]:
    """The numeric fields of a topic over time, and how many are left out."""
    columns = [f.name for f in schema if f.name not in COLUMNS and _may_be_numbers(f.type)]
    if not columns:
        return [], 0
    binned: dict[str, _Binned] = {}
    left_out: set[str] = set()
    topic = ""
    for batch in lake.dataset(table).to_batches(columns=["topic", "publish_time", *columns]):
        if not len(batch):
            continue
        topic = batch.column("topic")[0].as_py()
        at = (batch.column("publish_time").cast(pa.int64()).to_numpy() - span.start_us) // span.bin_us
        at = np.clip(at, 0, span.bins - 1)
        for column in [name for name in columns if name in batch.schema.names]:
            for name, values in _leaves(column, batch.column(column)):
                if name not in binned and len(binned) >= FIELDS_OF_A_TOPIC:
                    left_out.add(name)
                    continue
                binned.setdefault(name, _Binned(name, span.bins)).add(at, values)
    return [one.shown(topic) for one in binned.values() if one.count.any()], len(left_out)


def _may_be_numbers(kind: pa.DataType, depth: int = _DEPTH) -> bool:
    if pa.types.is_struct(kind):
        return depth > 0 and any(_may_be_numbers(f.type, depth - 1) for f in kind)
    if pa.types.is_list(kind):
        return _is_number(kind.value_type)
    return _is_number(kind)


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    )


def _leaves(name: str, values: pa.Array, depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """The numbers inside a column, as float64 with NaN for what is not there: of records by their fields, of short
    lists the first elements."""
    if pa.types.is_struct(values.type) and depth > 0:
        for f in values.type:
            yield from _leaves(f"{name}.{f.name}", pc.struct_field(values, f.name), depth - 1)
    elif pa.types.is_list(values.type) and _is_number(values.type.value_type):
        longest = pc.max(pc.list_value_length(values)).as_py() or 0
        for at in range(min(longest, _ELEMENTS) if longest <= _SHORT_LIST else 0):
            yield f"{name}[{at}]", _floats(_element(values, at))
    elif _is_number(values.type):
        yield name, _floats(values)


def _element(lists: pa.Array, at: int) -> pa.Array:
    """An element of each list; null where a list is shorter or null."""
    there = pc.fill_null(pc.greater(pc.list_value_length(lists), at), False)
    found = pc.list_element(lists.filter(there), at)
    return pc.replace_with_mask(pa.nulls(len(lists), found.type), there, found)


def _floats(values: pa.Array) -> Any:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    return values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _brief(value: float) -> float:
    return float(f"{value:.5g}")


# ------------------------------------------------------------------------------------------------- pictures


def _last_picture(lake: Lake, table: str) -> dict[str, Any] | None:
    """The newest row of a table as a picture, None if it is none."""
    files = lake.files(table)
    if not files:
        return None
    row = _newest_row(lake, table, max(files, key=lambda one: latest(one, "publish_time")))
    made = _data_uri(row["payload"])
    if made is None:
        return None
    return {"topic": row["topic"], "at_ms": int(row["publish_time"].timestamp() * 1000), "src": made}


def _newest_row(lake: Lake, table: str, file: Live) -> dict[str, Any]:
    """Only the rows that are read together with it are read."""
    with lake.filesystem().open_input_file(f"{table}/{file.name}") as source:
        parquet = pq.ParquetFile(source)
        times = [parquet.read_row_group(n, ["publish_time"]).column(0) for n in range(parquet.num_row_groups)]
        group = max((n for n, found in enumerate(times) if len(found)), key=lambda n: pc.max(times[n]).as_py())
        at = pc.index(times[group], pc.max(times[group])).as_py()
        rows = parquet.read_row_group(group, ["topic", "publish_time", "payload"]).slice(at, 1)
    (row,) = rows.to_pylist()
    return dict(row)


def _data_uri(payload: bytes) -> str | None:
    for mark, kind in _COMPRESSED.items():
        if payload.startswith(mark) and len(payload) <= _PICTURE_BYTES:
            return _uri(kind, payload)
    try:
        pixels = thumbnail(RecordedFrame(payload), *_PICTURE_PIXELS)
    except Corrupt:
        return None  # not a frame
    return None if pixels is None else _uri("image/png", png(pixels))


def _uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def png(pixels: Any) -> bytes:
    """(height, width, 3) bytes as a PNG file."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), "u1"), pixels.reshape(height, -1)], axis=1)  # 0: no filter

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    body = zlib.compress(lines.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


# --------------------------------------------------------------------------------------------- live readers


def _live_readers(lake: Lake) -> list[dict[str, Any]]:
    """What live readers lost, the worst first: recorders with `readers=True` wrote it down."""
    if lake.load(silver_table(READERS)) is None:
        return []
    names = ["recorder", "of_topic", "reader", "pid", "joined_ns", "reader_messages", "reader_lost"]
    rows = lake.to_arrow(silver_table(READERS), columns=names).to_pandas()
    # Figures are from when a reader joined. One that joined again begins at 0: its last figures add up.
    joined = rows.groupby(names[:5])[["reader_messages", "reader_lost"]].max().reset_index()
    found = joined.groupby(["reader", "of_topic", "recorder"])[["reader_messages", "reader_lost"]].sum().reset_index()
    worst = found.sort_values(["reader_lost", "reader_messages"], ascending=False).head(WORST)
    return [
        {
            "reader": str(r.reader), "topic": str(r.of_topic), "recorder": str(r.recorder),
            "messages": int(r.reader_messages), "lost": int(r.reader_lost),
        }
        for r in worst.itertuples()
    ]  # fmt: skip
